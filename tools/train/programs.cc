#include "tools/train/programs.h"

#include <unistd.h>

namespace capstan {

std::string FolderOfThisProgram() {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return ".";
  path.resize(static_cast<size_t>(size));
  return path.substr(0, path.rfind('/'));
}

}  // namespace capstan
