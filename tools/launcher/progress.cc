#include "tools/launcher/progress.h"
#include "tools/print.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace capstan {

ProgressRates RatesBetween(const ProgressSample& before, const ProgressSample& sample) {
  ProgressRates rates;
  const double since = sample.seconds - before.seconds;
  if (since > 0 && sample.examples >= before.examples) {
    rates.now = static_cast<double>(sample.examples - before.examples) / since;
  }
  if (sample.seconds > 0) rates.mean = static_cast<double>(sample.examples) / sample.seconds;
  if (sample.total_examples == 0) return rates;
  const double done =
      std::min(1.0, static_cast<double>(sample.examples) / static_cast<double>(sample.total_examples));
  rates.percent = 100 * done;
  const double rate = 0.5 * (rates.now + rates.mean);
  if (rate > 0) rates.seconds_left = (1 - done) * static_cast<double>(sample.total_examples) / rate;
  return rates;
}

std::string ShortCount(double count) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (count >= 999.5 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}", count);
  const int decimals = count < 9.995 ? 2 : count < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", count, decimals, kUnits[unit]);
}

std::string ShortTime(double seconds) {
  const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 3.6e6) + 0.5);
  const uint64_t hours = whole / 3600;
  const uint64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string ProgressLine(const ProgressSample& sample, const ProgressRates& rates, size_t width) {
  // In order of importance: a narrow terminal loses the last ones.
  std::vector<std::string> parts;
  parts.push_back(rates.percent ? fmt::format("{:5.1f}%", *rates.percent)
                                : fmt::format("{} rows", ShortCount(static_cast<double>(sample.examples))));
  parts.push_back(fmt::format("{}/s (mean {}/s)", ShortCount(rates.now), ShortCount(rates.mean)));
  parts.push_back(fmt::format("loss {:.4f}", sample.loss));
  if (rates.seconds_left) parts.push_back(ShortTime(*rates.seconds_left) + " left");
  parts.push_back(fmt::format("{}/{} workers", sample.workers_alive, sample.workers));
  if (sample.epochs > 1) {
    parts.push_back(fmt::format("epoch {}/{}", std::min(sample.epoch + 1, sample.epochs), sample.epochs));
  }
  parts.push_back(fmt::format("step {}", sample.steps));
  std::string line;
  for (const std::string& part : parts) {
    const size_t gap = line.empty() ? 0 : 2;
    if (!line.empty() && line.size() + gap + part.size() > width) break;
    line += std::string(gap, ' ') + part;
  }
  return line.substr(0, width);
}

std::string ProgressJson(const ProgressSample& sample, const ProgressRates& rates) {
  nlohmann::ordered_json json;
  json["seconds"] = sample.seconds;
  json["epoch"] = sample.epoch;
  json["steps"] = sample.steps;
  json["examples"] = sample.examples;
  json["total_examples"] = sample.total_examples;
  json["examples_per_second"] = rates.now;
  json["examples_per_second_mean"] = rates.mean;
  // JSON knows no infinity: a loss that is not finite becomes null.
  json["loss"] =
      std::isfinite(sample.loss) ? nlohmann::ordered_json(sample.loss) : nlohmann::ordered_json(nullptr);
  json["workers_alive"] = sample.workers_alive;
  if (rates.percent) json["percent"] = *rates.percent;
  if (rates.seconds_left) json["seconds_left"] = *rates.seconds_left;
  return json.dump();
}

ProgressView::ProgressView(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) == 1) {}
ProgressView::~ProgressView() { EndLine(); }

size_t ProgressView::Width() const {
  winsize size = {};
  if (ioctl(fileno(out_), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 79;
  return size.ws_col - 1u;  // a full last column makes some terminals wrap
}

std::string ProgressView::Show(const ProgressSample& sample) {
  const ProgressRates rates = RatesBetween(last_, sample);
  last_ = sample;
  std::string json = ProgressJson(sample, rates);
  if (terminal_) {
    Print(out_, "\r{}\x1b[K", ProgressLine(sample, rates, Width()));
    line_open_ = true;
  } else {
    Print(out_, "{}\n", json);
  }
  std::fflush(out_);
  return json;
}

void ProgressView::EndLine() {
  if (!line_open_) return;
  line_open_ = false;
  std::fputc('\n', out_);
  std::fflush(out_);
}

}  // namespace capstan
