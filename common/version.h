#pragma once

namespace capstan {

// Nodes of one job must have the same release; CHANGELOG.md says what changed.
inline constexpr char kCapstanVersion[] = "0.1.0";

}  // namespace capstan
