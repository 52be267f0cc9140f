#include "tools/job/data_paths.h"

#include <fmt/core.h>

namespace capstan {
namespace {

std::string JoinPath(const std::string& folder, const std::string& path) {
  return folder.empty() || path.front() == '/' ? path : folder + "/" + path;
}

}  // namespace

absl::StatusOr<std::string> ExpandVariables(const std::string& text, const Environment& environment) {
  std::string expanded;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find("${", at);
    if (begin == std::string::npos) return expanded + text.substr(at);
    const size_t end = text.find('}', begin);
    if (end == std::string::npos) return InvalidArgument(fmt::format("'{}': a '${{' has no '}}'", text));
    const std::string name = text.substr(begin + 2, end - begin - 2);
    const std::optional<std::string> value = name.empty() ? std::nullopt : environment(name);
    if (!value) {
      return InvalidArgument(
          fmt::format("'{}': the environment variable {} is not set; export it, or write the path", text,
                      name.empty() ? "''" : name));
    }
    expanded += text.substr(at, begin - at) + *value;
    at = end + 1;
  }
  return expanded;
}

absl::StatusOr<std::string> FindDataFile(FileSystem& fs, const std::string& written,
                                         const Environment& environment, const PathRule& rule) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string path, ExpandVariables(written, environment));
  if (path.empty()) return InvalidArgument("the path is empty");
  const std::string here = JoinPath(rule.current_folder, path);
  CAPSTAN_ASSIGN_OR_RETURN(const bool is_here, fs.Exists(here));
  if (is_here) return here;
  if (path.front() == '/' || rule.job_folder.empty()) return NotFound(fmt::format("no file '{}'", here));
  const std::string beside = JoinPath(rule.job_folder, path);
  CAPSTAN_ASSIGN_OR_RETURN(const bool is_beside, fs.Exists(beside));
  if (is_beside) return JoinPath(rule.current_folder, beside);
  return NotFound(fmt::format("no file '{}', and none beside the job file ('{}')", here, beside));
}

}  // namespace capstan
