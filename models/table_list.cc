#include "models/table_list.h"

#include <algorithm>

namespace capstan {

TableSpec& TableList::Add(const std::string& name, float scale) {
  TableSpec& spec = specs_.emplace_back();
  spec.set_id(static_cast<uint32_t>(specs_.size() - 1));
  spec.set_name(name);
  spec.set_init(scale > 0.0f ? TableSpec::UNIFORM : TableSpec::ZERO);
  spec.set_scale(scale);
  spec.set_reduction(TableSpec::MEAN);
  return spec;
}

size_t TableList::AddSparse(const std::string& name, uint32_t width, float scale) {
  TableSpec& spec = Add(name, scale);
  spec.set_kind(TableSpec::SPARSE);
  spec.set_width(width);
  return spec.id();
}

size_t TableList::AddDense(const std::string& name, uint64_t elements, float scale) {
  TableSpec& spec = Add(name, scale);
  spec.set_kind(TableSpec::DENSE);
  spec.set_width(static_cast<uint32_t>(std::min(elements, kDenseRow)));
  spec.set_elements(elements);
  return spec.id();
}

}  // namespace capstan
