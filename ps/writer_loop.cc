#include "ps/writer_loop.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/scheduling.h"
#include "proto/checkpoint.pb.h"
#include "ps/writer_channel.h"

namespace capstan {
namespace {

constexpr int kLowNice = 10;
constexpr std::chrono::microseconds kTurn{100};

}  // namespace

int WriterLoop::Run() {
  std::thread idle([this] { RunAt(SinkPace::kIdle); });
  std::thread low([this] { RunAt(SinkPace::kLow); });
  RunAt(SinkPace::kNormal);
  idle.join();
  low.join();
  return *code_;
}

void WriterLoop::RunAt(SinkPace pace) {
  if (pace == SinkPace::kIdle && !RunOnlyWhenIdle()) PLOG(WARNING) << "SCHED_IDLE";
  if (pace == SinkPace::kLow && setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowNice) != 0) {
    PLOG(WARNING) << "nice";
  }
  if (pace != SinkPace::kIdle) AskForShortTurns(kTurn);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return code_.has_value() || turn_ == pace; });
    if (code_.has_value()) return;
    lock.unlock();
    const std::optional<int> code = TakeRecords(pace);
    lock.lock();
    code_ = code;
    turn_ = WantedPace();
    changed_.notify_all();
  }
}

std::optional<int> WriterLoop::TakeRecords(SinkPace pace) {
  bool broken = false;
  while (!stop_ && !broken) {
    if (WantedPace() != pace) return std::nullopt;
    broken = !TakeRecord();
  }
  writer_.Drop();
  writer_.CancelCompaction();
  return broken ? 1 : 0;
}

// Between snapshots the one sleeps that the kernel lets notice the next order soon.
SinkPace WriterLoop::WantedPace() const {
  return open_ ? std::min(ring_->pace(), SinkPace::kNormal) : SinkPace::kNormal;
}

bool WriterLoop::TakeRecord() {
  LookForAbort();
  const absl::StatusOr<std::optional<RingRecord>> record = ring_->Next();
  if (!record.ok()) {
    LOG(ERROR) << "the checkpoint writer ends: " << record.status();
    return false;
  }
  if (!record->has_value()) {
    Sleep();
    return true;
  }
  if (absl::Status status = Handle(**record); !status.ok()) {
    writer_.Drop();
    writer_.CancelCompaction();
    Answer(status);
  }
  ring_->EndRecord();
  return true;
}

void WriterLoop::LookForAbort() {
  const uint64_t aborted = ring_->aborted();
  if (aborted == seen_aborted_) return;
  seen_aborted_ = aborted;
  if (!open_ || snapshot_ > aborted) return;
  open_ = false;
  writer_.Drop();
}

void WriterLoop::Sleep() {
  if (!ring_->PrepareToSleep(seen_aborted_)) return;
  struct pollfd wait = {channel_, POLLIN, 0};
  poll(&wait, 1, -1);
  std::array<char, 64> wakes;
  for (;;) {
    const ssize_t got = recv(channel_, wakes.data(), wakes.size(), MSG_DONTWAIT);
    if (got > 0) continue;
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) stop_ = true;  // the server is gone
    break;
  }
  ring_->WokeUp();
}

absl::Status WriterLoop::Handle(const RingRecord& record) {
  if (record.snapshot <= ring_->aborted()) return absl::OkStatus();
  if (record.snapshot != snapshot_) {
    if (open_) writer_.Drop();
    snapshot_ = record.snapshot;
    open_ = true;
    text_.clear();
  }
  if (!open_) return absl::OkStatus();  // it failed: what was under way to us is of no use
  switch (record.kind) {
    case RingKind::kOrder: return TakePiece(record) ? HandleOrder() : absl::OkStatus();
    case RingKind::kChunk: return HandleChunk(record);
    case RingKind::kRecord: return TakePiece(record) ? HandleRecord() : absl::OkStatus();
  }
  return Internal("a record of an unknown kind in the ring");
}

// True: text_ is whole.
bool WriterLoop::TakePiece(const RingRecord& record) {
  const size_t at = text_.size();
  text_.resize(at + record.bytes);
  ring_->Read(text_.data() + at, record.bytes);
  return record.last != 0;
}

absl::Status WriterLoop::HandleOrder() {
  WriterOrder proto;
  if (!proto.ParseFromString(std::exchange(text_, {}))) return Internal("an order that cannot be read in the ring");
  SnapshotOrder order;
  order.id = proto.id();
  order.shard = proto.shard();
  order.folder = proto.folder();
  order.parent_folder = proto.parent_folder();
  order.model_sha256 = proto.model_sha256();
  order.expected_bytes = proto.expected_bytes();
  for (const WriterOrder::Table& table : proto.table()) {
    order.tables.push_back({static_cast<TableId>(table.id()), table.floats()});
  }
  return writer_.Begin(order);
}

absl::Status WriterLoop::HandleChunk(const RingRecord& record) {
  RingChunk chunk;
  if (record.bytes >= sizeof(chunk)) ring_->Read(&chunk, sizeof(chunk));
  if (sizeof(chunk) + chunk.row_bytes + chunk.deleted_keys * sizeof(Key) != record.bytes) {
    return Internal("a chunk that is not whole in the ring");
  }
  return writer_.Add(chunk, [this](void* out, size_t bytes) { ring_->Read(out, bytes); });
}

absl::Status WriterLoop::HandleRecord() {
  ShardRecord record;
  if (!record.ParseFromString(std::exchange(text_, {}))) return Internal("a record that cannot be read in the ring");
  CAPSTAN_ASSIGN_OR_RETURN(const SnapshotResult result, writer_.Finish(std::move(record)));
  Answer(result);
  return absl::OkStatus();
}

void WriterLoop::Answer(const absl::StatusOr<SnapshotResult>& result) {
  open_ = false;
  WriterAnswer answer;
  answer.set_snapshot(snapshot_);
  answer.set_code(static_cast<uint32_t>(result.status().code()));
  answer.set_message(std::string(result.status().message()).substr(0, kMaxAnswerText));
  if (result.ok()) {
    answer.set_record_bytes(result->record_bytes);
    answer.set_record_xxh3(result->record_xxh3);
  }
  const std::string bytes = answer.SerializeAsString();
  if (send(channel_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) stop_ = true;
}

}  // namespace capstan
