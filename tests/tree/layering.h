// Rules about the source tree that no compiler checks: which folder may include which, where each library is
// named, how long a file may be. Works on file contents in memory, so that it can be shown to fail.
#pragma once

#include <string>
#include <vector>

namespace capstan {

struct SourceFile {
  std::string path;  // relative to the root, with '/'
  std::string text;
};

// One "path:line: what is wrong; what is allowed" per violation, in the order of `files`.
std::vector<std::string> CheckTree(const std::vector<SourceFile>& files);

// Sources, headers, protos and scripts under `root`, sorted by path; build folders and dot folders left out.
std::vector<SourceFile> ReadTree(const std::string& root);

}  // namespace capstan
