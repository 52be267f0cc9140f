#include "tests/tree/layering.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace capstan {
namespace {

constexpr size_t kMaxLines = 700;

// Which folders a folder may include, besides itself. ps, scheduler and worker never meet: only bytes connect
// them.
struct FolderRule {
  std::string_view folder;
  std::vector<std::string_view> may_include;
};
const std::vector<FolderRule>& FolderRules() {
  static const auto* rules = new std::vector<FolderRule>{
      {"common", {}},
      {"proto", {"common"}},
      {"transport", {"proto", "common"}},
      {"kernels", {"common"}},
      {"storage", {"proto", "common"}},
      {"data", {"proto", "common"}},
      {"ps", {"transport", "proto", "common", "kernels", "storage"}},
      {"scheduler", {"transport", "proto", "common", "storage"}},
      {"models", {"kernels", "data", "proto", "common"}},
      {"worker", {"models", "kernels", "data", "transport", "proto", "common", "storage"}},
      {"collective", {"transport", "proto", "common", "kernels"}},
      {"tools",
       {"common", "proto", "transport", "kernels", "storage", "data", "ps", "scheduler", "models", "worker",
        "collective"}},
  };
  return *rules;
}

// Which library is named where: a header that starts with `prefix` may be included below one of `places`.
struct LibraryRule {
  std::string_view prefix;
  std::vector<std::string_view> places;  // a folder with its '/', or one file
};
const std::vector<LibraryRule>& LibraryRules() {
  static const auto* rules = new std::vector<LibraryRule>{
      {"zmq", {"transport/zmq_transport.cc", "tests/"}},
      {"dnnl", {"kernels/", "tests/"}},
      {"oneapi/dnnl", {"kernels/", "tests/"}},
      {"rocksdb/", {"storage/", "tests/"}},
      {"cuda", {"kernels/", "tests/"}},
  };
  return *rules;
}

struct Include {
  std::string_view header;
  bool quoted = false;
};

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}
bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view SkipSpaces(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

std::optional<Include> ReadInclude(std::string_view line) {
  line = SkipSpaces(line);
  if (!StartsWith(line, "#")) return std::nullopt;
  line = SkipSpaces(line.substr(1));
  constexpr std::string_view kWord = "include";
  if (!StartsWith(line, kWord)) return std::nullopt;
  line = SkipSpaces(line.substr(kWord.size()));
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return std::nullopt;
  const bool quoted = line[0] == '"';
  const size_t end = line.find(quoted ? '"' : '>', 1);
  if (end == std::string_view::npos) return std::nullopt;
  return Include{line.substr(1, end - 1), quoted};
}

std::string_view TopFolder(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool IsCode(std::string_view path) {
  constexpr std::array<std::string_view, 4> kEndings = {".h", ".cc", ".cu", ".cuh"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view e) { return EndsWith(path, e); });
}
bool IsHeader(std::string_view path) { return EndsWith(path, ".h") || EndsWith(path, ".cuh"); }
bool IsMain(std::string_view path) { return EndsWith(path, "main.cc"); }

class FileChecker {
 public:
  FileChecker(const SourceFile& file, std::vector<std::string>* violations)
      : path_(file.path), folder_(TopFolder(path_)), in_tests_(folder_ == "tests"), violations_(violations) {}

  void Check(std::string_view text) {
    bool pragma_once = false;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      ++line_;
      if (line_ == kMaxLines + 1)
        Report(fmt::format("the file is longer than {} lines; split it", kMaxLines));
      if (!IsCode(path_)) continue;
      if (StartsWith(line, "#pragma once")) pragma_once = true;
      if (const std::optional<Include> include = ReadInclude(line)) CheckInclude(*include);
      CheckFlags(line);
      if (in_tests_) CheckSleeps(line);
    }
    if (IsHeader(path_) && !pragma_once) {
      line_ = 1;
      Report("a header without #pragma once");
    }
  }

 private:
  void Report(std::string_view what) { violations_->push_back(fmt::format("{}:{}: {}", path_, line_, what)); }

  void CheckInclude(const Include& include) {
    for (const LibraryRule& rule : LibraryRules()) {
      if (include.quoted || !StartsWith(include.header, rule.prefix)) continue;
      const bool allowed = std::any_of(rule.places.begin(), rule.places.end(),
                                       [&](std::string_view place) { return StartsWith(path_, place); });
      if (!allowed) {
        Report(
            fmt::format("includes <{}>; allowed only in {}", include.header, fmt::join(rule.places, ", ")));
      }
    }
    if (include.quoted && !in_tests_ && !IsMain(path_)) CheckArrow(include.header);
  }

  void CheckArrow(std::string_view header) {
    if (StartsWith(header, "absl/")) return;  // Debian's headers, written in quotes by their own custom
    const std::string_view to = TopFolder(header);
    if (to.empty()) {
      Report(
          fmt::format("includes \"{}\"; write the path from the root: \"{}/{}\"", header, folder_, header));
      return;
    }
    if (to == folder_) return;
    for (const FolderRule& rule : FolderRules()) {
      if (rule.folder != folder_) continue;
      const auto& may = rule.may_include;
      if (std::find(may.begin(), may.end(), to) != may.end()) return;
      Report(fmt::format(
          "{} -> {} (\"{}\"); {} may include {}", folder_, to, header, folder_,
          may.empty() ? std::string("nothing of ours") : fmt::format("{}", fmt::join(may, ", "))));
      return;
    }
    Report(fmt::format("folder '{}' has no row in the table of tests/tree/layering.cc; add one", folder_));
  }

  void CheckFlags(std::string_view line) {
    if (in_tests_ || IsMain(path_) || folder_ == "tools") return;
    constexpr std::array<std::string_view, 9> kMacros = {
        "DEFINE_bool(",   "DEFINE_int32(",  "DEFINE_uint32(",    "DEFINE_int64(", "DEFINE_uint64(",
        "DEFINE_double(", "DEFINE_string(", "DEFINE_validator(", "DECLARE_"};
    for (const std::string_view macro : kMacros) {
      if (StartsWith(line, macro)) {
        Report(fmt::format("{}…: flags belong in *main.cc and tools/; pass the value as an argument", macro));
      }
    }
  }

  void CheckSleeps(std::string_view line) {
    constexpr std::array<std::string_view, 4> kSleeps = {
        "sleep"
        "_for(",
        "sleep"
        "_until(",
        "u"
        "sleep(",
        "nano"
        "sleep("};
    for (const std::string_view call : kSleeps) {
      if (Contains(line, call))
        Report(fmt::format("{}…) in a test; wait for the event or move a ManualClock", call));
    }
  }

  const std::string& path_;
  const std::string_view folder_;
  const bool in_tests_;
  std::vector<std::string>* violations_;
  size_t line_ = 0;
};

}  // namespace

std::vector<std::string> CheckTree(const std::vector<SourceFile>& files) {
  std::vector<std::string> violations;
  for (const SourceFile& file : files) FileChecker(file, &violations).Check(file.text);
  return violations;
}

std::vector<SourceFile> ReadTree(const std::string& root) {
  namespace fs = std::filesystem;
  constexpr std::array<std::string_view, 3> kAlsoRead = {".proto", ".sh", ".cmake"};
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool not_ours = it.depth() == 0 && (name == "build" || name == "runs");
      if (not_ours || name[0] == '.') it.disable_recursion_pending();
      continue;
    }
    const bool read = IsCode(name) || name == "CMakeLists.txt" ||
                      std::any_of(kAlsoRead.begin(), kAlsoRead.end(),
                                  [&](std::string_view ending) { return EndsWith(name, ending); });
    if (!read) continue;
    std::ifstream in(it->path(), std::ios::binary);
    files.push_back({fs::relative(it->path(), root).generic_string(),
                     std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>())});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace capstan
