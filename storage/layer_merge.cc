#include "storage/layer_merge.h"

#include <memory>
#include <span>

#include "storage/layer_files.h"

namespace capstan {
namespace {

constexpr uint64_t kRowsBetweenLooks = 1024;  // at *cancel
constexpr RowPlace kBeginOfAll = {0, 0};
constexpr RowPlace kEndOfAll = {65536, 0};

void CountRow(const StoredKey& key, std::vector<PartitionRows>* rows) {
  if (rows->empty() || PlaceOf(rows->back()) != PlaceOf(key)) {
    PartitionRows& next = rows->emplace_back();
    next.set_table(key.table);
    next.set_partition(key.partition);
  }
  rows->back().set_rows(rows->back().rows() + 1);
}

}  // namespace

absl::StatusOr<StoredLayer> MergeLayers(std::span<const StoredLayer* const> layers,
                                        const std::string& source_folder, const LayerWriterOptions& options,
                                        const std::atomic<bool>* cancel, std::vector<PartitionRows>* rows) {
  std::vector<std::unique_ptr<LayerFiles>> files;
  std::vector<const LayerFiles*> inputs;
  for (const StoredLayer* layer : layers) {
    files.push_back(std::make_unique<LayerFiles>(*layer, source_folder));
    inputs.push_back(files.back().get());
  }
  if (rows != nullptr) rows->clear();
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<LayerWriter> writer, LayerWriter::Create(options));
  MergedRows merged(inputs, /*partitions=*/0);
  CAPSTAN_RETURN_IF_ERROR(merged.Seek(kBeginOfAll, kEndOfAll));
  for (;;) {
    if (cancel != nullptr && writer->rows() % kRowsBetweenLooks == 0 &&
        cancel->load(std::memory_order_relaxed))
      return absl::CancelledError("merging layers was cancelled");
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, merged.Next());
    if (!more) break;
    const std::string_view value = merged.value();
    CAPSTAN_RETURN_IF_ERROR(writer->Put(merged.key(), std::as_bytes(std::span(value.data(), value.size()))));
    if (rows != nullptr) CountRow(merged.key(), rows);
  }
  return writer->Finish();
}

}  // namespace capstan
