#include "tools/job/plan_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/control.pb.h"
#include "tools/job/job_file.h"
#include "tools/train/train_command.h"
#include "tools/train/train_job.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

JobSurroundings PlainSurroundings() {
  JobSurroundings surroundings;
  surroundings.optimizers = {"sgd", "adagrad", "adam"};
  surroundings.environment = [](const std::string&) { return std::nullopt; };
  return surroundings;
}

std::string ManyRows(int rows) {
  std::string text = "age,city,clicked\n";
  for (int i = 0; i < rows; ++i)
    text += std::to_string(20 + i % 50) + ",c" + std::to_string(i % 7) + (i % 3 ? ",0\n" : ",1\n");
  return text;
}

constexpr char kJob[] = R"(ranks: 2
data {
  train: "rows.csv"
  label { column: "clicked" }
  feature { column: "age" }
  feature { column: "city" kind: CATEGORICAL }
}
model { wide_deep { embedding_dim: 4 hidden: 8 } }
)";

std::unique_ptr<FileSystem> DiskWithJob(const std::string& more = "") {
  std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  EXPECT_TRUE(WriteFileAtomically(*fs, "job.textproto", kJob + more).ok());
  EXPECT_TRUE(WriteFileAtomically(*fs, "rows.csv", ManyRows(400)).ok());
  return fs;
}

absl::Status Plan(FileSystem& fs, EffectiveJob* job) {
  TrainOptions options;
  options.job = "job.textproto";
  JobConfig config;
  std::vector<std::string> notes;
  if (absl::Status status = MakeTrainJob(fs, options, PlainSurroundings(), &config, &notes); !status.ok())
    return status;
  return PlanJob(fs, config, job);
}

TEST(PlanJob, GivesTablesIdsAndOptimizers) {
  const auto fs = DiskWithJob(
      "optimizer { name: 'adagrad' learning_rate: 0.5 }\n"
      "table_rule { table: 'wide*' optimizer { name: 'sgd' } }\n");
  EffectiveJob job;
  ASSERT_EQ(Plan(*fs, &job), absl::OkStatus());
  ASSERT_GE(job.table_size(), 3);
  int by_rule = 0;
  for (int i = 0; i < job.table_size(); ++i) {
    const TableSpec& table = job.table(i);
    EXPECT_EQ(table.id(), static_cast<uint32_t>(i));
    const bool wide = table.name().rfind("wide", 0) == 0;
    EXPECT_EQ(table.optimizer().name(), wide ? "sgd" : "adagrad") << table.name();
    EXPECT_TRUE(table.optimizer().has_beta1());
    by_rule += wide ? 1 : 0;
  }
  EXPECT_GE(by_rule, 1);
  EXPECT_EQ(job.plan().rows(), 400u);
  EXPECT_GE(job.plan().split_size(), 16);  // 8 per rank
  EXPECT_EQ(job.recipe().column_size(), 3);
  EXPECT_EQ(job.recipe().numeric(0).name(), "age");
  EXPECT_TRUE(job.config().has_seed());
}

TEST(PlanJob, ATableKeepsTheOptimizerOfItsModel) {
  const auto fs = DiskWithJob();
  EffectiveJob job;
  ASSERT_EQ(Plan(*fs, &job), absl::OkStatus());
  job.mutable_config()->mutable_model()->mutable_census();
  ASSERT_EQ(FillTables(&job), absl::OkStatus());
  ASSERT_EQ(job.table_size(), 1);
  EXPECT_EQ(job.table(0).optimizer().name(), "sgd");
  EXPECT_EQ(job.table(0).optimizer().learning_rate(), 1.0);
}

TEST(PlanJob, AScheduleWithoutALengthSpansTheRun) {
  const auto fs = DiskWithJob(
      "epochs: 3 batch { global: 400 }\n"
      "optimizer { name: 'adam' schedule { kind: 'linear' warmup_steps: 5 } }\n"
      "table_rule { table: 'wide*' optimizer { name: 'sgd' schedule { kind: 'cosine' steps: 7 } } }\n");
  EffectiveJob job;
  ASSERT_EQ(Plan(*fs, &job), absl::OkStatus());
  const uint64_t steps = (static_cast<uint64_t>(job.plan().split_size()) + 1) / 2;  // a batch each, two ranks
  for (const TableSpec& table : job.table()) {
    const bool wide = table.name().rfind("wide", 0) == 0;
    EXPECT_EQ(table.optimizer().schedule().steps(), wide ? 7 : 3 * steps - 4) << table.name();
  }
  EXPECT_EQ(job.config().optimizer().schedule().steps(), 0u) << "a resume works it out again";
  job.mutable_config()->set_epochs(1);
  job.mutable_config()->mutable_optimizer()->mutable_schedule()->set_warmup_steps(1000);
  ASSERT_EQ(FillTables(&job), absl::OkStatus());
  EXPECT_EQ(job.table(job.table_size() - 1).optimizer().schedule().steps(), 1u);
}

TEST(PlanJob, ARuleWithoutATableIsRefused) {
  const auto fs = DiskWithJob("table_rule { table: 'wode' optimizer { name: 'sgd' } }\n");
  EffectiveJob job;
  const absl::Status status = Plan(*fs, &job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("table_rule[0].table: 'wode' matches no table; the model has "));
}

TEST(PlanJob, BadDataNamesItsLine) {
  const auto fs = DiskWithJob();
  ASSERT_TRUE(WriteFileAtomically(*fs, "rows.csv", ManyRows(10) + "old,c1,1\n").ok());
  EffectiveJob job;
  const std::string message(Plan(*fs, &job).message());
  EXPECT_THAT(message, HasSubstr("rows.csv"));
  EXPECT_THAT(message, HasSubstr("12"));
  EXPECT_THAT(message, HasSubstr("age"));
}

TEST(PlanJob, APlanTooLargeToSendSaysWhatWouldFit) {
  const auto fs = DiskWithJob("");
  EffectiveJob job;
  ASSERT_EQ(Plan(*fs, &job), absl::OkStatus());
  EXPECT_EQ(CheckJobSize(job, job.ByteSizeLong()), absl::OkStatus());
  const absl::Status status = CheckJobSize(job, job.ByteSizeLong() - 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("data.split_rows: with 16384 the plan of 400 rows"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; 32768 would fit"));
}

TEST(TrainJob, FlagsGoOverTheFileAndSetsOverFlags) {
  const auto fs = DiskWithJob("epochs: 9\n");
  ASSERT_TRUE(WriteFileAtomically(*fs, "a.csv", ManyRows(5)).ok());
  ASSERT_TRUE(WriteFileAtomically(*fs, "b.csv", ManyRows(5)).ok());
  TrainOptions options;
  options.job = "job.textproto";
  options.data = {"a.csv", "b.csv"};
  options.eval_data = {"rows.csv"};
  options.epochs = 2;
  options.workers = 2;
  options.shards = 3;
  options.seed = 77;
  options.consistency = "ssp:2";
  options.sets = {"seed=78", "data.feature[0].normalize=NONE"};
  JobConfig job;
  std::vector<std::string> notes;
  ASSERT_EQ(MakeTrainJob(*fs, options, PlainSurroundings(), &job, &notes), absl::OkStatus());
  EXPECT_THAT(job.data().train(), ::testing::ElementsAre("a.csv", "b.csv"));
  EXPECT_THAT(job.data().eval(), ::testing::ElementsAre("rows.csv"));
  EXPECT_EQ(job.epochs(), 2u);
  EXPECT_EQ(job.cluster().workers(), 2u);
  EXPECT_EQ(job.cluster().shards(), 3u);
  EXPECT_EQ(job.seed(), 78u);
  EXPECT_EQ(job.consistency(), "ssp:2");
  EXPECT_EQ(job.data().feature(0).normalize(), FeatureConfig::NONE);
  options.consistency = "ssp:0";
  EXPECT_THAT(std::string(MakeTrainJob(*fs, options, PlainSurroundings(), &job, &notes).message()),
              HasSubstr("--consistency=ssp:0: consistency: "));
}

TEST(TrainJob, WithoutAJobFileTheSchemaIsGuessed) {
  const auto fs = DiskWithJob();
  TrainOptions options;
  options.data = {"rows.csv"};
  options.label = "clicked";
  options.sets = {"batch.global=64"};
  JobConfig job;
  std::vector<std::string> notes;
  ASSERT_EQ(MakeTrainJob(*fs, options, PlainSurroundings(), &job, &notes), absl::OkStatus());
  EXPECT_TRUE(job.model().has_wide_deep());
  EXPECT_GE(job.data().feature_size(), 2);
  EXPECT_EQ(job.batch().global(), 64u);
  EXPECT_EQ(notes.size(), 1u);
  EffectiveJob effective;
  EXPECT_EQ(PlanJob(*fs, job, &effective), absl::OkStatus());
}

TEST(TrainJob, NothingToTrainSaysWhatToGive) {
  const auto fs = NewMemoryFileSystem();
  JobConfig job;
  std::vector<std::string> notes;
  TrainOptions options;
  EXPECT_THAT(std::string(MakeTrainJob(*fs, options, PlainSurroundings(), &job, &notes).message()),
              HasSubstr("give a job file, or --data=FILE --label=COLUMN"));
  options.data = {"lost.csv"};
  options.label = "y";
  EXPECT_THAT(std::string(MakeTrainJob(*fs, options, PlainSurroundings(), &job, &notes).message()),
              HasSubstr("lost.csv"));
}

TEST(Examples, AllAreCompleteJobs) {
  JobSurroundings surroundings = PlainSurroundings();
  const std::unique_ptr<FileSystem> data = NewMemoryFileSystem();
  for (const char* path : {"/d/adult/adult.data.gz", "/d/adult/adult.test.gz", "/d/a9a/a9a.train.libsvm.gz",
                           "/d/a9a/a9a.test.libsvm.gz", "train.tsv", "train.csv", "test.csv"}) {
    ASSERT_TRUE(WriteFileAtomically(*data, path, "x").ok());
  }
  surroundings.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name != "CAPSTAN_DATA_DIR") return std::nullopt;
    return "/d";
  };
  const std::string folder = CAPSTAN_SOURCE_DIR "/examples";
  int examples = 0;
  const std::vector<std::string> names = *PosixFileSystem().List(folder);
  for (const std::string& name : names) {
    if (!name.ends_with(".textproto")) continue;
    ++examples;
    const absl::StatusOr<JobFile> file = JobFile::Load(PosixFileSystem(), folder + "/" + name);
    ASSERT_TRUE(file.ok()) << file.status();
    JobConfig job;
    std::vector<std::string> warnings;
    EXPECT_EQ(file->Finish(*data, surroundings, &job, &warnings), absl::OkStatus()) << name;
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    EffectiveJob effective;
    *effective.mutable_config() = job;
    EXPECT_EQ(FillTables(&effective), absl::OkStatus()) << name;
  }
  EXPECT_GE(examples, 5);
}

}  // namespace
}  // namespace capstan
