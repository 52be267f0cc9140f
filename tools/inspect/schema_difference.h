// What two jobs say differently about the same data: the same bytes of a file would become other keys or inputs.
#pragma once

#include <string>
#include <vector>

namespace capstan {

class EffectiveJob;

// One line each, naming the feature or the setting and both sides; empty: nothing. Paths of files do not count.
std::vector<std::string> SchemaDifferences(const EffectiveJob& a, const EffectiveJob& b);

}  // namespace capstan
