// What the sub-commands share: a checkpoint opened, its tables chosen, errors and results said.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/exit_code.h"
#include "common/initial_value.h"
#include "storage/checkpoint_reader.h"
#include "tools/inspect/inspect.h"

namespace capstan {

using Json = nlohmann::ordered_json;

inline constexpr int kInspectDifferent = 1;

// A run, its checkpoints folder (the newest good one is taken, others are named on stderr) or one checkpoint.
// skipped, if not null: receives the others' lines too.
absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenForInspection(const std::string& path,
                                                                    std::vector<std::string>* skipped = nullptr);

// The tables that the regular expression names, by id. kInvalidArgument: it is none, or matches nothing.
absl::StatusOr<std::vector<const TableSpec*>> ChooseTables(const CheckpointReader& reader, const std::string& pattern);
const TableSpec* FindTable(const CheckpointReader& reader, const std::string& name);
std::string TableNames(const CheckpointReader& reader);

// "accumulator", "m", "v" … in the order of the row's floats after its weights; all of them "slots" where it is not known.
struct NamedSlot {
  std::string name;
  uint32_t floats;  // one per weight, or one for the row
};
std::vector<NamedSlot> SlotNames(const TableSpec& table, uint32_t slots);
// What `last_step` of rows counts: the newest value. Sync: steps that had examples; ssp and async: of the rank that is
// furthest. Not the checkpoint's step, which counts the batches of all ranks and the closing steps of epochs too.
uint64_t UpdateClockOf(const CheckpointReader& reader);
// Of a read that failed: kNotFound if that is because the checkpoint is no longer there; else the status.
absl::Status WhileReading(const CheckpointReader& reader, absl::Status status);
// kInvalidArgument: `out` lies inside the checkpoint, or inside the folder of a run's checkpoints, which only the run
// changes.
absl::Status CheckOutsideCheckpoint(const std::string& out, const CheckpointReader& reader);
// Folders above `out` that are not there yet, innermost first: a command makes them, and takes them away if it fails.
std::vector<std::string> MissingAbove(const std::string& out);
// What a row is before its first update.
std::vector<float> InitialRow(const CheckpointManifest& manifest, const TableSpec& table, Key key);

std::string Bytes(uint64_t bytes);  // "12.3 MB"
std::string When(int64_t seconds);  // "2030-01-31 12:00:00", UTC; "" for 0

// Says what is wrong and gives the code: usage for kInvalidArgument, else unreadable.
int InspectFailure(const char* command, const absl::Status& status);
// The same with the code for unreadable whatever the status is: a newer format is kInvalidArgument, but no usage error.
int InspectUnreadable(const char* command, const absl::Status& status);
int InspectUsage(const char* command, const std::string& what);
// Prints to stdout; a stream that cannot be written is a failure.
int Say(const char* command, const std::string& text, int code = ToInt(ExitCode::kDone));
// One line of JSON.
int SayJson(const char* command, const Json& json, int code = ToInt(ExitCode::kDone));

}  // namespace capstan
