#include "data/number.h"

#include <cfloat>
#include <charconv>
#include <cmath>
#include <system_error>

namespace capstan {
namespace {

constexpr size_t kExactDigits = 15;  // integers of so many digits are exact in a double

// The common case in click logs, several times faster than the general one.
bool ParseShortInteger(std::string_view text, double* value) {
  const bool negative = text[0] == '-';
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || digits.size() > kExactDigits) return false;
  int64_t sum = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    sum = sum * 10 + (c - '0');
  }
  *value = negative ? -static_cast<double>(sum) : static_cast<double>(sum);
  return true;
}

}  // namespace

NumberProblem ParseNumber(std::string_view text, double* value) {
  if (text.empty()) return NumberProblem::kNotANumber;
  if (ParseShortInteger(text, value)) return NumberProblem::kNone;
  if (text[0] == '+') {
    text.remove_prefix(1);
    if (text.empty() || text[0] == '-') return NumberProblem::kNotANumber;
  }
  double parsed = 0;
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (result.ec == std::errc::invalid_argument || result.ptr != text.data() + text.size()) {
    return NumberProblem::kNotANumber;
  }
  if (result.ec == std::errc::result_out_of_range) return NumberProblem::kTooLarge;
  if (!std::isfinite(parsed)) return NumberProblem::kNotFinite;
  if (std::fabs(parsed) > static_cast<double>(FLT_MAX)) return NumberProblem::kTooLarge;
  *value = parsed;
  return NumberProblem::kNone;
}

std::string_view Describe(NumberProblem problem) {
  switch (problem) {
    case NumberProblem::kNone:
      return "is a number";
    case NumberProblem::kNotANumber:
      return "is not a number";
    case NumberProblem::kNotFinite:
      return "is not a finite number";
    case NumberProblem::kTooLarge:
      return "is outside the range of a 32-bit float";
  }
  return "";
}

}  // namespace capstan
