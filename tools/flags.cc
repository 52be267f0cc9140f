#include "tools/flags.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/core.h>
#include <gflags/gflags.h>

#include "common/exit_code.h"
#include "tools/nearest_name.h"
#include "tools/print.h"

namespace capstan {
namespace {

// Flags of glog that help with any command.
const std::vector<std::string>& LoggingFlags() {
  static const auto* const kNames = new std::vector<std::string>{
      "v", "vmodule", "minloglevel", "logtostderr", "alsologtostderr", "log_dir"};
  return *kNames;
}

std::vector<std::string> KnownFlags(const Command& command) {
  std::vector<std::string> known = command.flags;
  if (command.takes_sets) known.push_back("set");
  known.push_back("help");
  known.insert(known.end(), LoggingFlags().begin(), LoggingFlags().end());
  return known;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One argument that starts with '-', taken apart.
struct FlagArgument {
  std::string name;
  std::string value;
  bool has_value = false;
  bool negated = false;  // --noflag
};

class Parser {
 public:
  Parser(const Command& command, std::span<const std::string> args)
      : command_(command), known_(KnownFlags(command)), args_(args) {}

  absl::StatusOr<CommandLine> Run() {
    bool flags_ended = false;
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      if (flags_ended || arg.size() < 2 || arg[0] != '-') {
        line_.positional.push_back(arg);
      } else if (arg == "--") {
        flags_ended = true;
      } else {
        CAPSTAN_RETURN_IF_ERROR(TakeFlag(arg));
      }
    }
    if (!line_.help && line_.positional.size() > command_.max_positional) {
      return InvalidArgument(fmt::format("'{}' is one argument too many; flags begin with --",
                                         line_.positional[command_.max_positional]));
    }
    return std::move(line_);
  }

 private:
  FlagArgument TakeApart(const std::string& arg) const {
    FlagArgument flag;
    const size_t begin = arg[1] == '-' ? 2 : 1;
    const size_t equals = arg.find('=');
    flag.has_value = equals != std::string::npos;
    flag.name = arg.substr(begin, flag.has_value ? equals - begin : std::string::npos);
    if (flag.has_value) flag.value = arg.substr(equals + 1);
    std::replace(flag.name.begin(), flag.name.end(), '-', '_');
    if (flag.name == "h") flag.name = "help";
    if (!Contains(known_, flag.name) && flag.name.rfind("no", 0) == 0 &&
        Contains(known_, flag.name.substr(2))) {
      flag.name = flag.name.substr(2);
      flag.negated = true;
    }
    return flag;
  }

  absl::Status TakeFlag(const std::string& arg) {
    FlagArgument flag = TakeApart(arg);
    if (!Contains(known_, flag.name)) {
      return InvalidArgument(fmt::format("unknown flag --{}{}", flag.name, NearestHint(flag.name)));
    }
    if (flag.name == "help") {
      line_.help = true;
      return absl::OkStatus();
    }
    gflags::CommandLineFlagInfo info;
    const bool is_set = flag.name == "set" && command_.takes_sets;
    if (!is_set && !gflags::GetCommandLineFlagInfo(flag.name.c_str(), &info)) {
      return Internal(fmt::format("--{} is listed but not defined in this program", flag.name));
    }
    const auto& bare = command_.bare_flags;
    if (info.type == "bool" && !flag.has_value) {
      flag.value = flag.negated ? "false" : "true";
    } else if (!flag.has_value && !flag.negated && std::find(bare.begin(), bare.end(), flag.name) != bare.end()) {
      flag.value = "newest";
    } else if (flag.negated) {
      return InvalidArgument(fmt::format("{}: --no… is for flags that are true or false", arg));
    } else if (!flag.has_value) {
      if (next_ >= args_.size())
        return InvalidArgument(fmt::format("--{} wants a value: --{}=…", flag.name, flag.name));
      if (args_[next_].starts_with("--")) {
        return InvalidArgument(fmt::format("--{} wants a value, and '{}' after it is a flag; a value that begins so is "
                                           "given with '=': --{}=…", flag.name, args_[next_], flag.name));
      }
      flag.value = args_[next_++];
    }
    if (is_set) {
      line_.sets.push_back(flag.value);
      return absl::OkStatus();
    }
    if (gflags::SetCommandLineOption(flag.name.c_str(), flag.value.c_str()).empty()) {
      return InvalidArgument(
          fmt::format("--{}={}: wanted {}; {}", flag.name, flag.value, Wanted(info.type), info.description));
    }
    return absl::OkStatus();
  }

  std::string NearestHint(const std::string& name) const {
    const std::string nearest = NearestName(name, known_);
    return nearest.empty() ? "; --help lists them"
                           : fmt::format("; did you mean --{}?", nearest);
  }

  static const char* Wanted(const std::string& type) {
    if (type == "bool") return "true or false";
    if (type == "double") return "a number";
    if (type == "string") return "another text";
    return type[0] == 'u' ? "a whole number from 0 on" : "a whole number";
  }

  const Command& command_;
  const std::vector<std::string> known_;
  const std::span<const std::string> args_;
  size_t next_ = 0;
  CommandLine line_;
};

int Fail(std::string_view program, const absl::Status& status) {
  const std::string message(status.message());
  Print(stderr, "{}: {}\n", program, message);
  return ToInt(ExitCode::kUsage);
}

int ParseAndRun(std::string_view program, const Command& command, std::span<const std::string> args) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(command, args);
  if (!line.ok()) return Fail(program, line.status());
  if (line->help) {
    Print("{}", HelpText(program, command));
    return ToInt(ExitCode::kDone);
  }
  return command.run(*line);
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const Command& command, std::span<const std::string> args) {
  return Parser(command, args).Run();
}

std::string HelpText(std::string_view program, const Command& command) {
  std::string text = fmt::format("{}: {}\n{}\n", program, command.summary, command.usage);
  if (!command.flags.empty() || command.takes_sets) text += "Flags:\n";
  for (const std::string& name : command.flags) {
    gflags::CommandLineFlagInfo info;
    if (!gflags::GetCommandLineFlagInfo(name.c_str(), &info)) continue;
    // A description may say itself what holds without the flag.
    const bool told = info.default_value.empty() || info.description.find("Default:") != std::string::npos;
    text += fmt::format("  --{}  {}{}\n", name, info.description,
                        told ? "" : fmt::format(" (default {})", info.default_value));
  }
  if (command.takes_sets) {
    text +=
        "  --set key=value  sets any key of the job file by its dotted path; key+=value adds to a list; may "
        "be "
        "repeated\n";
  }
  return text;
}

std::string HelpText(std::string_view program, std::span<const Command> commands, std::string_view exit_status) {
  std::string text = fmt::format("usage: {} COMMAND [ARGUMENTS] [--flags]\n\nCommands:\n", program);
  for (const Command& command : commands) text += fmt::format("  {:<8}  {}\n", command.name, command.summary);
  return text +
         fmt::format("\n'{} COMMAND --help' says more. Exit status: {}.\n", program, exit_status);
}

bool FlagGiven(const char* name) {
  gflags::CommandLineFlagInfo info;
  return gflags::GetCommandLineFlagInfo(name, &info) && !info.is_default;
}

// A standard stream that was closed must not become the number of the first socket or file.
static void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) std::abort();  // no /dev/null: no system to run on
  }
}

int RunCommand(const Command& command, int argc, char** argv) {
  OpenStandardStreams();
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return ParseAndRun(command.name, command, args);
}

int RunCommands(std::string_view program, std::string_view version, std::span<const Command> commands,
                int argc, char** argv, std::string_view exit_status) {
  OpenStandardStreams();
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  if (args.empty()) {
    Print(stderr, "{}", HelpText(program, commands, exit_status));
    return ToInt(ExitCode::kUsage);
  }
  if (args[0] == "--version") {
    Print("{} {}\n", program, version);
    return ToInt(ExitCode::kDone);
  }
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    Print("{}", HelpText(program, commands, exit_status));
    return ToInt(ExitCode::kDone);
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.push_back(command.name);
    if (command.name != args[0]) continue;
    return ParseAndRun(fmt::format("{} {}", program, command.name), command, std::span(args).subspan(1));
  }
  return Fail(program, InvalidArgument(fmt::format("no command '{}'{}", args[0], NameHint(args[0], names))));
}

}  // namespace capstan
