// Runs that are killed and go on.
#pragma once

#include <signal.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {

class Resume : public IntegrationTest {
 protected:
  // Trains in a new folder; once that many checkpoints are there (or after `patience`), every process is killed.
  // Returns the folder. The run may also have ended by itself.
  std::string TrainAndKill(const std::string& job, const std::vector<std::string>& flags, size_t checkpoints,
                           int signal = SIGKILL) {
    const std::string output = NewOutput();
    const std::string name = fmt::format("killed-{}", ++killed_);
    std::vector<std::string> argv = {Program("capstan"), "train", job, "--output=" + output};
    argv.insert(argv.end(), flags.begin(), flags.end());
    processes_.Start(name, argv);
    EXPECT_TRUE(Eventually(Seconds(40), [&] {
      return Checkpoints(output).size() >= checkpoints || !processes_.Running(name);
    })) << "no checkpoints in " << output;
    // The launcher's death is enough: the kernel ends its children.
    if (processes_.Running(name)) processes_.Signal(name, signal);
    EXPECT_TRUE(processes_.Wait(name, Seconds(20)).has_value());
    EXPECT_THAT(processes_.Leftovers(Seconds(15)), ::testing::IsEmpty());
    return output;
  }

  static std::set<std::string> Checkpoints(const std::string& output) {
    std::set<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(output + "/checkpoints", none)) {
      const std::string name = entry.path().filename().string();
      if (name.size() == 7 && name[0] == 'C') names.insert(name);
    }
    return names;
  }

  nlohmann::json GoOn(const std::string& output, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"train", "--output=" + output, "--resume"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Finished run = Capstan(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.err, ::testing::AnyOf(::testing::HasSubstr("goes on from"),
                                          ::testing::HasSubstr("is trained already")));
    resumed_ += run.err.find("goes on from") != std::string::npos ? 1 : 0;
    return ResultOf(output);
  }
  size_t resumed() const { return resumed_; }  // of the GoOns: the others found a run that had ended by itself

 private:
  int killed_ = 0;
  size_t resumed_ = 0;
};

}  // namespace capstan::testing
