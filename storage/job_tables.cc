#include "storage/job_tables.h"

#include <cstdint>
#include <set>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "storage/checkpoint_format.h"

namespace capstan {

std::string WhatIsWrongWithTables(const EffectiveJob& job) {
  if (job.table_size() == 0) return "it has no table";
  std::set<uint32_t> ids;
  std::set<std::string> names;
  for (const TableSpec& table : job.table()) {
    if (table.id() > 0xFFFF || !ids.insert(table.id()).second || !names.insert(table.name()).second) {
      return fmt::format("table {} '{}' has an id or a name that another one has, or an id above 65535",
                         table.id(), table.name());
    }
    if (table.width() < 1 || table.width() > kMaxRowFloats) {
      return fmt::format("table '{}' has width {}, outside 1…{}", table.name(), table.width(), kMaxRowFloats);
    }
  }
  return "";
}

}  // namespace capstan
