// What a run shows while it goes: a line that renews itself on a terminal, one JSON line per interval
// elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace capstan {

// The state of a run at one moment.
struct ProgressSample {
  double seconds = 0;           // since training began
  uint64_t examples = 0;        // trained on so far, over all epochs
  uint64_t total_examples = 0;  // rows × epochs; 0: not known
  double loss = 0;              // mean over the examples since the sample before
  uint64_t steps = 0;
  uint32_t epoch = 0;  // from 0
  uint32_t epochs = 0;
  uint32_t workers_alive = 0;
  uint32_t workers = 0;
};

// What can be said from two samples. Rates are in examples per second.
struct ProgressRates {
  double now = 0;                      // since the sample before
  double mean = 0;                     // since the start
  std::optional<double> percent;       // of all rows of all epochs
  std::optional<double> seconds_left;  // at the mean of `now` and `mean`
};
ProgressRates RatesBetween(const ProgressSample& before, const ProgressSample& sample);

// " 34.1%  45.2k/s (mean 44.8k/s)  loss 0.4231  1:12 left  2/2 workers  epoch 1/3  step 1234", at most
// `width` bytes.
std::string ProgressLine(const ProgressSample& sample, const ProgressRates& rates, size_t width);
// {"seconds":1.0,"examples":…}, one line without its end; the lines of metrics.jsonl have this form.
std::string ProgressJson(const ProgressSample& sample, const ProgressRates& rates);

// "1.2k", "45.2k", "3.10M": three digits.
std::string ShortCount(double count);
// "0:07", "1:12", "2:03:04".
std::string ShortTime(double seconds);

// Prints samples to a stream. Not thread-safe.
class ProgressView {
 public:
  // `out`: usually stdout; a terminal gets a line that renews itself.
  explicit ProgressView(std::FILE* out);
  // Ends the terminal's line.
  ~ProgressView();
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  // Prints the sample; returns its JSON line.
  std::string Show(const ProgressSample& sample);
  // Ends the terminal's line, so that something else can be printed.
  void EndLine();

 private:
  size_t Width() const;

  std::FILE* const out_;
  const bool terminal_;
  bool line_open_ = false;
  ProgressSample last_;
};

}  // namespace capstan
