#include "tools/train/programs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/core.h>

namespace capstan {

std::string FolderOfThisProgram() {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return ".";
  path.resize(static_cast<size_t>(size));
  return path.substr(0, path.rfind('/'));
}

absl::Status CheckPrograms(bool processes) {
  std::vector<std::string> names = {"capstan-checkpoint-writer"};
  if (processes) names.insert(names.end(), {"capstan-scheduler", "capstan-ps", "capstan-worker"});
  for (const std::string& name : names) {
    const std::string path = FolderOfThisProgram() + "/" + name;
    if (access(path.c_str(), X_OK) == 0) continue;
    return NotFound(fmt::format("'{}': {}; keep all capstan programs in one folder", path, std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace capstan
