// One row of libsvm text: `label [qid:n] index:value … [# comment]`, separated by spaces or tabs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

struct LibsvmRow {
  std::string_view label;         // its text; empty if the row starts with index:value
  std::vector<uint64_t> indices;  // in file order, any u64
  std::vector<float> values;      // one per index, finite
};

// Fills *row (its vectors are reused) and returns true; false: *problem says what is wrong, for example
// "'3:x': 'x' is not a number". An index twice in one row is refused: whether to add, keep or replace is not
// for a reader to guess. qid is read over.
bool ParseLibsvm(std::string_view text, LibsvmRow* row, std::string* problem);

}  // namespace capstan
