#include "tools/inspect/opened.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <regex>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "common/consistency.h"
#include "storage/checkpoint_root.h"
#include "tools/print.h"

namespace capstan {

absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenForInspection(const std::string& path,
                                                                    std::vector<std::string>* others) {
  std::vector<std::string> skipped;
  const absl::StatusOr<std::string> folder = FindCheckpoint(PosixFileSystem(), path, CheckpointCheck::kRecords, &skipped);
  for (const std::string& line : skipped) Print(stderr, "not used: {}\n", line);
  if (others != nullptr) *others = skipped;
  if (!folder.ok()) return folder.status();
  return CheckpointReader::Open(PosixFileSystem(), *folder, CheckpointReader::Verify::kRecords);
}

absl::StatusOr<std::vector<const TableSpec*>> ChooseTables(const CheckpointReader& reader, const std::string& pattern) {
  std::vector<const TableSpec*> chosen;
  try {
    const std::regex regex(pattern);
    for (const TableSpec& table : reader.manifest().job().table()) {
      if (pattern.empty() || std::regex_match(table.name(), regex)) chosen.push_back(&table);
    }
  } catch (const std::regex_error& error) {
    return InvalidArgument(fmt::format("--table={} is no regular expression: {}", pattern, error.what()));
  }
  if (!chosen.empty()) return chosen;
  return InvalidArgument(fmt::format("--table={} matches no table; there are {}", pattern, TableNames(reader)));
}

const TableSpec* FindTable(const CheckpointReader& reader, const std::string& name) {
  for (const TableSpec& table : reader.manifest().job().table()) {
    if (table.name() == name) return &table;
  }
  return nullptr;
}

std::string TableNames(const CheckpointReader& reader) {
  std::string names;
  for (const TableSpec& table : reader.manifest().job().table()) names += (names.empty() ? "" : ", ") + table.name();
  return names;
}

std::vector<NamedSlot> SlotNames(const TableSpec& table, uint32_t slots) {
  // What ps/ keeps per row, in its order; 0: one float a row. A checkpoint is read without the servers' code.
  struct Known {
    std::string_view optimizer;
    std::vector<std::pair<const char*, bool>> slots;  // name, whether there is one per weight
  };
  static const std::vector<Known> kKnown = {
      {"momentum", {{"velocity", true}}},
      {"nesterov", {{"velocity", true}}},
      {"adagrad", {{"accumulator", true}}},
      {"rowwise_adagrad", {{"accumulator", false}}},
      {"rmsprop", {{"v", true}}},
      {"adam", {{"m", true}, {"v", true}}},
      {"adamw", {{"m", true}, {"v", true}}},
      {"lamb", {{"m", true}, {"v", true}}},
      {"partial_rowwise_adam", {{"m", true}, {"v", false}}},
      {"ftrl", {{"z", true}, {"n", true}}},
  };
  if (slots == 0) return {};
  for (const Known& known : kKnown) {
    if (known.optimizer != table.optimizer().name()) continue;
    std::vector<NamedSlot> named;
    uint32_t floats = 0;
    for (const auto& [name, per_weight] : known.slots) {
      named.push_back({name, per_weight ? table.width() : 1});
      floats += named.back().floats;
    }
    if (floats == slots) return named;
  }
  return {{"slots", slots}};
}

uint64_t UpdateClockOf(const CheckpointReader& reader) {
  const absl::StatusOr<Consistency> consistency = ParseConsistency(reader.manifest().job().config().consistency());
  const bool sync = consistency.ok() && consistency->sync();
  uint64_t clock = 0;
  for (size_t i = 0; i < reader.shards(); ++i) {
    const ShardRecord& shard = reader.shard(i);
    clock = std::max<uint64_t>(clock, sync ? shard.optimizer_clock() : shard.highest_clock());
  }
  return clock;
}

absl::Status WhileReading(const CheckpointReader& reader, absl::Status status) {
  if (status.ok() || PosixFileSystem().Exists(reader.folder() + "/" + kManifestFile).value_or(true)) return status;
  return NotFound(fmt::format("{} was removed while it was read; take another one ({})", reader.folder(),
                              std::string(status.message())));
}

absl::Status CheckOutsideCheckpoint(const std::string& out, const CheckpointReader& reader) {
  namespace fs = std::filesystem;
  std::error_code error;  // a path that cannot be looked at is reported when it is written
  const fs::path place = fs::weakly_canonical(fs::absolute(out, error), error);
  const fs::path folder = fs::weakly_canonical(reader.folder(), error);
  const auto holds_out = [&place](const fs::path& outer) {
    return std::mismatch(outer.begin(), outer.end(), place.begin(), place.end()).first == outer.end();
  };
  if (holds_out(folder)) {
    return InvalidArgument(
        fmt::format("--out={} is inside the checkpoint {}, which is never changed; give another place", out,
                    reader.folder()));
  }
  const fs::path root = folder.parent_path();
  if (!fs::exists(root / "capstan-root.pb", error) || !holds_out(root)) return absl::OkStatus();
  return InvalidArgument(
      fmt::format("--out={} is inside {}, where only the run itself changes anything; give another place", out,
                  root.string()));
}

// The folders above `out` that are not there yet, the outermost last.
std::vector<std::string> MissingAbove(const std::string& out) {
  std::vector<std::string> missing;
  for (std::string above = ParentFolder(out); above != "/" && above != "."; above = ParentFolder(above)) {
    if (PosixFileSystem().Exists(above).value_or(true)) break;
    missing.push_back(above);
  }
  return missing;
}

std::vector<float> InitialRow(const CheckpointManifest& manifest, const TableSpec& table, Key key) {
  const float scale = table.init() == TableSpec::UNIFORM ? table.scale() : 0.0f;
  const InitialValue initial(manifest.job().config().seed(), table.name(), scale);
  std::vector<float> row(table.width());
  const bool beyond = table.kind() == TableSpec::DENSE && key > table.elements() / table.width();
  for (uint32_t i = 0; i < table.width() && !beyond; ++i) {
    const uint64_t element = key * table.width() + i;
    if (table.kind() == TableSpec::SPARSE) row[i] = initial.At(key, i);
    if (table.kind() == TableSpec::DENSE && element < table.elements()) row[i] = initial.At(0, element);
  }
  return row;
}

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1000 && unit + 1 < std::size(kUnits); ++unit) amount /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string When(int64_t seconds) {
  if (seconds == 0) return "";
  return fmt::format("{:%F %T}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

int InspectFailure(const char* command, const absl::Status& status) {
  const std::string message(status.message());
  Print(stderr, "capstan-inspect {}: {}\n", command, message);
  return ToInt(absl::IsInvalidArgument(status) ? ExitCode::kUsage : ExitCode::kCheckpoint);
}

int InspectUnreadable(const char* command, const absl::Status& status) {
  InspectFailure(command, status);
  return ToInt(ExitCode::kCheckpoint);
}

int InspectUsage(const char* command, const std::string& what) {
  return InspectFailure(command, InvalidArgument(what));
}

int Say(const char* command, const std::string& text, int code) {
  if (Print("{}", text) && std::fflush(stdout) == 0) return code;
  return InspectFailure(command, Unavailable("stdout cannot be written"));
}

int SayJson(const char* command, const Json& json, int code) {
  return Say(command, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", code);
}

int InspectWithoutPath(const char* command) {
  return InspectUsage(command,
                      "CHECKPOINT is missing: a run's folder, its checkpoints folder, or one of the C000001 … in it");
}

}  // namespace capstan
