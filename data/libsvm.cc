#include "data/libsvm.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <system_error>

#include <fmt/core.h>

#include "data/number.h"

namespace capstan {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr size_t kShownBytes = 40;

// Takes the next token off *text; empty at its end.
std::string_view NextToken(std::string_view* text) {
  const size_t start = std::min(text->find_first_not_of(kBlanks), text->size());
  const size_t end = std::min(text->find_first_of(kBlanks, start), text->size());
  const std::string_view token = text->substr(start, end - start);
  text->remove_prefix(end);
  return token;
}

bool ParsePair(std::string_view token, size_t colon, LibsvmRow* row, std::string* problem) {
  const std::string_view index_text = token.substr(0, colon);
  const std::string_view value_text = token.substr(colon + 1);
  uint64_t index = 0;
  const char* end = index_text.data() + index_text.size();
  const std::from_chars_result result = std::from_chars(index_text.data(), end, index);
  if (result.ec != std::errc() || result.ptr != end) {
    *problem = fmt::format("'{}': '{}' is not an index (0 … 2^64-1)", token.substr(0, kShownBytes),
                           index_text.substr(0, kShownBytes));
    return false;
  }
  double value = 0;
  if (const NumberProblem bad = ParseNumber(value_text, &value); bad != NumberProblem::kNone) {
    *problem = fmt::format("'{}': '{}' {}", token.substr(0, kShownBytes), value_text.substr(0, kShownBytes),
                           Describe(bad));
    return false;
  }
  row->indices.push_back(index);
  row->values.push_back(static_cast<float>(value));
  return true;
}

// Files are nearly always sorted by index, which makes this one pass without a copy.
const uint64_t* FindRepeated(const std::vector<uint64_t>& indices, std::vector<uint64_t>* sorted) {
  const auto out_of_order = std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>());
  if (out_of_order == indices.end()) return nullptr;
  *sorted = indices;
  std::sort(sorted->begin(), sorted->end());
  const auto twice = std::adjacent_find(sorted->begin(), sorted->end());
  return twice == sorted->end() ? nullptr : &*twice;
}

}  // namespace

bool ParseLibsvm(std::string_view text, LibsvmRow* row, std::string* problem) {
  row->label = {};
  row->indices.clear();
  row->values.clear();
  text = text.substr(0, text.find('#'));
  bool first = true;
  for (std::string_view token = NextToken(&text); !token.empty(); token = NextToken(&text), first = false) {
    const size_t colon = token.find(':');
    if (colon == std::string_view::npos && first) {
      row->label = token;
    } else if (colon == std::string_view::npos) {
      *problem = fmt::format("'{}' is not index:value", token.substr(0, kShownBytes));
      return false;
    } else if (token.substr(0, colon) != "qid" && !ParsePair(token, colon, row, problem)) {
      return false;
    }
  }
  std::vector<uint64_t> sorted;
  if (const uint64_t* twice = FindRepeated(row->indices, &sorted)) {
    *problem = fmt::format("index {} occurs twice in the row", *twice);
    return false;
  }
  return true;
}

}  // namespace capstan
