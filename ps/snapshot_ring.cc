#include "ps/snapshot_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr uint64_t kRingMagic = 0x31474E4952504143;  // "CAPRING1"
constexpr size_t kRingHeadBytes = 4096;

constexpr uint64_t PaddedRecord(uint64_t payload) { return sizeof(RingRecord) + ((payload + 7) & ~uint64_t{7}); }

absl::Status RingError(std::string_view doing, int error) {
  return Unavailable(fmt::format("shared memory for the checkpoint writer: {}: {}", doing, std::strerror(error)));
}

}  // namespace

SnapshotRing::SnapshotRing(int fd, std::byte* memory, size_t mapped)
    : fd_(fd), memory_(memory), mapped_(mapped), data_(memory + kRingHeadBytes), capacity_(mapped - kRingHeadBytes) {}

SnapshotRing::~SnapshotRing() {
  munmap(memory_, mapped_);
  close(fd_);
}

absl::StatusOr<std::unique_ptr<SnapshotRing>> SnapshotRing::Create(size_t bytes) {
  if (bytes < kMinBytes) {
    return InvalidArgument(fmt::format("a ring of {} bytes for the checkpoint writer; at least {} are needed", bytes,
                                       kMinBytes));
  }
  const size_t mapped = kRingHeadBytes + (bytes + 4095) / 4096 * 4096;
  const int fd = memfd_create("capstan-snapshot-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return RingError("making it", errno);
  // Sealed, so that no side can shrink it under the other (SIGBUS).
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(mapped)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return RingError(fmt::format("mapping {} bytes", mapped), error);
  }
  std::unique_ptr<SnapshotRing> ring(new SnapshotRing(fd, static_cast<std::byte*>(memory), mapped));
  ring->head_ = new (memory) RingHead{};
  ring->head_->capacity = ring->capacity_;
  ring->head_->magic = kRingMagic;
  return ring;
}

absl::StatusOr<std::unique_ptr<SnapshotRing>> SnapshotRing::Attach(int fd) {
  struct stat about = {};
  void* memory = MAP_FAILED;
  if (fstat(fd, &about) == 0 && about.st_size > static_cast<off_t>(kRingHeadBytes)) {
    memory = mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    close(fd);
    return InvalidArgument(fmt::format("descriptor {} is no shared memory of a server", fd));
  }
  std::unique_ptr<SnapshotRing> ring(
      new SnapshotRing(fd, static_cast<std::byte*>(memory), static_cast<size_t>(about.st_size)));
  ring->head_ = std::launder(reinterpret_cast<RingHead*>(memory));
  if (ring->head_->magic != kRingMagic || ring->head_->capacity != ring->capacity_) {
    return InvalidArgument(fmt::format("descriptor {} holds no ring of this release", fd));
  }
  return ring;
}

void SnapshotRing::CopyIn(uint64_t at, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const size_t place = at % capacity_;
  const size_t first = std::min(bytes, capacity_ - place);
  std::memcpy(data_ + place, from, first);
  if (bytes > first) std::memcpy(data_, static_cast<const std::byte*>(from) + first, bytes - first);
}

void SnapshotRing::CopyOut(uint64_t at, void* to, size_t bytes) const {
  if (bytes == 0) return;
  const size_t place = at % capacity_;
  const size_t first = std::min(bytes, capacity_ - place);
  std::memcpy(to, data_ + place, first);
  if (bytes > first) std::memcpy(static_cast<std::byte*>(to) + first, data_, bytes - first);
}

bool SnapshotRing::TryWrite(const RingRecord& record, std::span<const std::span<const std::byte>> pieces) {
  RingRecord head = record;
  head.bytes = 0;
  for (const std::span<const std::byte> piece : pieces) head.bytes += piece.size();
  const uint64_t written = head_->written.load(std::memory_order_relaxed);
  const uint64_t used = written - head_->read.load(std::memory_order_acquire);
  if (PaddedRecord(head.bytes) > capacity_ - used) return false;
  uint64_t at = written;
  CopyIn(at, &head, sizeof(head));
  at += sizeof(head);
  for (const std::span<const std::byte> piece : pieces) {
    CopyIn(at, piece.data(), piece.size());
    at += piece.size();
  }
  // In one order with `sleeping`: either the consumer sees the record before it sleeps, or we see that it sleeps.
  head_->written.store(written + PaddedRecord(head.bytes), std::memory_order_seq_cst);
  return true;
}

bool SnapshotRing::TakeSleeper() {
  return head_->sleeping.load(std::memory_order_seq_cst) != 0 &&
         head_->sleeping.exchange(0, std::memory_order_seq_cst) != 0;
}

void SnapshotRing::SetAborted(uint64_t snapshot) { head_->aborted.store(snapshot, std::memory_order_seq_cst); }

absl::StatusOr<std::optional<RingRecord>> SnapshotRing::Next() {
  const uint64_t read = head_->read.load(std::memory_order_relaxed);
  const uint64_t filled = head_->written.load(std::memory_order_acquire) - read;
  if (filled == 0) return std::optional<RingRecord>();
  RingRecord record;
  if (filled >= sizeof(record) && filled <= capacity_) CopyOut(read, &record, sizeof(record));
  if (record.bytes > capacity_ || PaddedRecord(record.bytes) > filled || filled > capacity_) {
    return Internal(fmt::format("the ring holds {} bytes that are no record", filled));
  }
  payload_at_ = read + sizeof(record);
  record_end_ = read + PaddedRecord(record.bytes);
  return std::optional<RingRecord>(record);
}

void SnapshotRing::Read(void* out, size_t bytes) {
  CopyOut(payload_at_, out, bytes);
  payload_at_ += bytes;
}

void SnapshotRing::EndRecord() { head_->read.store(record_end_, std::memory_order_release); }

bool SnapshotRing::PrepareToSleep(uint64_t seen_aborted) {
  head_->sleeping.store(1, std::memory_order_seq_cst);
  const bool idle = head_->written.load(std::memory_order_seq_cst) == head_->read.load(std::memory_order_relaxed) &&
                    head_->aborted.load(std::memory_order_seq_cst) == seen_aborted;
  if (!idle) WokeUp();
  return idle;
}

void SnapshotRing::WokeUp() { head_->sleeping.store(0, std::memory_order_seq_cst); }

}  // namespace capstan
