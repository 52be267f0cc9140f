// Time comes in through this door only, so that a test can move it (the simulator never sleeps).
#pragma once

#include "common/types.h"

namespace capstan {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
};

// The machine's steady clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  Time Now() const override {
    return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  }
};

// Stands still until told. Not thread-safe.
class ManualClock final : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }
  void Set(Time to) { now_ = to; }

 private:
  Time now_{std::chrono::seconds(1)};
};

}  // namespace capstan
