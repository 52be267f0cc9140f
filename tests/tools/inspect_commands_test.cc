// capstan-inspect as a person meets it: help, exit codes, streams, and that it only reads.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/inspect_testing.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;
using testing::RunFolder;
using testing::Snapshot;
using testing::ToolResult;

std::vector<std::string> LinesThatBeginWith(const std::string& text, const std::string& start) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with(start)) lines.push_back(line.substr(start.size()));
    begin = end + 1;
  }
  return lines;
}

const char* const kSubCommands[] = {"ls",     "show",   "stat",  "get",     "diff",
                                    "verify", "export", "merge", "reshard", "plot"};

TEST(InspectCommands, TheHelpNamesEachAndTheirExamplesRunAsTheyStand) {
  const RunFolder run;
  const auto before = Snapshot(run.path() + "/runs");
  const ToolResult all = run.Run("--help");
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, HasSubstr("Exit status: 0 done, 1 diff found a difference, 2 command line, 4 a checkpoint"));
  for (const std::string command : kSubCommands) {
    SCOPED_TRACE(command);
    EXPECT_THAT(all.out, HasSubstr("\n  " + command + " "));
    const ToolResult help = run.Run(command + " --help");
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out, HasSubstr("Exit status: 0"));
    const std::vector<std::string> examples = LinesThatBeginWith(help.out, "  capstan-inspect ");
    EXPECT_FALSE(examples.empty());
    for (const std::string& example : examples) {
      EXPECT_TRUE(example.starts_with(command + " ")) << example;
      const ToolResult result = run.Run(example);
      EXPECT_EQ(result.code, 0) << example << "\n" << result.err;
      EXPECT_FALSE(result.out.empty()) << example;
    }
  }
  EXPECT_EQ(Snapshot(run.path() + "/runs"), before);
}

TEST(InspectCommands, ReadAFolderThatNobodyMayWrite) {
  const RunFolder run;
  using std::filesystem::perms;
  const auto set = [&](perms which, std::filesystem::perm_options how) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run.path() + "/runs"))
      std::filesystem::permissions(entry.path(), which, how);
  };
  const perms write = perms::owner_write | perms::group_write | perms::others_write;
  set(write, std::filesystem::perm_options::remove);
  const auto before = Snapshot(run.path() + "/runs");
  for (const char* const arguments :
       {"ls runs/adult", "show runs/adult", "stat runs/adult", "get runs/adult wide 0", "diff runs/adult runs/adult",
        "verify runs/adult", "plot runs/adult --out=plot.svg"}) {
    EXPECT_EQ(run.Run(arguments).code, 0) << arguments;
  }
  EXPECT_EQ(Snapshot(run.path() + "/runs"), before);
  set(perms::owner_write, std::filesystem::perm_options::add);
}

struct UsageCase {
  const char* arguments;
  int code;
  const char* says;
};
constexpr UsageCase kUsageCases[] = {
    {"", 2, "usage: capstan-inspect COMMAND"},
    {"lst runs/adult", 2, "no command 'lst'; did you mean 'ls'?"},
    {"ls", 2, "CHECKPOINT is missing"},
    {"verify", 2, "CHECKPOINT is missing"},
    {"ls runs/adult more", 2, "'more' is one argument too many"},
    {"show runs/adult --jsn", 2, "did you mean --json?"},
    {"show runs/nobody", 4, "'runs/nobody' does not exist"},
    {"ls runs/nobody", 4, "runs/nobody"},
    {"ls runs", 4, "holds no checkpoints"},
    {"stat runs/adult --by=weight", 2, "--by='weight' is none of norm, count, age"},
    {"stat runs/adult --table='('", 2, "is no regular expression"},
    {"stat runs/adult --table=wode", 2, "matches no table; there are wide, numeric, bias, embedding"},
    {"get runs/adult", 2, "wanted CHECKPOINT TABLE KEY"},
    {"get runs/adult wide", 2, "wanted CHECKPOINT TABLE KEY"},
    {"get runs/adult wode 1", 2, "there is no table 'wode'; there are wide"},
    {"get runs/adult wide 12x", 2, "'12x' is no key"},
    {"get runs/adult wide 18446744073709551616", 2, "is no key"},
    {"get runs/adult wide --value=Bachelors", 2, "--column"},
    {"get runs/adult --column=age2 --value=1", 2, "no categorical feature reads the column 'age2'"},
    {"get runs/adult --column=fnlwgt --value=1", 2, "'fnlwgt'"},
    {"get runs/adult numeric --column=education --value=Bachelors", 2, "dense"},
    {"diff runs/adult", 2, "wanted two checkpoints"},
    {"diff runs/adult runs/nobody", 4, "runs/nobody"},
    {"plot runs/adult", 2, "--out=FILE.svg is missing"},
    {"plot runs/adult --out=x.png", 2, "--out=x.png: only .svg is written"},
    {"plot runs/adult --what=width --out=x.svg", 2, "--what='width'"},
    {"plot runs/adult --out=/proc/nowhere/x.svg", 4, "/proc/nowhere"},
    {"reshard runs/adult --out=few", 2, "--shards=N is missing"},
    {"get runs/adult deep/0/bias 3000000", 2, "a key is the number of a block, from 0 to"},
    {"export runs/adult --format=npz --out=-", 2, "only --format=csv goes to stdout"},
    {"export runs/adult --format=csv --out=-", 2, "choose one with --table"},
    {"stat runs/adult --table --json", 2, "--table wants a value"},
    {"plot runs/adult --out=runs/adult/checkpoints/C000002/x.svg", 2, "inside the checkpoint"},
};

TEST(InspectCommands, SayWhatIsWrongAndWithWhichCode) {
  const RunFolder run;
  const auto before = Snapshot(run.path() + "/runs");
  for (const UsageCase& c : kUsageCases) {
    const ToolResult result = run.Run(c.arguments);
    EXPECT_EQ(result.code, c.code) << c.arguments << "\n" << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.says)) << c.arguments;
    EXPECT_EQ(result.out, "") << c.arguments;
  }
  EXPECT_EQ(Snapshot(run.path() + "/runs"), before);
}

TEST(InspectCommands, AFullOrClosedStdoutIsAFailure) {
  const RunFolder run;
  for (const std::string arguments :
       {"ls runs/adult", "show runs/adult --json", "stat runs/adult", "get runs/adult wide 0", "verify runs/adult",
        "diff runs/adult runs/adult", "plot runs/adult --out=x.svg", "ls --help", "--help", "--version"}) {
    for (const char* const where : {"/dev/full", "&-"}) {
      const ToolResult result = run.Run(arguments, where);
      EXPECT_EQ(result.code, 4) << arguments << " >" << where;
      EXPECT_THAT(result.err, HasSubstr("stdout")) << arguments << " >" << where;
    }
  }
}

}  // namespace
}  // namespace capstan
