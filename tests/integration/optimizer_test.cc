// What optimizer settings of a job file do to the model that a run leaves.
#include <span>
#include <utility>

#include <fmt/core.h>

#include "storage/saved_model.h"
#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

class OptimizerSettings : public IntegrationTest {
 protected:
  // All tables: this optimizer.
  std::string Job(const std::string& optimizer, const std::string& more = "") {
    return WriteJob(fmt::format("job-{}", ++jobs_), rows_,
                    fmt::format("table_rule {{ table: '*' optimizer {{ {} }} }} batch {{ micro: 8 }} {}", optimizer, more));
  }
  const std::string rows_ = WriteRows("rows.csv", 4003);

 private:
  int jobs_ = 0;
};

// An epoch has more than 100 steps: from step 61 on, the rate is 0.
TEST_F(OptimizerSettings, AScheduleStopsTrainingAtItsStep) {
  const std::string stops = Job("name: 'sgd' learning_rate: 0.05 schedule { kind: 'step' boundary: 60 step_factor: 0 }");
  const std::string plain = Job("name: 'sgd' learning_rate: 0.05");
  const std::string once = ShaOf(Train(stops, {"--epochs=1"}));
  EXPECT_EQ(ShaOf(Train(stops, {"--epochs=2", "--servers=2", "--workers=2"})), once);
  EXPECT_NE(ShaOf(Train(plain, {"--epochs=1"})), once);
  EXPECT_NE(ShaOf(Train(plain, {"--epochs=2"})), ShaOf(Train(plain, {"--epochs=1"})));
}

TEST_F(OptimizerSettings, AScheduleWithoutALengthSpansTheRun) {
  const std::string job = Job("name: 'adam' learning_rate: 0.01 schedule { kind: 'cosine' warmup_steps: 20 }");
  const nlohmann::json result = Train(job, {"--epochs=1"});
  const uint64_t length = result.value("steps", uint64_t{0}) - 1 - 19;  // without the step that closes the epoch
  const auto with_steps = [&](uint64_t steps) {
    return ShaOf(Train(job, {"--epochs=1", fmt::format("--set=table_rule[0].optimizer.schedule.steps={}", steps)}));
  };
  EXPECT_EQ(with_steps(length), ShaOf(result)) << length;
  EXPECT_NE(with_steps(length - 10), ShaOf(result));
}

TEST_F(OptimizerSettings, L1LeavesZeros) {
  const auto zeros = [&](const std::string& optimizer) {
    const nlohmann::json result = Train(Job(optimizer), {});
    const auto model = SavedModel::Load(PosixFileSystem(), result.value("checkpoint", ""));
    EXPECT_TRUE(model.ok()) << model.status();
    size_t count = 0;
    for (TableId table = 0; model.ok() && table < 3; ++table) {
      (*model)->ForEach(table, [&](Key, std::span<const float> row) {
        for (const float w : row) count += w == 0 ? 1 : 0;
      });
    }
    return count;
  };
  EXPECT_GT(zeros("name: 'sgd' learning_rate: 0.05 l1: 0.01"), zeros("name: 'sgd' learning_rate: 0.05"));
  EXPECT_GT(zeros("name: 'ftrl' learning_rate: 0.05 l1: 10"), zeros("name: 'ftrl' learning_rate: 0.05"));
}

TEST_F(OptimizerSettings, TheSameInAnyModeAndRefusedByNameWhenOutOfRange) {
  const std::string job = Job("name: 'lamb' learning_rate: 0.01 schedule { kind: 'one_cycle' } clip_norm: 1");
  for (const char* mode : {"async", "ssp:2"}) {
    const nlohmann::json result = Train(job, {fmt::format("--set=consistency={}", mode), "--workers=2"});
    EXPECT_EQ(result.value("examples", 0u), 2 * 4003u) << mode;
  }
  const std::pair<const char*, const char*> refused[] = {
      {"table_rule[0].optimizer.schedule.kind=cosin", "did you mean"},
      {"table_rule[0].optimizer.schedule.peak_at=1.5", "peak_at"},
      {"table_rule[0].optimizer.clip_norm=-1", "clip_norm"},
      {"table_rule[0].optimizer.weight_decay=-1", "weight_decay"},
      {"table_rule[0].optimizer.momentum=1", "momentum"},
  };
  for (const auto& [set, says] : refused) {
    const Finished run = Capstan({"train", job, fmt::format("--set={}", set), "--output=" + NewOutput()});
    EXPECT_EQ(run.code, 2) << set;
    EXPECT_THAT(run.err, ::testing::HasSubstr(says)) << set;
  }
}

}  // namespace
}  // namespace capstan::testing
