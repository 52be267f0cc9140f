// "did you mean": the known name closest to one that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace capstan {

std::string JoinText(std::span<const std::string> parts, std::string_view between);

// Edits (insert, delete, replace, swap of neighbours) that turn a into b; the restricted Damerau-Levenshtein
// distance. Cost: |a| × |b|.
size_t EditDistance(std::string_view a, std::string_view b);

// The first of `known` at the smallest distance, if that is at most max(1, length / 3) edits; else "".
std::string NearestName(std::string_view name, std::span<const std::string> known);

// "; did you mean 'x'?", or "; known are a, b, c" where nothing is near and the list is short (at most 24
// names).
std::string NameHint(std::string_view name, std::span<const std::string> known);

}  // namespace capstan
