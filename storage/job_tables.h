// What every reader of a job from a file asks of its tables first.
#pragma once

#include <string>

namespace capstan {

class EffectiveJob;

// Empty if there is a table, and ids (up to 65535), names and widths are such as a job can have.
std::string WhatIsWrongWithTables(const EffectiveJob& job);

}  // namespace capstan
