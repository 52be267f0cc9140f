// Numbers in text, the same on every machine whatever its locale.
#pragma once

#include <cstdint>
#include <string_view>

namespace capstan {

enum class NumberProblem : uint8_t {
  kNone,
  kNotANumber,  // empty, trailing characters, hexadecimal, digit grouping, …
  kNotFinite,   // inf or nan, spelled out
  kTooLarge,    // finite, but beyond a 32-bit float (or below the smallest 64-bit one)
};

// Decimal with optional sign ('+' too) and exponent; the whole text must be the number. *value is finite and
// its magnitude at most FLT_MAX, or it is untouched.
NumberProblem ParseNumber(std::string_view text, double* value);

// "is not a number" and so on, to follow the quoted value in a message.
std::string_view Describe(NumberProblem problem);

}  // namespace capstan
