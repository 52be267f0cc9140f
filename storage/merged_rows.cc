// Several layers as one run of rows: MergedRows of layer_files.h.
#include <algorithm>

#include <fmt/core.h>

#include "common/partition_map.h"
#include "storage/layer_files.h"

namespace capstan {

struct MergedRows::Input {
  explicit Input(const LayerFiles& layer) : cursor(layer) {}

  absl::Status Wrong(std::string_view what) const;
  absl::Status CheckPart() const;
  void StartAt(int part) {
    next_part = part;
    puts = deletes = 0;
    digest = {};
  }
  void NextPart() { StartAt(next_part + 1); }
  const LayerPartition& part() const { return cursor.layer().record().part(next_part); }

  LayerCursor cursor;
  bool at_row = false;  // its record is that of the row handed out last
  int next_part = 0;    // of the record: the partition being read, or the next one
  int end_part = 0;
  uint64_t puts = 0;
  uint64_t deletes = 0;
  ContentDigest digest;
  const std::string* last_path = nullptr;  // of the file that the last record was in
};

absl::Status MergedRows::Input::Wrong(std::string_view what) const {
  const StoredLayer& layer = cursor.layer().record();
  const std::string path = last_path != nullptr    ? *last_path
                           : layer.file_size() > 0 ? layer.file(0).name()
                                                   : "";
  return DataLoss(
      fmt::format("'{}' is damaged: {} (layer of checkpoint {}); use another checkpoint or restore the "
                  "file from a copy",
                  path, what, layer.checkpoint()));
}

// All of a partition was read: was it what the record says?
absl::Status MergedRows::Input::CheckPart() const {
  const LayerPartition& want = part();
  const ContentDigest wanted = {want.digest_low(), want.digest_high()};
  if (puts == want.puts() && deletes == want.deletes() && digest == wanted) return absl::OkStatus();
  if (puts == want.puts() && deletes == want.deletes()) {
    return Wrong(
        fmt::format("the rows of table {}, partition {} do not have the digest of the shard's record",
                    want.table(), want.partition()));
  }
  return Wrong(
      fmt::format("table {}, partition {} has {} rows and {} deletions, the shard's record says {} and {}",
                  want.table(), want.partition(), puts, deletes, want.puts(), want.deletes()));
}

MergedRows::MergedRows(const std::vector<const LayerFiles*>& layers, uint32_t partitions)
    : partitions_(partitions) {
  for (const LayerFiles* layer : layers) inputs_.emplace_back(*layer);
}
MergedRows::~MergedRows() = default;

absl::Status MergedRows::Seek(RowPlace begin, RowPlace end) {
  end_ = end;
  for (Input& input : inputs_) {
    const auto& parts = input.cursor.layer().record().part();
    const auto before = [](const LayerPartition& part, const RowPlace& place) {
      return PlaceOf(part) < place;
    };
    input.StartAt(
        static_cast<int>(std::lower_bound(parts.begin(), parts.end(), begin, before) - parts.begin()));
    input.end_part =
        static_cast<int>(std::lower_bound(parts.begin(), parts.end(), end, before) - parts.begin());
    input.at_row = false;
    CAPSTAN_RETURN_IF_ERROR(input.cursor.Seek({static_cast<TableId>(begin.first), begin.second, 0}));
  }
  return absl::OkStatus();
}

// Counts the record that an input is at, and checks it.
absl::Status MergedRows::Account(Input* input) const {
  const StoredKey& key = input->cursor.key();
  const std::string_view value = input->cursor.value();
  if (input->next_part < input->end_part && PlaceOf(key) > PlaceOf(input->part())) {
    CAPSTAN_RETURN_IF_ERROR(input->CheckPart());
    input->NextPart();
  }
  input->last_path = &input->cursor.path();
  if (input->next_part >= input->end_part || PlaceOf(key) != PlaceOf(input->part()) ||
      (partitions_ != 0 && PartitionOf(key.key, partitions_) != key.partition)) {
    return input->Wrong(fmt::format("a record of table {}, partition {}, key {} where there must be none",
                                    key.table, key.partition, key.key));
  }
  if (value.empty()) {
    ++input->deletes;
    return absl::OkStatus();
  }
  if (value.size() != StoredValueBytes(input->part().floats())) {
    return input->Wrong(fmt::format("the row of table {}, key {} has {} bytes, not {}", key.table, key.key,
                                    value.size(), StoredValueBytes(input->part().floats())));
  }
  ++input->puts;
  input->digest.AddRow(key.table, key.key, value.data(), value.size());
  return absl::OkStatus();
}

absl::StatusOr<bool> MergedRows::Next() {
  for (;;) {
    const Input* winner = nullptr;
    for (Input& input : inputs_) {
      if (input.at_row) CAPSTAN_RETURN_IF_ERROR(input.cursor.Next());
      input.at_row = false;
      if (!input.cursor.valid() || PlaceOf(input.cursor.key()) >= end_) continue;
      // Later layers are newer: they win over equal keys.
      if (winner == nullptr || input.cursor.key() <= winner->cursor.key()) winner = &input;
    }
    if (winner == nullptr) break;
    key_ = winner->cursor.key();
    value_ = winner->cursor.value();
    for (Input& input : inputs_) {
      input.at_row = input.cursor.valid() && input.cursor.key() == key_;
      if (input.at_row) CAPSTAN_RETURN_IF_ERROR(Account(&input));
    }
    if (!value_.empty()) return true;
  }
  for (Input& input : inputs_) {
    while (input.next_part < input.end_part) {
      CAPSTAN_RETURN_IF_ERROR(input.CheckPart());
      input.NextPart();
    }
  }
  return false;
}

}  // namespace capstan
