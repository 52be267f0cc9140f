// Data that is small, uneven or a little broken, end to end.
#include <unistd.h>

#include <functional>

#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EdgeTest : public IntegrationTest {
 protected:
  // Trains in one process and in several, expects that many examples and the same bits.
  void ExpectTrained(const std::string& job, uint64_t examples, const std::vector<std::string>& flags = {}) {
    std::string first;
    for (const std::vector<std::string>& layout :
         std::vector<std::vector<std::string>>{{}, {"--servers=2", "--workers=2"}}) {
      std::vector<std::string> all = flags;
      all.insert(all.end(), layout.begin(), layout.end());
      const nlohmann::json result = Train(job, all);
      EXPECT_EQ(result.value("examples", uint64_t{0}), examples);
      const std::string sha = ShaOf(result);
      if (first.empty()) first = sha;
      EXPECT_EQ(sha, first);
    }
  }
};

TEST_F(EdgeTest, FewerRowsThanRanks) { ExpectTrained(WriteJob("job", WriteRows("rows.csv", 3)), 6); }

TEST_F(EdgeTest, OneRow) { ExpectTrained(WriteJob("job", WriteRows("rows.csv", 1)), 2); }

TEST_F(EdgeTest, ABatchLargerThanTheFile) {
  ExpectTrained(WriteJob("job", WriteRows("rows.csv", 97), "batch { global: 65536 }"), 97 * 3,
                {"--epochs=3"});
}

TEST_F(EdgeTest, ManyEpochsOfASmallFile) {
  ExpectTrained(WriteJob("job", WriteRows("rows.csv", 11)), 11 * 50, {"--epochs=50"});
}

TEST_F(EdgeTest, MoreThanOneFile) {
  const std::string one = WriteRows("one.csv", 503, 1), other = WriteRows("other.csv", 17, 2);
  ExpectTrained(WriteJob("job", one, "ranks: 3"), 2 * 520, {"--data=" + one + "," + other});
}

TEST_F(EdgeTest, BadRowsAreLeftOutUpToTheLimit) {
  const std::string path = WriteRows("rows.csv", 1000);
  std::string text = ReadText(path);
  text.insert(text.find('\n') + 1, "1,wide,40,c1,t1\n0,0.5,40,c1\n");
  WriteText(path, text);
  const std::string job = WriteJob("job", path);
  ExpectTrained(job, 2000, {"--set=data.max_bad_rows=2"});
  for (const char* flag : {"--servers=1", "--workers=2"}) {
    const Finished run =
        Capstan({"train", job, flag, "--set=data.max_bad_rows=1", "--output=" + NewOutput()});
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_THAT(run.err,
                AllOf(HasSubstr("rows.csv:2"), HasSubstr("2 of 1002"), HasSubstr("max_bad_rows allows 1")));
  }
}

// Between the plan and the reading somebody may write to a file.
TEST_F(EdgeTest, AFileThatChangesUnderTheRunIsNamed) {
  const std::string rows = WriteRows("rows.csv", 2001);
  const std::string job = WriteJob("job", rows);
  struct Change {
    const char* what;
    std::function<void()> change;
  };
  const std::vector<Change> changes = {
      {"cut", [&] { WriteText(rows, ReadText(rows).substr(0, 5000)); }},
      {"garbled", [&] { WriteText(rows, std::string(ReadText(rows).size(), 'x')); }},
      {"gone", [&] { unlink(rows.c_str()); }},
  };
  for (const Change& c : changes) {
    SCOPED_TRACE(c.what);
    WriteRows("rows.csv", 2001);
    HandCluster cluster(processes_, fmt::format("{}-", c.what), job, NewOutput(), 1, 2);
    cluster.StartScheduler();
    ASSERT_TRUE(AwaitText(processes_.err_path(cluster.scheduler()), "listens at"));
    c.change();
    cluster.StartServer(0);
    cluster.StartWorker(0);
    cluster.StartWorker(1);
    ExpectEnd(cluster.scheduler(), 3, Seconds(20));
    EXPECT_THAT(ResultOf(cluster.output()).value("reason", ""),
                AllOf(HasSubstr("worker-"), HasSubstr("rows.csv")));
    for (const std::string& node : cluster.nodes()) ExpectEnd(node, 3, Seconds(10));
  }
}

TEST_F(EdgeTest, AnEvaluationFileOfOneClassHasNoAuc) {
  WriteText(Path("ones.csv"), "label,size,age,colour,town\n1,0.5,40,c1,t1\n1,0.7,41,c1,t1\n");
  const nlohmann::json result =
      Train(WriteJob("job", WriteRows("rows.csv", 101)), {"--eval_data=" + Path("ones.csv")});
  EXPECT_TRUE(result["eval"]["auc"].is_null());
  EXPECT_TRUE(result["eval"]["logloss"].is_number());
}

}  // namespace
}  // namespace capstan::testing
