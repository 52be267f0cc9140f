// Sync: how a job is spread over threads and processes never shows in its bits. Async and ssp: it hardly
// shows in AUC.
#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

class SameBits : public IntegrationTest {
 protected:
  static constexpr const char* kAdultJob = CAPSTAN_SOURCE_DIR "/examples/adult_wide_deep.textproto";

  // The model's hash of each way to spread the job must be that of the first.
  void ExpectSameBits(const std::string& job, const std::vector<std::string>& flags,
                      const std::vector<std::vector<std::string>>& layouts) {
    std::string first;
    for (std::vector<std::string> layout : layouts) {
      std::string shown;
      for (const std::string& flag : layout) shown += " " + flag;
      layout.insert(layout.end(), flags.begin(), flags.end());
      const nlohmann::json result = Train(job, layout);
      const std::string sha = ShaOf(result);
      ASSERT_NE(sha, "none") << shown;
      if (first.empty()) first = sha;
      EXPECT_EQ(sha, first) << "with" << shown;
    }
  }

  double AucOf(const nlohmann::json& result) {
    if (!result.contains("eval") || !result["eval"].is_object()) {
      ADD_FAILURE() << "no evaluation";
      return 0;
    }
    return result["eval"].value("auc", 0.0);
  }

  void SkipWithoutData() {
    if (DataFolder().empty())
      GTEST_SKIP() << "the Adult files are not here; CAPSTAN_DATA_DIR names their folder";
    setenv("CAPSTAN_DATA_DIR", DataFolder().c_str(), 1);
  }
};

const std::vector<std::vector<std::string>> kLayouts = {
    {},
    {},  // the same once more
    {"--workers=3"},
    {"--servers=1", "--workers=1"},
    {"--servers=2", "--workers=1"},
    {"--servers=2", "--shards=4", "--workers=2"},
    {"--servers=1", "--workers=4"},
};

TEST_F(SameBits, InOneProcessAndInMany) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 5003), "batch { global: 256 }");
  ExpectSameBits(job, {}, kLayouts);
}

TEST_F(SameBits, WithAccumulation) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 5003), "batch { micro: 16 accumulation: 3 }");
  ExpectSameBits(job, {}, {{}, {"--servers=2", "--workers=2"}, {"--servers=1", "--workers=4", "--shards=3"}});
}

TEST_F(SameBits, WithEveryOptimizerAndMoreRanks) {
  const std::string rows = WriteRows("rows.csv", 3001);
  for (const char* optimizer : {"sgd", "adagrad"}) {
    const std::string job = WriteJob(fmt::format("job-{}", optimizer), rows, "ranks: 7 batch { micro: 32 }");
    ExpectSameBits(job, {fmt::format("--set=optimizer.name={}", optimizer)},
                   {{}, {"--servers=2", "--workers=3"}});
  }
}

TEST_F(SameBits, AnotherSeedHasOthers) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 1003), "batch { global: 256 }");
  EXPECT_NE(ShaOf(Train(job, {"--seed=1"})), ShaOf(Train(job, {"--seed=2"})));
}

TEST_F(SameBits, OnAdult) {
  SkipWithoutData();
  if (IsSkipped()) return;
  ExpectSameBits(kAdultJob, {"--epochs=1"},
                 {{}, {"--servers=2", "--shards=4", "--workers=2"}, {"--servers=1", "--workers=4"}});
}

TEST_F(SameBits, LooserModesLearnAsMuchOnGeneratedRows) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 12000, 1), "batch { micro: 64 }");
  const std::string test = WriteRows("test.csv", 6000, 2);
  const std::vector<std::string> flags = {"--eval_data=" + test, "--epochs=4", "--servers=1", "--workers=2"};
  const auto auc = [&](const std::string& mode) {
    std::vector<std::string> all = flags;
    all.push_back("--consistency=" + mode);
    const nlohmann::json result = Train(job, all);
    EXPECT_EQ(result.value("examples", 0u), 48000u) << mode;
    return AucOf(result);
  };
  const double sync = auc("sync");
  EXPECT_GT(sync, 0.80);
  EXPECT_GE(auc("ssp:2"), sync - 0.003);
  EXPECT_GE(auc("async"), sync - 0.003);
}

TEST_F(SameBits, LooserModesLearnAsMuchOnAdult) {
  SkipWithoutData();
  if (IsSkipped()) return;
  const auto auc = [&](const std::string& mode) {
    return AucOf(Train(kAdultJob, {"--servers=1", "--workers=2", "--epochs=3", "--consistency=" + mode}));
  };
  const double sync = auc("sync");
  EXPECT_GE(auc("ssp:2"), sync - 0.003);
  EXPECT_GE(auc("async"), sync - 0.003);
}

}  // namespace
}  // namespace capstan::testing
