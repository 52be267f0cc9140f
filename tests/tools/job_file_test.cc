#include "tools/job/job_file.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/job.pb.h"
#include "tools/job/job_text.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

const char kCorpus[] = CAPSTAN_SOURCE_DIR "/tests/corpus/jobs";

JobSurroundings TestSurroundings() {
  JobSurroundings surroundings;
  surroundings.optimizers = {"sgd", "adagrad", "adam"};
  surroundings.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "DATA") return "/data";
    return std::nullopt;
  };
  return surroundings;
}

// A job file of `text` beside rows.csv in /jobs, and /data/more.csv.
std::unique_ptr<FileSystem> DiskWith(const std::string& text) {
  std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  EXPECT_TRUE(WriteFileAtomically(*fs, "/jobs/job.textproto", text).ok());
  EXPECT_TRUE(WriteFileAtomically(*fs, "/jobs/rows.csv", "a,y\n").ok());
  EXPECT_TRUE(WriteFileAtomically(*fs, "/data/more.csv", "a,y\n").ok());
  return fs;
}

constexpr char kGood[] = R"(data { train: "rows.csv" label { column: "y" } feature { column: "a" } }
model { wide_deep {} }
)";

absl::StatusOr<JobConfig> FinishWith(FileSystem& fs, const std::vector<std::string>& sets,
                                     std::vector<std::string>* warnings = nullptr) {
  absl::StatusOr<JobFile> file = JobFile::Load(fs, "/jobs/job.textproto");
  if (!file.ok()) return file.status();
  for (const std::string& set : sets) {
    if (absl::Status status = file->Set(set); !status.ok()) return status;
  }
  JobConfig job;
  const absl::Status status = file->Finish(fs, TestSurroundings(), &job, warnings);
  if (!status.ok()) return status;
  return job;
}

// Each broken file says in comments what its error must hold.
TEST(BrokenJobFiles, EachErrorNamesFileLineAndKey) {
  FileSystem& fs = PosixFileSystem();
  const std::vector<std::string> names = *fs.List(kCorpus);
  int broken = 0;
  for (const std::string& name : names) {
    if (name.size() < 10 || name.substr(name.size() - 10) != ".textproto" || name == "good.textproto")
      continue;
    const std::string path = std::string(kCorpus) + "/" + name;
    SCOPED_TRACE(path);
    ++broken;
    absl::StatusOr<JobFile> file = JobFile::Load(fs, path);
    absl::Status status = file.status();
    JobConfig job;
    if (file.ok()) status = file->Finish(fs, TestSurroundings(), &job, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(path));
    std::istringstream text(*ReadWholeFile(fs, path, 1 << 20));
    int expectations = 0;
    for (std::string line; std::getline(text, line);) {
      if (line.rfind("# expect: ", 0) != 0) continue;
      ++expectations;
      EXPECT_THAT(message, HasSubstr(line.substr(10)));
    }
    EXPECT_GE(expectations, 1);
  }
  EXPECT_GE(broken, 30);
}

TEST(BrokenJobFiles, TheFileTheyWereMadeFromIsGood) {
  const absl::StatusOr<JobFile> file =
      JobFile::Load(PosixFileSystem(), std::string(kCorpus) + "/good.textproto");
  ASSERT_TRUE(file.ok()) << file.status();
  JobConfig job;
  std::vector<std::string> warnings;
  EXPECT_EQ(file->Finish(PosixFileSystem(), TestSurroundings(), &job, &warnings), absl::OkStatus());
  EXPECT_TRUE(warnings.empty());
}

TEST(JobFile, AMissingFileIsNotFound) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  const absl::Status status = JobFile::Load(*fs, "nowhere.textproto").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere.textproto"));
}

TEST(JobFile, AllProblemsAreReportedAtOnce) {
  const auto fs = DiskWith(std::string(kGood) + "epochs: 0\ncpu_isa: \"mmx\"\n");
  const absl::Status status = FinishWith(*fs, {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/jobs/job.textproto:3:1: epochs: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/jobs/job.textproto:4:1: cpu_isa: "));
}

TEST(JobFile, DefaultsAreWrittenOut) {
  const auto fs = DiskWith(kGood);
  const absl::StatusOr<JobConfig> job = FinishWith(*fs, {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->has_epochs() && job->has_seed() && job->has_consistency());
  EXPECT_TRUE(job->cluster().has_partitions() && job->optimizer().has_beta2() &&
              job->data().has_split_rows());
  EXPECT_EQ(job->data().feature(0).name(), "a");
  EXPECT_TRUE(job->data().feature(0).has_normalize());
  EXPECT_FALSE(job->data().feature(0).has_salt());
  EXPECT_THAT(job->model().wide_deep().hidden(), ::testing::ElementsAre(256, 128, 64));
  EXPECT_EQ(job->batch().global(), 1024u);
  // What was written out reads back as the same job, and completing it again changes nothing.
  const auto again = DiskWith(PrintJob(*job));
  const absl::StatusOr<JobConfig> second = FinishWith(*again, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(PrintJob(*second), PrintJob(*job));
}

TEST(JobFile, BatchNumbersFollowFromEachOther) {
  struct Case {
    const char* why;
    const char* given;
    uint32_t global, micro, accumulation;  // 0: an error
    const char* says;
  };
  const Case cases[] = {
      {"nothing", "", 1024, 256, 1, ""},
      {"nothing, ranks that do not divide", "ranks: 3", 1023, 341, 1, ""},
      {"global", "batch { global: 512 }", 512, 128, 1, ""},
      {"micro", "batch { micro: 10 }", 40, 10, 1, ""},
      {"accumulation", "batch { accumulation: 4 }", 1024, 64, 4, ""},
      {"global and micro", "batch { global: 512 micro: 32 }", 512, 32, 4, ""},
      {"global and accumulation", "batch { global: 512 accumulation: 2 }", 512, 64, 2, ""},
      {"micro and accumulation", "batch { micro: 5 accumulation: 3 }", 60, 5, 3, ""},
      {"all, in harmony", "batch { global: 60 micro: 5 accumulation: 3 }", 60, 5, 3, ""},
      {"all, contradicting", "batch { global: 61 micro: 5 accumulation: 3 }", 0, 0, 0, "ranks 4 = 60"},
      {"global not divisible", "batch { global: 510 }", 0, 0, 0, "508 or 512 would fit"},
      {"global below the ranks", "batch { global: 3 }", 0, 0, 0, "batch.global = 4 would fit"},
      {"micro too large", "batch { global: 8 micro: 5 }", 0, 0, 0, "20 would fit"},
      {"too many rows", "batch { micro: 1000000 accumulation: 60000 }", 0, 0, 0,
       "more rows than a step can hold"},
      {"zero rows", "batch { micro: 0 }", 0, 0, 0, "batch.micro: 0 is outside 1"},
      {"global of zero", "batch { global: 0 }", 0, 0, 0, "batch.global = 4 would fit"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.why);
    const auto fs = DiskWith(std::string(kGood) + c.given);
    const absl::StatusOr<JobConfig> job = FinishWith(*fs, {});
    if (c.global == 0) {
      EXPECT_THAT(std::string(job.status().message()), HasSubstr(c.says));
      continue;
    }
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->batch().global(), c.global);
    EXPECT_EQ(job->batch().micro(), c.micro);
    EXPECT_EQ(job->batch().accumulation(), c.accumulation);
  }
}

TEST(JobFile, SetChangesOneKey) {
  struct Case {
    const char* set;
    const char* same_as;  // text that gives the same job
  };
  const Case cases[] = {
      {"epochs=7", "epochs: 7"},
      {"optimizer.learning_rate=0.25", "optimizer { learning_rate: 0.25 }"},
      {"data.format=CSV", "data { format: CSV }"},
      {"data.trim=false", "data { trim: false }"},
      {"data.feature[0].normalize=NONE", "data { feature { normalize: NONE } }"},
      {"name=a=b", "name: 'a=b'"},
      {"data.eval+=e.csv", "data { eval: 'e.csv' }"},
      {"data.missing_value=?", "data { missing_value: '?' }"},
      {"model.wide_deep.hidden=32,16", "model { wide_deep { hidden: 32 hidden: 16 } }"},
      {"table_rule+=table: 'w' optimizer { name: 'sgd' }",
       "table_rule { table: 'w' optimizer { name: 'sgd' } }"},
      {"cluster+=servers: 2", "cluster { servers: 2 }"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.set);
    const char start[] = "data { feature { column: 'a' } } model { wide_deep {} } cluster { shards: 3 }";
    const auto fs = DiskWith(start);
    absl::StatusOr<JobFile> file = JobFile::Load(*fs, "/jobs/job.textproto");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->Set(c.set), absl::OkStatus());
    JobConfig wanted = JobText::Parse(start, "start")->job();
    JobConfig change = JobText::Parse(c.same_as, "change")->job();
    if (change.data().feature_size() > 0)
      wanted.mutable_data()->mutable_feature(0)->set_normalize(FeatureConfig::NONE);
    change.mutable_data()->clear_feature();
    wanted.MergeFrom(change);
    EXPECT_EQ(PrintJob(file->raw()), PrintJob(wanted));
  }
}

TEST(JobFile, SetReplacesListsAndChoosesModels) {
  const auto fs =
      DiskWith("data { train: 'a' train: 'b' } model { wide_deep { hidden: 4 } } optimizer { beta1: 0.5 }");
  absl::StatusOr<JobFile> file = JobFile::Load(*fs, "/jobs/job.textproto");
  ASSERT_TRUE(file.ok());
  for (const char* set : {"data.train=c", "data.train+=d", "model.lr=", "optimizer=name: 'sgd'"}) {
    ASSERT_EQ(file->Set(set), absl::OkStatus());
  }
  EXPECT_THAT(file->raw().data().train(), ::testing::ElementsAre("c", "d"));
  EXPECT_TRUE(file->raw().model().has_lr());
  EXPECT_EQ(file->raw().optimizer().name(), "sgd");
  EXPECT_FALSE(file->raw().optimizer().has_beta1());
}

TEST(JobFile, ASetThatDoesNotFitNamesTheFlag) {
  const auto fs = DiskWith("model { lr {} } data { feature { column: 'a' } }");
  absl::StatusOr<JobFile> file = JobFile::Load(*fs, "/jobs/job.textproto");
  ASSERT_TRUE(file.ok());
  struct Case {
    const char* set;
    const char* says;
  };
  const Case cases[] = {
      {"epochs", "wanted key=value"},
      {"=3", "wanted key=value"},
      {"a..b=3", "is no key"},
      {"data.feature[x].kind=NUMERIC", "is no key"},
      {"epoch=3", "did you mean 'epochs'?"},
      {"cluster.partition=64", "ClusterConfig has no key 'partition'; did you mean 'partitions'?"},
      {"epochs=three", "'three' is no value of 'epochs', which wants a whole number"},
      {"epochs=-1", "whole number from 0"},
      {"epochs=5000000000", "whole number from 0 to 4294967295"},
      {"epochs=", "whole number"},
      {"optimizer.beta1=nan", "wants a number"},
      {"data.trim=yes", "true or false"},
      {"data.format=CVS", "did you mean 'CSV'?"},
      {"epochs.more=1", "nothing can follow"},
      {"epochs[0]=1", "holds one value"},
      {"epochs+=1", "write ="},
      {"data.feature[1].kind=NUMERIC", "has 1 entries"},
      {"data.feature.kind=NUMERIC", "has 1 entries"},
      {"data.feature[0]=column: 'b'", "cannot be set by index"},
      {"model.wide_deep.embedding_dim=8", "'lr' is chosen, not 'wide_deep'"},
      {"table_rule+=tabel: 'w'", "TableRule"},
  };
  for (const Case& c : cases) {
    const absl::Status status = file->Set(c.set);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.set;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
    EXPECT_EQ(std::string(status.message()).rfind(std::string("--set ") + c.set, 0), 0u) << status;
  }
}

TEST(JobFile, AProblemNamesTheFlagThatMadeIt) {
  const auto fs = DiskWith(std::string(kGood) + "epochs: 3\n");
  absl::StatusOr<JobFile> file = JobFile::Load(*fs, "/jobs/job.textproto");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Set("cluster.partitions=3").ok());
  ASSERT_TRUE(file->Override("--epochs", "epochs", "0").ok());
  ASSERT_TRUE(file->Override("--data", "data.train", "lost.csv").ok());
  JobConfig job;
  const absl::Status status = file->Finish(*fs, TestSurroundings(), &job, nullptr);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("--set cluster.partitions=3: cluster.partitions: 3 is no power of two"));
  EXPECT_THAT(message, HasSubstr("--epochs=0: epochs: 0 is outside"));
  EXPECT_THAT(message, HasSubstr("--data=lost.csv: data.train[0]: no file 'lost.csv'"));
  EXPECT_THAT(std::string(file->Override("--workers", "cluster.workers", "two").message()),
              HasSubstr("--workers=two: 'two' is no value"));
}

TEST(JobFile, ChecksTheSettingsOfOptimizersAndSchedules) {
  const std::pair<const char*, const char*> cases[] = {
      {"optimizer.learning_rate=0", "optimizer.learning_rate: 0 is not above 0"},
      {"optimizer.momentum=1", "optimizer.momentum: 1 is not"},
      {"optimizer.decay=-0.5", "optimizer.decay"},
      {"optimizer.weight_decay=-1", "optimizer.weight_decay"},
      {"optimizer.l1=-1", "optimizer.l1"},
      {"optimizer.l2=1e9", "optimizer.l2"},
      {"optimizer.beta=0", "optimizer.beta"},
      {"optimizer.clip_value=-1", "optimizer.clip_value"},
      {"optimizer.clip_norm=-1", "optimizer.clip_norm"},
      {"optimizer.schedule.kind=cosin", "no schedule 'cosin'; did you mean 'cosine'?"},
      {"optimizer.schedule.kind=step", "needs one of them"},
      {"optimizer.schedule.kind=inverse_sqrt", "needs one of them"},
      {"optimizer.schedule.warmup_start=1.5", "optimizer.schedule.warmup_start"},
      {"optimizer.schedule.end_factor=-1", "optimizer.schedule.end_factor"},
      {"optimizer.schedule.step_factor=2", "optimizer.schedule.step_factor"},
      {"optimizer.schedule.start_factor=2", "optimizer.schedule.start_factor"},
      {"optimizer.schedule.peak_at=2", "optimizer.schedule.peak_at"},
      {"optimizer.schedule.power=0.7", "a multiple of 0.5"},
      {"optimizer.schedule.boundary=5,5", "boundary[1]: 5: boundaries increase"},
      {"table_rule+=table: 'x' optimizer { clip_norm: -1 }", "table_rule[0].optimizer.clip_norm"},
  };
  const auto fs = DiskWith(kGood);
  for (const auto& [set, says] : cases) {
    const auto job = FinishWith(*fs, {set});
    ASSERT_FALSE(job.ok()) << set;
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(says));
  }
  EXPECT_TRUE(FinishWith(*fs, {"optimizer.schedule.kind=one_cycle", "optimizer.clip_norm=1"}).ok());
}

TEST(JobFile, DataFilesAreFoundHereThenBesideTheJob) {
  const auto fs = DiskWith(kGood);
  EXPECT_EQ(FinishWith(*fs, {})->data().train(0), "/jobs/rows.csv");
  EXPECT_EQ(FinishWith(*fs, {"data.train=${DATA}/more.csv"})->data().train(0), "/data/more.csv");
  ASSERT_TRUE(WriteFileAtomically(*fs, "rows.csv", "a,y\n").ok());
  EXPECT_EQ(FinishWith(*fs, {})->data().train(0), "rows.csv");
  JobSurroundings here = TestSurroundings();
  here.current_folder = "/data";
  JobFile file;
  ASSERT_TRUE(file.Override("--data", "data.train", "more.csv").ok());
  ASSERT_TRUE(file.Set("data.feature+=column: 'a'").ok());
  ASSERT_TRUE(file.Override("--label", "data.label.column", "y").ok());
  ASSERT_TRUE(file.Set("model.lr=").ok());
  JobConfig job;
  ASSERT_EQ(file.Finish(*fs, here, &job, nullptr), absl::OkStatus());
  EXPECT_EQ(job.data().train(0), "/data/more.csv");
}

TEST(JobFile, WarningsDoNotStopTheJob) {
  const auto fs = DiskWith(std::string(kGood) + "cluster { partitions: 64 shards: 8 }\nlease_batches: 9\n");
  std::vector<std::string> warnings;
  ASSERT_TRUE(FinishWith(*fs, {}, &warnings).ok());
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_THAT(warnings[0], HasSubstr(":4:1: lease_batches: is not used"));
  EXPECT_THAT(warnings[1], HasSubstr(":3:11: cluster.partitions: 64 partitions for 8 shards"));
}

}  // namespace
}  // namespace capstan
