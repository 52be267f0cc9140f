// What a person runs into around --resume: folders in use, runs that were killed early, settings that differ.
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "tests/integration/resume_testing.h"

namespace capstan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ResumeEdges : public Resume {};

TEST_F(ResumeEdges, OneRunAtATimeGoesOnInAFolder) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 20011), "batch { micro: 8 }");
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--servers=1", "--workers=1"}}) {
    const std::string output = NewOutput();
    const std::string name = fmt::format("first-{}", flags.size());
    std::vector<std::string> argv = {Program("capstan"), "train", job, "--output=" + output, "--epochs=40",
                                     "--checkpoint_steps=50"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    processes_.Start(name, argv);
    ASSERT_TRUE(Eventually(Seconds(30), [&] { return !Checkpoints(output).empty(); }));
    const Finished second = Capstan({"train", "--output=" + output, "--resume"});
    EXPECT_EQ(second.code, 2) << second.err;
    EXPECT_THAT(second.err, AllOf(HasSubstr("a run goes on in the output folder"), HasSubstr("process ")));
    EXPECT_TRUE(processes_.Running(name)) << "and the first one does not notice";
    processes_.Signal(name, SIGINT);
    ExpectEnd(name, 130, Seconds(30));
    EXPECT_EQ(GoOn(output, {"--epochs=1"}).value("status", ""), "done") << "the lock ended with its run";
  }
}

// The epoch under way is finished as it was begun; an interruption there must not lose what was asked for.
TEST_F(ResumeEdges, AChangedBatchSurvivesAnInterruption) {
  const std::string rows = WriteRows("rows.csv", 40009);
  const std::string job = WriteJob("job", rows, "batch { micro: 2 }");
  const std::string begun = TrainAndKill(job, {"--checkpoint_steps=40", "--epochs=3"}, 1);
  for (const bool in_place : {false, true}) {
    const std::string output = in_place ? begun : NewOutput();
    std::vector<std::string> argv = {Program("capstan"), "train", job, "--resume=" + begun, "--output=" + output,
                                     "--epochs=3", "--set=batch.micro=16", "--checkpoint_steps=40"};
    const size_t before = Checkpoints(output).size();
    const std::string name = fmt::format("changed-{}", in_place);
    processes_.Start(name, argv);
    ASSERT_TRUE(Eventually(Seconds(30), [&] {
      return Checkpoints(output).size() > before || !processes_.Running(name);
    }));
    if (processes_.Running(name)) processes_.Signal(name, SIGTERM);
    ASSERT_TRUE(processes_.Wait(name, Seconds(30)).has_value());
    const Finished rest = Capstan({"train", "--output=" + output, "--resume"});
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_THAT(ReadText(output + "/job.textproto"), HasSubstr("micro: 16"));
    const nlohmann::json result = ResultOf(output);
    EXPECT_EQ(result.value("examples", 0u), 3 * 40009u);
    EXPECT_LT(result.value("steps", 0u), 2 * 40009u / 8) << "after the first epochs a batch had eight times the rows";
  }
}

TEST_F(ResumeEdges, ANamedCheckpointBeginsANewFolder) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 6007), "batch { micro: 8 }");
  const nlohmann::json first = Train(job, {"--epochs=2"});
  const std::string output = first["output"];
  const std::set<std::string> before = Checkpoints(output);
  const std::string named = output + "/checkpoints/" + *before.begin();
  for (const char* const slash : {"", "/"}) {
    const std::string other = NewOutput();
    const Finished run = Capstan({"train", "--resume=" + named + slash, "--output=" + other});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(ShaOf(ResultOf(other)), ShaOf(first));
    EXPECT_THAT(ReadText(other + "/begun_from.txt"), HasSubstr(named));
  }
  EXPECT_EQ(Checkpoints(output), before);
}

TEST_F(ResumeEdges, TheFolderMayBeWrittenInAnyWay) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 12007), "batch { micro: 8 }");
  const std::string whole = ShaOf(Train(job, {"--epochs=2"}));
  const std::string output = TrainAndKill(job, {"--epochs=2", "--checkpoint_steps=30"}, 1);
  const Finished slash = Capstan({"train", "--output=" + output + "/./", "--resume"});
  EXPECT_EQ(slash.code, 0) << slash.err;
  EXPECT_EQ(ShaOf(ResultOf(output)), whole);
}

TEST_F(ResumeEdges, BeforeItsFirstCheckpointARunBeginsAnew) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 12007), "batch { micro: 8 }");
  const std::string whole = ShaOf(Train(job, {"--epochs=2"}));
  const std::string output = NewOutput();
  processes_.Start("early", {Program("capstan"), "train", job, "--output=" + output, "--epochs=2",
                             "--set=checkpoint.epoch_end=false"});
  ASSERT_TRUE(Eventually(Seconds(30), [&] { return std::filesystem::exists(output + "/job.textproto"); }));
  processes_.Signal("early", SIGKILL);
  ASSERT_TRUE(processes_.Wait("early", Seconds(20)).has_value());
  EXPECT_THAT(processes_.Leftovers(Seconds(15)), ::testing::IsEmpty());
  ASSERT_TRUE(Checkpoints(output).empty());
  const Finished in_use = Capstan({"train", job, "--output=" + output});
  EXPECT_EQ(in_use.code, 2);
  EXPECT_THAT(in_use.err, HasSubstr("go on in it with --resume"));
  const Finished run = Capstan({"train", "--output=" + output, "--resume"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("has no checkpoint yet: training begins at the beginning"));
  EXPECT_EQ(ShaOf(ResultOf(output)), whole);
  // Also where nothing is there at all, so that whoever restarts a run can say --resume each time.
  const std::string fresh = NewOutput();
  const Finished first = Capstan({"train", job, "--output=" + fresh, "--resume", "--epochs=2"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(ShaOf(ResultOf(fresh)), whole);
}

TEST_F(ResumeEdges, ATrainedRunIsLeftAlone) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 3001));
  const nlohmann::json first = Train(job, {"--epochs=2"});
  const std::string output = first["output"];
  const std::set<std::string> before = Checkpoints(output);
  const Finished again = Capstan({"train", "--output=" + output, "--resume"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("is trained already: all 2 epochs are done"));
  EXPECT_EQ(Checkpoints(output), before);
  EXPECT_EQ(ResultOf(output).value("model_sha256", ""), first.value("model_sha256", "-"));
  EXPECT_EQ(GoOn(output, {"--epochs=3"}).value("examples", 0u), 3 * 3001u);
}

TEST_F(ResumeEdges, SettingsThatDifferAreSaid) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 3001));
  const std::string output = Train(job, {})["output"];
  const Finished missing = Capstan({"train", "--output=" + output, "--resume", "--epochs=5", "--set=data.missing_value=?"});
  EXPECT_EQ(missing.code, 2) << missing.err;
  EXPECT_THAT(missing.err, AllOf(HasSubstr("data section differs"), HasSubstr("missing_value")));
  const Finished beta = Capstan({"train", "--output=" + output, "--resume", "--epochs=5", "--set=optimizer.beta1=0.8"});
  EXPECT_EQ(beta.code, 0) << beta.err;
  EXPECT_THAT(beta.err, AllOf(HasSubstr("other settings than the checkpoint's"), HasSubstr("optimizer.beta1: 0.9 -> 0.8")));
  const Finished tables = Capstan({"train", job, "--tables=wide", "--output=" + NewOutput()});
  EXPECT_EQ(tables.code, 2);
  EXPECT_THAT(tables.err, HasSubstr("give --warm_start=CHECKPOINT as well"));
  const Finished freeze = Capstan({"train", job, "--freeze=nonsense", "--output=" + NewOutput()});
  EXPECT_EQ(freeze.code, 2) << freeze.err;
  const Finished warm = Capstan({"train", job, "--warm_start=" + output, "--tables=wide", "--output=" + NewOutput()});
  EXPECT_EQ(warm.code, 0) << warm.err;
  EXPECT_THAT(warm.err, HasSubstr("begins with the weights of wide from "));
}

TEST_F(ResumeEdges, AProgramThatIsMissingIsNamedAtTheStart) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 3001));
  const std::string alone = Path("alone");
  std::filesystem::create_directory(alone);
  std::filesystem::copy_file(Program("capstan"), alone + "/capstan");
  const std::string output = NewOutput();
  processes_.Start("alone", {alone + "/capstan", "train", job, "--output=" + output});
  ExpectEnd("alone", 2, Seconds(20));
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST_F(ResumeEdges, AFullDiskIsNamedAtTheStart) {
  const std::string disk = Path("disk");
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=100m") != 0) {
    GTEST_SKIP() << "needs to mount a small tmpfs: " << std::strerror(errno);
  }
  const std::string job = WriteJob("job", WriteRows("rows.csv", 3001));
  const std::string output = disk + "/run";
  EXPECT_EQ(Capstan({"train", job, "--output=" + output, "--epochs=1"}).code, 0);
  {
    std::ofstream rest(disk + "/rest", std::ios::binary);
    const std::string block(1 << 16, 'x');
    while (rest.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--servers=1", "--workers=1"}}) {
    std::vector<std::string> arguments = {"train", "--output=" + output, "--resume", "--epochs=2"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Finished run = Capstan(arguments);
    EXPECT_EQ(run.code, 4) << run.err;
    EXPECT_THAT(run.err, HasSubstr("bytes free"));
  }
  EXPECT_EQ(umount(disk.c_str()), 0);
}

TEST_F(ResumeEdges, AskingForACheckpointTooEarlyEndsNothing) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 12007), "batch { micro: 8 }");
  for (int round = 0; round < 5; ++round) {
    const std::string output = NewOutput();
    const std::string name = fmt::format("asked-{}", round);
    processes_.Start(name, {Program("capstan"), "train", job, "--output=" + output, "--servers=1", "--workers=1"});
    ASSERT_TRUE(Eventually(Seconds(20), [&] { return std::filesystem::exists(output); }));
    EXPECT_TRUE(Eventually(Seconds(30), [&] {
      if (processes_.Running(name)) processes_.Signal(name, SIGUSR1);
      return !ReadText(output + "/metrics.jsonl").empty() || !processes_.Running(name);
    }));
    ExpectEnd(name, 0, kTrainLimit);
  }
}

}  // namespace
}  // namespace capstan::testing
