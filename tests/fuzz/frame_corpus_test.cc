// Replays what the fuzzer found worth keeping.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "frame_input.h"

namespace capstan {
namespace {

std::vector<std::filesystem::path> CorpusFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(CAPSTAN_SOURCE_DIR "/tests/fuzz/corpus/frame")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Parse(const std::string& input) {
  ParseFrameInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

TEST(FrameCorpus, EveryInputIsParsedWithoutAnAbort) {
  const auto files = CorpusFiles();
  ASSERT_GE(files.size(), 40u) << "the corpus is missing";
  for (const auto& path : files) {
    SCOPED_TRACE(path.filename().string());
    Parse(ReadAll(path));
  }
}

// Cut anywhere and with any bit changed, too: the fuzzer's first moves, in every build.
TEST(FrameCorpus, NeighboursOfEveryInputAreParsedWithoutAnAbort) {
  for (const auto& path : CorpusFiles()) {
    const std::string input = ReadAll(path);
    if (input.size() > 600) continue;
    for (size_t length = 0; length < input.size(); ++length) Parse(input.substr(0, length));
    for (size_t bit = 0; bit < 8 * input.size(); ++bit) {
      std::string changed = input;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      Parse(changed);
    }
  }
}

}  // namespace
}  // namespace capstan
