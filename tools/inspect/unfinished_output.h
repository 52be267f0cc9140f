// What a command writes until it has its name: removed again when somebody interrupts the command (Ctrl-C, SIGTERM, a
// closed terminal), which then ends as the signal says.
#pragma once

#include <functional>
#include <memory>

namespace capstan {

// One at a time, made on the main thread before others start; signals are blocked in its lifetime.
class UnfinishedOutput {
 public:
  // `remove` runs on another thread, while the command may still write, and may be repeated.
  explicit UnfinishedOutput(std::function<void()> remove);
  ~UnfinishedOutput();
  UnfinishedOutput(const UnfinishedOutput&) = delete;
  UnfinishedOutput& operator=(const UnfinishedOutput&) = delete;

 private:
  class Watch;
  const std::unique_ptr<Watch> watch_;
};

}  // namespace capstan
