// Every row of the data is trained exactly once per epoch: the census model counts them in its table.
#include <fmt/core.h>

#include "proto/control.pb.h"
#include "proto/checkpoint.pb.h"
#include "storage/saved_model.h"
#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

struct CensusCase {
  const char* consistency;
  uint32_t servers;  // 0: in one process
  uint32_t workers;
};

class CensusTest : public IntegrationTest {
 protected:
  // The rows counted, and that each counter reads `epochs`.
  void ExpectCounted(const std::string& output, uint64_t rows, uint32_t epochs) {
    const auto model = SavedModel::Load(PosixFileSystem(), ResultOf(output).value("checkpoint", ""));
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ((*model)->manifest().job().table_size(), 1);
    float least = 1e9f, most = -1e9f;
    (*model)->ForEach(0, [&](Key, std::span<const float> row) {
      least = std::min(least, row[0]);
      most = std::max(most, row[0]);
    });
    EXPECT_EQ((*model)->rows(0), rows);
    EXPECT_EQ(least, static_cast<float>(epochs));
    EXPECT_EQ(most, static_cast<float>(epochs));
  }
  void TrainAndExpectCounted(const std::string& job, const CensusCase& c, uint64_t rows, uint32_t epochs) {
    SCOPED_TRACE(fmt::format("{} with {} servers and {} workers", c.consistency, c.servers, c.workers));
    std::vector<std::string> flags = {fmt::format("--epochs={}", epochs),
                                      fmt::format("--workers={}", c.workers),
                                      fmt::format("--consistency={}", c.consistency)};
    if (c.servers > 0) flags.push_back(fmt::format("--servers={}", c.servers));
    const nlohmann::json result = Train(job, flags);
    EXPECT_EQ(result.value("examples", uint64_t{0}), rows * epochs);
    ExpectCounted(result.value("output", ""), rows, epochs);
  }
};

TEST_F(CensusTest, ExactInEveryModeOnUnevenFiles) {
  const std::string job = WriteCensusJob(
      "job", {WriteSparseRows("large", 12347), WriteSparseRows("one", 1), WriteSparseRows("small", 151)},
      "batch { micro: 32 } lease_batches: 5");
  for (const char* consistency : {"sync", "ssp:2", "async"}) {
    for (const uint32_t workers : {1u, 2u, 4u}) {
      TrainAndExpectCounted(job, {consistency, workers == 2 ? 2u : 1u, workers}, 12499, 3);
    }
    TrainAndExpectCounted(job, {consistency, 0, 3}, 12499, 3);
  }
}

TEST_F(CensusTest, ExactWithRanksThatHaveNoData) {
  const std::string job =
      WriteCensusJob("job", {WriteSparseRows("rows", 41)}, "ranks: 64 batch { micro: 16 }");
  for (const char* consistency : {"sync", "ssp:2", "async"})
    TrainAndExpectCounted(job, {consistency, 1, 3}, 41, 2);
}

TEST_F(CensusTest, ExactOnOneRow) {
  const std::string job = WriteCensusJob("job", {WriteSparseRows("rows", 1)}, "batch { global: 1024 }");
  for (const char* consistency : {"sync", "ssp:1", "async"})
    TrainAndExpectCounted(job, {consistency, 1, 2}, 1, 5);
}

TEST_F(CensusTest, ExactWithAccumulation) {
  const std::string job = WriteCensusJob("job", {WriteSparseRows("rows", 5001)},
                                         "batch { micro: 16 accumulation: 4 } lease_batches: 3");
  for (const char* consistency : {"sync", "ssp:3", "async"})
    TrainAndExpectCounted(job, {consistency, 2, 2}, 5001, 3);
}

// Nodes that stop for longer than a request may take get everything sent again: nothing may count twice,
// nothing be lost.
TEST_F(CensusTest, ExactAfterPausesWithEverythingSentAgain) {
  const std::string job = WriteCensusJob("job", {WriteSparseRows("rows", 20011)},
                                         "epochs: 30 batch { micro: 32 } lease_batches: 4");
  for (const char* consistency : {"sync", "ssp:2", "async"}) {
    SCOPED_TRACE(consistency);
    HandCluster cluster(processes_, fmt::format("{}-", consistency), job, NewOutput(), 2, 2);
    cluster.StartAll({fmt::format("--set=consistency={}", consistency),
                      "--set=cluster.request_timeout_ms=100", "--set=cluster.heartbeat_limit_ms=20000"});
    ASSERT_TRUE(AwaitTraining(cluster.output()));
    for (const std::string& paused :
         {cluster.server(0), cluster.worker(1), cluster.scheduler(), cluster.server(1)}) {
      processes_.Signal(paused, SIGSTOP);
      EXPECT_FALSE(Eventually(Seconds(0.4), [&] { return !processes_.Running(paused); }));
      processes_.Signal(paused, SIGCONT);
      EXPECT_FALSE(Eventually(Seconds(0.1), [&] { return !processes_.Running(paused); }))
          << "the job is too short";
    }
    ExpectEnd(cluster.scheduler(), 0, kTrainLimit);
    for (const std::string& node : cluster.nodes()) ExpectEnd(node, 0, Seconds(5));
    EXPECT_EQ(ResultOf(cluster.output()).value("examples", uint64_t{0}), 20011u * 30);
    ExpectCounted(cluster.output(), 20011, 30);
  }
}

}  // namespace
}  // namespace capstan::testing
