// From a job file and flags to a complete, checked job. Steps, in this order: Load (or start empty), Set and
// Override for the flags, Finish.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

class DataConfig;
class JobConfig;

// What a job depends on besides its text.
struct JobSurroundings {
  std::vector<std::string> optimizers;  // known names
  // Value of an environment variable, for ${NAME} in data paths; nothing where it is not set.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  // Put before relative paths, so that nodes started elsewhere find the files; "" leaves them as they are.
  std::string current_folder;
};

// The optimizers of ps/ are passed in by the caller; this fills in the process's environment and folder.
JobSurroundings ProcessSurroundings(std::vector<std::string> optimizers);

// One thread. Errors are kInvalidArgument (kNotFound: the job file), one problem per line; each begins with
// where the key was set: "FILE:line:column: key: …" or "--flag=value: …".
class JobFile {
 public:
  JobFile();  // no file: every key at its default
  ~JobFile();
  JobFile(JobFile&&) noexcept;
  JobFile& operator=(JobFile&&) noexcept;

  static absl::StatusOr<JobFile> Load(FileSystem& fs, const std::string& path);

  // The text after `--set=`: "key=value" or "key+=value" (tools/job/assign.h).
  absl::Status Set(std::string_view assignment);
  // The same for a flag with a name of its own: Override("--epochs", "epochs", "3").
  absl::Status Override(std::string_view flag, std::string_view key, std::string_view value,
                        bool append = false);
  // Takes `data` for the job's data, for example with a guessed schema filled in.
  void ReplaceData(const DataConfig& data);
  // The job as it stands, without defaults.
  const JobConfig& raw() const;

  // Fills in defaults and the batch, finds the data files (a relative path is looked for in the current
  // folder, then beside the job file), and checks everything. `warnings` may be null.
  absl::Status Finish(FileSystem& fs, const JobSurroundings& surroundings, JobConfig* job,
                      std::vector<std::string>* warnings) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
