#include "ps/shard_cut.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"
#include "ps/shard_state.h"
#include "ps/snapshot_sweep.h"
#include "storage/checkpoint_root.h"

namespace capstan {
namespace {

constexpr uint64_t kLeastCopyBytes = uint64_t{64} << 20;

}  // namespace

ShardCut::ShardCut(std::string shard_name, SnapshotSink* sink, FileSystem& fs)
    : name_(std::move(shard_name)), sink_(sink), fs_(fs), order_(std::make_unique<Cut>()) {}

ShardCut::~ShardCut() = default;

bool ShardCut::busy() const { return sweep_ != nullptr && sweep_->state() != SnapshotSweep::State::kIdle; }

double ShardCut::copies_filled() const {
  if (stage_ != Stage::kWriting || sweep_->state() != SnapshotSweep::State::kSweeping) return 0;
  return static_cast<double>(sweep_->copy_bytes()) / static_cast<double>(std::max<uint64_t>(1, sweep_->copy_limit()));
}

double ShardCut::copies_unsent() const {
  if (stage_ != Stage::kWriting || sweep_->state() != SnapshotSweep::State::kSweeping) return 0;
  return static_cast<double>(sweep_->copy_bytes() - sweep_->free_copy_bytes()) /
         static_cast<double>(std::max<uint64_t>(1, sweep_->copy_limit()));
}

void ShardCut::SetPace(SinkPace pace) {
  if (sink_ != nullptr) sink_->SetPace(pace);
}

uint64_t ShardCut::handed_over() const { return sweep_ == nullptr ? 0 : sweep_->counts().bytes; }

void ShardCut::GiveUp(const std::string& why) {
  if (stage_ == Stage::kWriting) Fail(why);
}

bool ShardCut::TakeNews() { return std::exchange(news_, false); }

void ShardCut::Become(Stage stage) {
  stage_ = stage;
  news_ = true;
}

void ShardCut::OnOrder(const Cut& order, ShardState& state, uint64_t copy_bytes) {
  if (order.id() <= order_->id()) return;  // a repeat, or one that was replaced
  if (order_->id() != 0) OnAbort(order_->id());
  *order_ = order;
  copy_bytes_ = copy_bytes;
  error_.clear();
  Become(Stage::kWaiting);
  if (sink_ == nullptr) return Fail("this server was started without a checkpoint writer");
  if (order.has_token()) {
    const absl::Status seen = CheckRootToken(fs_, order.root(), order.token());
    if (!seen.ok()) return Fail(std::string(seen.message()));
  }
  Check(state);
}

void ShardCut::OnAbort(uint64_t id) {
  if (id < order_->id() || (id == order_->id() && stage_ == Stage::kWritten)) return;
  const bool overtook = id > order_->id();  // its order is still under way, and must not be taken when it comes
  Fail("it was given up");
  if (!overtook) return;
  order_->Clear();
  order_->set_id(id);
}

void ShardCut::OnVersion(ShardState& state) {
  if (stage_ == Stage::kWaiting) Check(state);
}

void ShardCut::Check(ShardState& state) {
  const Cut& order = *order_;
  if (order.now()) return Take(state);
  // The first moment that comes is meant: once one of two is past, the other one is no longer it.
  const bool step_is_past = order.has_step() && state.version() > order.step();
  const bool epoch_is_past = order.has_epoch() && (state.epoch() > order.epoch() ||
                                                   (state.epoch() == order.epoch() && state.version() > state.epoch_first()));
  const bool past = step_is_past || epoch_is_past;
  const bool step_is_now = order.has_step() && state.version() == order.step();
  const bool epoch_is_now =
      order.has_epoch() && state.epoch() == order.epoch() && state.version() == state.epoch_first();
  if ((step_is_now || epoch_is_now) && !past) return Take(state);
  if (!past && !state.job_done()) return;
  if (Planted(Bug::kCutNow)) return Take(state);
  Become(Stage::kTooLate);
}

void ShardCut::Take(ShardState& state) {
  if (sweep_ == nullptr) sweep_ = std::make_unique<SnapshotSweep>(state.mutable_tables().tables());
  if (busy()) {  // the rows of one that was given up are still being gone through
    if (!order_->now()) Become(Stage::kTooLate);
    return;
  }
  full_ = order_->parent() == 0 || order_->parent() != sweep_->base();
  ShardRecord record;
  state.Store(&record);
  cut_version_ = state.version();
  totals_.reset();
  if (record.has_totals()) totals_ = std::make_unique<Progress>(record.totals());
  SnapshotOrder order;
  order.id = order_->id();
  order.shard = state.settings().shard;
  order.folder = order_->folder();
  if (!full_) order.parent_folder = order_->parent_folder();
  order.model_sha256 = full_ && order_->model_sha256();
  const uint64_t copies = copy_bytes_ != 0 ? copy_bytes_ : std::max(kLeastCopyBytes, state.tables().bytes() / 10);
  const absl::Status begun = sweep_->Begin(std::move(order), record, full_, sink_, copies);
  if (!begun.ok()) return Fail(std::string(begun.message()));
  Become(Stage::kWriting);
}

void ShardCut::Fail(const std::string& error) {
  if (stage_ == Stage::kWriting) sweep_->Abandon();
  error_ = fmt::format("{}: {}", name_, error);
  Become(Stage::kFailed);
}

bool ShardCut::Work(ShardState& state) {
  if (sweep_ == nullptr) return false;
  const bool moved = sweep_->Step();
  if (stage_ == Stage::kWaiting && order_->now() && !busy()) Take(state);
  std::optional<SnapshotResult> result = sweep_->TakeResult();
  if (!result.has_value() || stage_ != Stage::kWriting || result->id != order_->id()) return moved;
  if (!result->status.ok()) {
    error_ = fmt::format("{}: {}", name_, std::string(result->status.message()));
    Become(Stage::kFailed);
    return moved;
  }
  result_ = *std::move(result);
  Become(Stage::kWritten);
  return moved;
}

CutState ShardCut::Report() const {
  CutState report;
  report.set_id(order_->id());
  switch (stage_) {
    case Stage::kNone:
    case Stage::kWaiting: report.set_state(CutState::WAITING); break;
    case Stage::kWriting: report.set_state(CutState::WRITING); break;
    case Stage::kWritten: report.set_state(CutState::WRITTEN); break;
    case Stage::kTooLate: report.set_state(CutState::TOO_LATE); break;
    case Stage::kFailed: report.set_state(CutState::FAILED); break;
  }
  if (stage_ == Stage::kWriting || stage_ == Stage::kWritten) report.set_cut_version(cut_version_);
  if (stage_ == Stage::kWriting) report.set_bytes(handed_over());
  if (stage_ == Stage::kFailed) report.set_error(error_);
  if (stage_ == Stage::kWritten) {
    report.set_record_bytes(result_.record_bytes);
    report.set_record_xxh3(result_.record_xxh3);
    report.set_full(full_);
    if (totals_ != nullptr) *report.mutable_progress() = *totals_;
  }
  return report;
}

}  // namespace capstan
