// What all tests with real processes share: a folder, small data, jobs, the programs, their results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/integration/process_group.h"

namespace capstan::testing {

inline constexpr Seconds kTrainLimit{60};  // no job here takes that long, whatever else the machine does

std::string Program(const std::string& name);  // the path of one of our binaries
bool LongTests();                              // tools/test.sh --long
// The folder of the public data sets, or empty where this machine has none.
std::string DataFolder();
void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);  // "" if there is none

// The hash in a result.json, or "none" where the run did not get so far.
std::string ShaOf(const nlohmann::json& result);

// How a command ended and what it said.
struct Finished {
  int code = -1;
  std::string out, err;
};

class IntegrationTest : public ::testing::Test {
 protected:
  IntegrationTest();
  ~IntegrationTest() override;  // removes the folder
  void TearDown() override;     // fails if a process is left

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // A table of two numbers, two categories and a label that a model can learn (AUC about 0.84). Rows are a
  // function of (seed, number). Returns the path.
  std::string WriteRows(const std::string& name, size_t rows, uint64_t seed = 1);
  // A libsvm file for the census, which only counts the rows.
  std::string WriteSparseRows(const std::string& name, size_t rows);
  // Wide&Deep over WriteRows' columns; `more` is appended. Returns the job's path.
  std::string WriteJob(const std::string& name, const std::string& train, const std::string& more = "");
  std::string WriteCensusJob(const std::string& name, const std::vector<std::string>& train,
                             const std::string& more = "");

  // Runs a program to its end; a failure of the test if that takes longer than `limit`.
  Finished Run(const std::string& program, const std::vector<std::string>& arguments,
               Seconds limit = kTrainLimit);
  Finished Capstan(const std::vector<std::string>& arguments) { return Run("capstan", arguments); }
  // `capstan train` that must succeed; returns result.json.
  nlohmann::json Train(const std::string& job, const std::vector<std::string>& flags);
  nlohmann::json ResultOf(const std::string& output) const;  // empty if there is none
  std::string NewOutput();                                   // a folder name not used yet

  // Waits until the process has ended with that code. Fails the test otherwise.
  void ExpectEnd(const std::string& process, int code, Seconds limit);
  // Waits until a line of the file holds the text.
  bool AwaitText(const std::string& path, const std::string& text, Seconds limit = Seconds(30));
  // Waits until the job in that output folder has written its first figures.
  bool AwaitTraining(const std::string& output) { return AwaitText(output + "/metrics.jsonl", "\"steps\""); }

  const std::string folder_;
  ProcessGroup processes_;

 private:
  int runs_ = 0, outputs_ = 0;
};

// A cluster started by hand: what a person types on several machines.
class HandCluster {
 public:
  HandCluster(ProcessGroup& processes, const std::string& prefix, std::string job, std::string output,
              uint32_t servers, uint32_t workers);
  void StartScheduler(const std::vector<std::string>& flags = {});
  void StartServer(uint32_t number, const std::vector<std::string>& flags = {});
  void StartWorker(uint32_t number, const std::vector<std::string>& flags = {});
  void StartAll(const std::vector<std::string>& scheduler_flags = {});

  std::string scheduler() const { return prefix_ + "scheduler"; }  // the names of the processes
  std::string server(uint32_t number) const { return prefix_ + "server-" + std::to_string(number); }
  std::string worker(uint32_t number) const { return prefix_ + "worker-" + std::to_string(number); }
  std::vector<std::string> nodes() const;  // without the scheduler
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  const std::string& output() const { return output_; }

 private:
  ProcessGroup& processes_;
  const std::string prefix_, job_, output_;
  const uint32_t servers_, workers_;
  const uint16_t port_;
};

}  // namespace capstan::testing
