// Work on the disk beside which a thread can go on answering: a busy disk takes seconds for a sync, and a scheduler that
// is silent for so long is given up by everybody.
#pragma once

#include <functional>

namespace capstan {

class DiskWait {
 public:
  // meanwhile: called on the calling thread every few milliseconds while work goes on; short; must not call Run. Empty:
  // work runs on the calling thread.
  explicit DiskWait(std::function<void()> meanwhile) : meanwhile_(std::move(meanwhile)) {}

  // Runs work on a thread of its own and returns once it is done. What it uses must not be touched by `meanwhile`.
  void Run(const std::function<void()>& work);

 private:
  const std::function<void()> meanwhile_;
};

}  // namespace capstan
