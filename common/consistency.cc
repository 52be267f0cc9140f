#include "common/consistency.h"

#include <charconv>

#include <fmt/core.h>

namespace capstan {

std::string Consistency::ToString() const {
  switch (mode) {
    case ConsistencyMode::kSync:
      return "sync";
    case ConsistencyMode::kAsync:
      return "async";
    case ConsistencyMode::kSsp:
      return fmt::format("ssp:{}", staleness);
  }
  return "sync";
}

absl::StatusOr<Consistency> ParseConsistency(std::string_view text) {
  if (text == "sync") return Consistency{};
  if (text == "async") return Consistency{ConsistencyMode::kAsync, kUnbounded};
  constexpr std::string_view kPrefix = "ssp:";
  if (text.substr(0, kPrefix.size()) == kPrefix) {
    const std::string_view digits = text.substr(kPrefix.size());
    uint64_t bound = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bound);
    if (error == std::errc() && end == digits.data() + digits.size() && bound >= 1 && bound <= 1'000'000) {
      return Consistency{ConsistencyMode::kSsp, bound};
    }
  }
  return InvalidArgument(fmt::format(
      "consistency is '{}'; it must be sync, async, or ssp:K with K steps of staleness from 1 to 1000000",
      text));
}

}  // namespace capstan
