#include "tools/output_path.h"

#include <filesystem>
#include <system_error>

#include <fmt/core.h>

namespace capstan {

absl::Status CheckOutputPath(const std::string& out, const std::vector<std::string>& inputs) {
  std::error_code error;  // a path that cannot be looked at is reported when it is written
  const std::filesystem::file_status status = std::filesystem::status(out, error);
  if (!std::filesystem::exists(status)) return absl::OkStatus();
  if (!std::filesystem::is_regular_file(status)) {
    return InvalidArgument(fmt::format("--out={}: not an ordinary file; give the name of a file, new or to be replaced", out));
  }
  for (const std::string& input : inputs) {
    if (std::filesystem::equivalent(out, input, error)) {
      return InvalidArgument(fmt::format("--out={} is the input '{}' and would replace it; give another name", out, input));
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan
