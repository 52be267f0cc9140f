// The shared memory between a shard's thread and its checkpoint writer: a ring of records with one producer and one
// consumer, neither of which waits for the other inside a call. Both are the same release on the same machine, so the
// layout is that of the structs below.
//
//   RingHead    one page: sizes, positions, the flags of both sides
//   data        capacity bytes; a record is a RingRecord and its payload, padded to 8 bytes, and may wrap anywhere
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "common/status.h"
#include "ps/snapshot_sink.h"

namespace capstan {

enum class RingKind : uint32_t { kOrder = 1, kChunk = 2, kRecord = 3 };

struct RingRecord {
  RingKind kind = RingKind::kOrder;
  uint32_t last = 1;       // of the pieces of an order or a shard's record; 1 with every chunk
  uint64_t snapshot = 0;   // counts the snapshots of this WriterProcess from 1
  uint64_t bytes = 0;      // of the payload
};
static_assert(sizeof(RingRecord) == 24 && std::is_trivially_copyable_v<RingRecord>);

// The beginning of a chunk's payload; then the rows, then the deleted keys.
struct RingChunk {
  uint32_t table = 0;
  uint32_t partition = 0;
  uint32_t floats = 0;
  uint32_t last = 0;
  uint64_t partition_rows = 0;
  uint64_t digest_low = 0;
  uint64_t digest_high = 0;
  uint64_t row_bytes = 0;
  uint64_t deleted_keys = 0;
};
static_assert(sizeof(RingChunk) == 56 && std::is_trivially_copyable_v<RingChunk>);

struct RingHead {
  uint64_t magic = 0;
  uint64_t capacity = 0;
  alignas(64) std::atomic<uint64_t> written;   // bytes since the start, by the producer
  alignas(64) std::atomic<uint64_t> read;      // by the consumer
  alignas(64) std::atomic<uint32_t> sleeping;  // 1: the consumer waits for a wake-up
  alignas(64) std::atomic<uint64_t> aborted;   // snapshots up to this one are given up
  alignas(64) std::atomic<uint32_t> pace;      // a SinkPace
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(RingHead) <= 4096 && offsetof(RingHead, aborted) == 256);

// One side's view of it. Which methods may be called is said at each.
class SnapshotRing {
 public:
  static constexpr size_t kDefaultBytes = size_t{8} << 20;
  static constexpr size_t kMinBytes = size_t{1} << 20;

  // Makes the memory. bytes: of the data, at least kMinBytes, rounded up to whole pages.
  static absl::StatusOr<std::unique_ptr<SnapshotRing>> Create(size_t bytes);
  // Maps what Create made in another process; takes the descriptor.
  static absl::StatusOr<std::unique_ptr<SnapshotRing>> Attach(int fd);
  ~SnapshotRing();
  SnapshotRing(const SnapshotRing&) = delete;
  SnapshotRing& operator=(const SnapshotRing&) = delete;

  int fd() const { return fd_; }
  size_t capacity() const { return capacity_; }

  // Producer: all of it or nothing (false: there is no room now). The payload is the pieces one after the other.
  bool TryWrite(const RingRecord& record, std::span<const std::span<const std::byte>> pieces);
  // Producer: true once after the consumer announced that it sleeps: wake it.
  bool TakeSleeper();
  void SetAborted(uint64_t snapshot);  // producer
  void SetPace(SinkPace pace) { head_->pace.store(static_cast<uint32_t>(pace), std::memory_order_relaxed); }  // producer

  SinkPace pace() const { return static_cast<SinkPace>(head_->pace.load(std::memory_order_relaxed)); }  // consumer
  uint64_t aborted() const { return head_->aborted.load(std::memory_order_acquire); }  // consumer

  // Consumer: the next record, or nothing. kInternal: the memory does not hold a ring any more.
  absl::StatusOr<std::optional<RingRecord>> Next();
  // Consumer: the next bytes of the record's payload; the caller does not read past its end.
  void Read(void* out, size_t bytes);
  // Consumer: leaves the rest of the record.
  void EndRecord();
  // Consumer: announces sleep. False: something came meanwhile, do not sleep. `seen_aborted`: the newest it knows of.
  bool PrepareToSleep(uint64_t seen_aborted);
  void WokeUp();

 private:
  SnapshotRing(int fd, std::byte* memory, size_t mapped);
  void CopyIn(uint64_t at, const void* from, size_t bytes);
  void CopyOut(uint64_t at, void* to, size_t bytes) const;

  const int fd_;
  std::byte* const memory_;
  const size_t mapped_;
  RingHead* head_ = nullptr;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t payload_at_ = 0;   // consumer, inside a record
  uint64_t record_end_ = 0;
};

}  // namespace capstan
