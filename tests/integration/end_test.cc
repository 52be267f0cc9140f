// The end of a job, and what the scheduler has to do in between.
#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EndTest : public IntegrationTest {
 protected:
  EndTest() : job_(WriteJob("job", WriteRows("rows.csv", 4001), "batch { micro: 16 }")) {}
  // Requests that the scheduler answered during the training, from its own count.
  uint64_t RequestsIn(const std::string& log) {
    static constexpr char kBefore[] = "the scheduler answered ";
    const size_t at = log.find(kBefore);
    if (at == std::string::npos) {
      ADD_FAILURE() << "no count of requests in: " << log;
      return 0;
    }
    return std::stoull(log.substr(at + sizeof kBefore - 1));
  }

  const std::string job_;
};

TEST_F(EndTest, EverybodyEndsWithinFiveSecondsAndLateComersAreTold) {
  for (const char* consistency : {"sync", "ssp:2", "async"}) {
    HandCluster cluster(processes_, fmt::format("{}-", consistency), job_, NewOutput(), 2, 2);
    cluster.StartAll({fmt::format("--set=consistency={}", consistency)});
    const std::string log = processes_.err_path(cluster.scheduler());
    ASSERT_TRUE(AwaitText(log, "training is done", kTrainLimit));
    const auto end = std::chrono::steady_clock::now();
    ExpectEnd(cluster.scheduler(), 0, Seconds(5));
    for (const std::string& node : cluster.nodes()) ExpectEnd(node, 0, Seconds(5));
    EXPECT_LT(Seconds(std::chrono::steady_clock::now() - end).count(), 5.0);
    if (consistency != std::string("sync")) continue;
    cluster.StartWorker(9, {"--join_timeout_ms=1000"});
    ExpectEnd(cluster.worker(9), 202, Seconds(10));
    EXPECT_THAT(processes_.err(cluster.worker(9)),
                AllOf(HasSubstr(cluster.address()), HasSubstr("never answered")));
  }
}

TEST_F(EndTest, SyncNeverAsksTheSchedulerAndAsyncOncePerLease) {
  const uint64_t ranks = 4;
  const auto requests = [&](const std::string& consistency, uint32_t epochs) {
    const nlohmann::json result =
        Train(job_, {"--servers=1", "--workers=2", fmt::format("--epochs={}", epochs),
                     "--consistency=" + consistency, "--set=lease_batches=8"});
    return RequestsIn(ReadText(result.value("output", "") + "/logs/scheduler.log"));
  };
  // Each rank tells its end, and on a busy machine perhaps twice; how many steps came before does not matter.
  EXPECT_LE(requests("sync", 1), 2 * ranks);
  EXPECT_LE(requests("sync", 8), 2 * ranks);
  // A lease is asked for and reported: two requests for 8 batches of 16 rows. Splits end some leases early.
  const uint64_t rows = 4001, epochs = 4, splits = 8 * ranks + 1;
  const uint64_t leases = epochs * (rows / (8 * 16) + splits);
  EXPECT_LE(requests("async", epochs), 2 * (2 * leases + 2 * ranks));
}

}  // namespace
}  // namespace capstan::testing
