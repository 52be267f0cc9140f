// Builds the tables of a model: ids count from 0 in the order of the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/control.pb.h"

namespace capstan {

class TableList {
 public:
  // Both return the new table's id. Initial values are uniform in (-scale, scale); 0 where scale is 0.
  size_t AddSparse(const std::string& name, uint32_t width, float scale);
  // A tensor of `elements` floats, stored as rows of at most kDenseRow, so that a large one spreads over all
  // shards.
  size_t AddDense(const std::string& name, uint64_t elements, float scale);

  TableSpec& at(size_t id) { return specs_[id]; }
  std::vector<TableSpec> Take() { return std::move(specs_); }

 private:
  static constexpr uint64_t kDenseRow = 512;
  TableSpec& Add(const std::string& name, float scale);
  std::vector<TableSpec> specs_;
};

}  // namespace capstan
