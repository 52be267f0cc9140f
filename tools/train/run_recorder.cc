#include "tools/train/run_recorder.h"

#include <utility>

#include <fmt/core.h>

namespace capstan {

RunRecorder::RunRecorder(Settings settings, RunFolder& folder, ProgressView* view,
                         std::function<void(const std::string& line)> log)
    : settings_(settings), folder_(folder), view_(view), log_(std::move(log)) {
  last_sample_.examples = settings_.done_examples;
  recorded_.examples = settings_.done_examples;
}

void RunRecorder::OnPhase(const std::string& what) {
  if (view_ != nullptr) view_->EndLine();
  log_(what);
}

void RunRecorder::OnTraining() {
  training_ = true;
  began_ = clock_.Now();
  next_ = began_ + settings_.interval;
}

void RunRecorder::OnProgress(const ProgressReport& report) {
  newest_ = report;
  unrecorded_ = true;
  const Time now = clock_.Now();
  if (!training_ || now < next_) return;
  next_ = now + settings_.interval;
  Record(report, now);
}

void RunRecorder::OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) {
  if (view_ != nullptr) view_->EndLine();
  log_(fmt::format("checkpoint {} ({}): step {}, {} examples, {}, {:.1f} MB", entry.folder, reason, entry.version,
                   entry.examples, entry.full ? "full" : "incremental", static_cast<double>(entry.bytes) / 1e6));
}

void RunRecorder::Record(const ProgressReport& report, Time now) {
  ProgressSample sample;
  sample.seconds = std::chrono::duration<double>(now - began_).count();
  sample.examples = report.examples;
  sample.total_examples = settings_.total_examples;
  const double weight = report.weight_sum - recorded_.weight_sum;
  sample.loss = weight > 0 ? (report.loss_sum - recorded_.loss_sum) / weight : last_sample_.loss;
  sample.steps = report.steps;
  sample.epoch = report.epoch;
  sample.epochs = settings_.epochs;
  sample.workers_alive = report.workers_alive;
  sample.workers = settings_.workers;
  const absl::Status written = folder_.AppendMetrics(
      view_ != nullptr ? view_->Show(sample) : ProgressJson(sample, RatesBetween(last_sample_, sample)));
  if (status_.ok()) status_ = written;
  recorded_ = report;
  last_sample_ = sample;
  unrecorded_ = false;
}

absl::Status RunRecorder::Finish() {
  if (training_ && unrecorded_ && newest_.examples > recorded_.examples) Record(newest_, clock_.Now());
  if (view_ != nullptr) view_->EndLine();
  return status_;
}

}  // namespace capstan
