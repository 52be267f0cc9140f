// An interrupted command of capstan-inspect leaves nothing half written behind.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/checkpoint_builder.h"
#include "tools/inspect/unfinished_output.h"

namespace capstan {
namespace {

// Writes a file and is interrupted before it is done.
void Interrupted(const std::string& path, int signal) {
  const UnfinishedOutput unfinished([path] { std::filesystem::remove(path); });
  std::ofstream(path) << "half";
  kill(getpid(), signal);
  for (;;) pause();
}

TEST(UnfinishedOutputDeathTest, IsRemovedAndTheProcessEndsAsTheSignalSays) {
  const testing::TemporaryFolder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string path = folder / "out.tmp";
    EXPECT_EXIT(Interrupted(path, signal), ::testing::KilledBySignal(signal), "");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(UnfinishedOutputDeathTest, AnIgnoredSignalStaysIgnored) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "out.tmp";
  EXPECT_EXIT({
    signal(SIGHUP, SIG_IGN);
    {
      const UnfinishedOutput unfinished([path] { std::filesystem::remove(path); });
      std::ofstream(path) << "half";
      kill(getpid(), SIGHUP);
    }
    _exit(std::filesystem::exists(path) ? 7 : 8);
  }, ::testing::ExitedWithCode(7), "");
}

TEST(UnfinishedOutput, StaysWhenNobodyInterrupts) {
  int removals = 0;
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  { const UnfinishedOutput unfinished([&removals] { ++removals; }); }
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(removals, 0);
  EXPECT_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
}

}  // namespace
}  // namespace capstan
