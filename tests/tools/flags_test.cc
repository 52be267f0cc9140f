#include "tools/flags.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

DEFINE_uint64(test_rows, 5, "How many rows. Unit: rows.");
DEFINE_string(test_out, "", "Where to write.");
DEFINE_bool(test_quick, false, "Do less.");
DEFINE_double(test_rate, 0.5, "How fast. Default: as the job says.");

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Command TestCommand() {
  Command command;
  command.name = "try";
  command.summary = "tries things";
  command.usage = "  try FILE --test_rows=3";
  command.flags = {"test_rows", "test_out", "test_quick", "test_rate"};
  command.takes_sets = true;
  command.max_positional = 1;
  command.run = [](const CommandLine&) { return 42; };
  return command;
}

absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& args) {
  return ParseCommandLine(TestCommand(), args);
}

TEST(Flags, AllFormsOfAFlag) {
  gflags::FlagSaver saver;
  const auto line = Parse({"--test_rows=7", "file", "--test-out", "a=b", "--test_quick", "-test_rate=2.5"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->positional, ElementsAre("file"));
  EXPECT_EQ(FLAGS_test_rows, 7u);
  EXPECT_EQ(FLAGS_test_out, "a=b");
  EXPECT_TRUE(FLAGS_test_quick);
  EXPECT_EQ(FLAGS_test_rate, 2.5);
  ASSERT_TRUE(Parse({"--notest_quick"}).ok());
  EXPECT_FALSE(FLAGS_test_quick);
  EXPECT_THAT(Parse({"--", "--test_rows=9"})->positional, ElementsAre("--test_rows=9"));
  EXPECT_EQ(FLAGS_test_rows, 7u);
}

TEST(Flags, AFlagIsNoValueOfTheOneBeforeIt) {
  gflags::FlagSaver saver;
  const auto line = Parse({"--test_out", "--test_rows=9"});
  ASSERT_FALSE(line.ok());
  EXPECT_THAT(std::string(line.status().message()),
              ::testing::AllOf(HasSubstr("--test_out wants a value"), HasSubstr("'--test_rows=9'"),
                               HasSubstr("--test_out=")));
  EXPECT_EQ(FLAGS_test_rows, 5u);
  EXPECT_FALSE(Parse({"--set", "--test_rows=9"}).ok());
  ASSERT_TRUE(Parse({"--test_out=--odd", "--test_rate", "-2"}).ok());
  EXPECT_EQ(FLAGS_test_out, "--odd");
  EXPECT_EQ(FLAGS_test_rate, -2);
}

TEST(Flags, EverySetIsKept) {
  const auto line = Parse({"--set=a=1", "--set", "b+=2", "--set=a=3"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(line->sets, ElementsAre("a=1", "b+=2", "a=3"));
  EXPECT_THAT(Parse({"file"})->sets, IsEmpty());
}

TEST(Flags, GivenOrDefault) {
  gflags::FlagSaver saver;
  EXPECT_FALSE(FlagGiven("test_rows"));
  ASSERT_TRUE(Parse({"--test_rows=5"}).ok());
  EXPECT_TRUE(FlagGiven("test_rows"));
}

TEST(Flags, WhatIsWrongIsSaid) {
  struct Case {
    std::vector<std::string> args;
    const char* says;
  };
  const Case cases[] = {
      {{"--test_row=7"}, "unknown flag --test_row; did you mean --test_rows?"},
      {{"--zzzzzzzz"}, "unknown flag --zzzzzzzz; --help lists them"},
      {{"--test_rows=many"}, "--test_rows=many: wanted a whole number from 0 on; How many rows"},
      {{"--test_rows=-1"}, "whole number from 0 on"},
      {{"--test_rate=fast"}, "wanted a number"},
      {{"--test_quick=perhaps"}, "true or false"},
      {{"--test_rows"}, "--test_rows wants a value"},
      {{"--notest_rows"}, "--no… is for flags that are true or false"},
      {{"--set"}, "--set wants a value"},
      {{"one", "two"}, "'two' is one argument too many"},
      {{"--flagfile=x"}, "unknown flag --flagfile"},
  };
  for (const Case& c : cases) {
    gflags::FlagSaver saver;
    const absl::Status status = Parse(c.args).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
  }
}

TEST(Flags, HelpListsFlagsWithDefaults) {
  EXPECT_THAT(HelpText("capstan try", TestCommand()), HasSubstr("Default: as the job says.\n"));
  EXPECT_TRUE(Parse({"--help", "too", "many"})->help);
  EXPECT_THAT(HelpText("capstan try", TestCommand()),
              HasSubstr("--test_rows  How many rows. Unit: rows. (default 5)"));
}

int RunWith(std::vector<std::string> args) {
  std::vector<char*> argv;
  args.insert(args.begin(), "capstan");
  for (std::string& arg : args) argv.push_back(arg.data());
  const std::vector<Command> commands = {TestCommand()};
  return RunCommands("capstan", "1.2.3", commands, static_cast<int>(argv.size()), argv.data());
}

TEST(Flags, ExitCodes) {
  struct Case {
    std::vector<std::string> args;
    int exit_code;
    const char* prints;  // on stdout or stderr
  };
  const Case cases[] = {
      {{}, 2, "usage: capstan COMMAND"},
      {{"--help"}, 0, "tries things"},
      {{"--version"}, 0, "capstan 1.2.3"},
      {{"try"}, 42, ""},
      {{"try", "--help"}, 0, "Flags:"},
      {{"try", "--wrong"}, 2, "capstan try: unknown flag"},
      {{"tyr"}, 2, "no command 'tyr'; did you mean 'try'?"},
  };
  for (const Case& c : cases) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int exit_code = RunWith(c.args);
    std::fflush(stdout);
    const std::string printed =
        ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(exit_code, c.exit_code) << c.prints;
    EXPECT_THAT(printed, HasSubstr(c.prints));
  }
}

}  // namespace
}  // namespace capstan
