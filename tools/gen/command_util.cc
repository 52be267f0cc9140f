#include "tools/gen/command_util.h"
#include "tools/print.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include <fmt/core.h>

namespace capstan {

unsigned ThreadsOrAll(unsigned threads) {
  return threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
}

int ReportFailure(std::string_view command, const absl::Status& status, ExitCode code) {
  const absl::string_view message = status.message();
  Print(stderr, "capstan {}: {}\n", command, std::string_view(message.data(), message.size()));
  return ToInt(code);
}

}  // namespace capstan
