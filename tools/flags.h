// Command lines over gflags' registry of flags. gflags' own parser exits 1 on a bad flag and on --help, and
// keeps only the last of a repeated flag; this one returns errors (usage is 2, help is 0), collects every
// --set, and says which flag was probably meant. Flags are defined in mains; SetCommandLineOption of gflags
// does the conversions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace capstan {

struct CommandLine {
  std::vector<std::string> positional;
  std::vector<std::string> sets;  // the values of --set, in order
  bool help = false;
};

struct Command {
  std::string name;                // "train"; for a program with one command, the program's name
  std::string summary;             // one line
  std::string usage;               // what follows the summary in the help: examples, exit codes
  std::vector<std::string> flags;  // names of the gflags flags it takes; glog's common ones are taken by all
  std::vector<std::string> bare_flags = {};  // those of `flags` that may stand without =value; they are then "newest"
  bool takes_sets = false;         // --set key=value
  size_t max_positional = 0;
  std::function<int(const CommandLine&)> run;  // returns the exit code
};

// Reads `args` (without program and command) and sets the flags. Forms: --flag=value, --flag value, --flag
// and
// --noflag for booleans; "--" ends the flags. kInvalidArgument for an unknown flag (with the nearest known),
// a value that does not fit, too many positional arguments.
absl::StatusOr<CommandLine> ParseCommandLine(const Command& command, std::span<const std::string> args);

// The help of one command: summary, usage, and each flag with its description and default.
std::string HelpText(std::string_view program, const Command& command);
// What the codes of `capstan` mean; a program with others says so.
inline constexpr std::string_view kExitStatusHelp =
    "0 done, 1 failed, 2 command line or job file, 3 data, 4 saved model, 130 interrupted, 200 and up: try again";
// The help of a program with several commands.
std::string HelpText(std::string_view program, std::span<const Command> commands,
                     std::string_view exit_status = kExitStatusHelp);

// True if the flag was given on the command line.
bool FlagGiven(const char* name);

// The mains: parse, print help (exit 0) or the error (exit 2), or run. RunCommands takes the command from the
// first argument; --version and --help may stand alone.
int RunCommand(const Command& command, int argc, char** argv);
int RunCommands(std::string_view program, std::string_view version, std::span<const Command> commands,
                int argc, char** argv, std::string_view exit_status = kExitStatusHelp);

}  // namespace capstan
