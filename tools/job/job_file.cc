#include "tools/job/job_file.h"

#include <cstdlib>
#include <map>
#include <utility>

#include <unistd.h>

#include <fmt/core.h>

#include "data/dataset.h"
#include "proto/job.pb.h"
#include "tools/job/assign.h"
#include "tools/job/check.h"
#include "tools/job/data_paths.h"
#include "tools/job/fill.h"
#include "tools/job/job_text.h"
#include "tools/nearest_name.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxJobBytes = uint64_t{1} << 20;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : slash == 0 ? "/" : path.substr(0, slash);
}

// The key of what holds `key`: a.b[2] → a.b → a → "".
std::string ParentKey(const std::string& key) {
  const size_t end = key.find_last_of(".[");
  return end == std::string::npos ? "" : key.substr(0, end);
}

// What data/ has to say ("data.label.column: is missing; …"), unless something about the data is known
// already.
void AddDataProblem(const DataConfig& data, std::vector<Problem>* problems) {
  for (const Problem& problem : *problems) {
    if (problem.key.rfind("data.", 0) == 0) return;
  }
  const absl::Status status = ValidateDataConfig(data);
  if (status.ok()) return;
  const std::string message(status.message());
  const size_t colon = message.find(": ");
  const bool has_key = colon != std::string::npos && message.rfind("data.", 0) == 0;
  problems->push_back(
      {has_key ? message.substr(0, colon) : "data", has_key ? message.substr(colon + 2) : message});
}

}  // namespace

struct JobFile::Impl {
  std::string path;  // "" without a file
  JobText text;
  JobConfig job;
  std::map<std::string, std::string> flags;  // key → the flag that set it

  std::string Where(const std::string& key) const {
    for (std::string k = key; !k.empty(); k = ParentKey(k)) {
      if (const auto flag = flags.find(k); flag != flags.end()) return flag->second;
    }
    return path.empty() ? "job" : text.Where(key);
  }
  std::string Describe(const Problem& problem) const {
    return fmt::format("{}: {}: {}", Where(problem.key), problem.key, problem.text);
  }
  void FindFiles(FileSystem& fs, const JobSurroundings& surroundings, const char* key,
                 google::protobuf::RepeatedPtrField<std::string>* files,
                 std::vector<Problem>* problems) const;
};

void JobFile::Impl::FindFiles(FileSystem& fs, const JobSurroundings& surroundings, const char* key,
                              google::protobuf::RepeatedPtrField<std::string>* files,
                              std::vector<Problem>* problems) const {
  const PathRule rule = {surroundings.current_folder, FolderOf(path)};
  for (int i = 0; i < files->size(); ++i) {
    absl::StatusOr<std::string> found = FindDataFile(fs, (*files)[i], surroundings.environment, rule);
    if (found.ok()) {
      (*files)[i] = *std::move(found);
    } else {
      problems->push_back({fmt::format("{}[{}]", key, i), std::string(found.status().message())});
    }
  }
}

JobSurroundings ProcessSurroundings(std::vector<std::string> optimizers) {
  JobSurroundings surroundings;
  surroundings.optimizers = std::move(optimizers);
  surroundings.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  if (char* folder = getcwd(nullptr, 0); folder != nullptr) {
    surroundings.current_folder = folder;
    std::free(folder);
  }
  return surroundings;
}

JobFile::JobFile() : impl_(std::make_unique<Impl>()) {}
JobFile::~JobFile() = default;
JobFile::JobFile(JobFile&&) noexcept = default;
JobFile& JobFile::operator=(JobFile&&) noexcept = default;

absl::StatusOr<JobFile> JobFile::Load(FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(fs, path, kMaxJobBytes);
  if (!text.ok()) return While("the job file", text.status());
  JobFile file;
  file.impl_->path = path;
  CAPSTAN_ASSIGN_OR_RETURN(file.impl_->text, JobText::Parse(*text, path));
  file.impl_->job = file.impl_->text.job();
  return file;
}

absl::Status JobFile::Set(std::string_view assignment) {
  const std::string flag = fmt::format("--set {}", assignment);
  const absl::StatusOr<Assignment> parsed = ParseAssignment(assignment);
  if (!parsed.ok()) return While(flag, parsed.status());
  CAPSTAN_RETURN_IF_ERROR(While(flag, Assign(*parsed, &impl_->job)));
  impl_->flags[parsed->key] = flag;
  return absl::OkStatus();
}

absl::Status JobFile::Override(std::string_view flag, std::string_view key, std::string_view value,
                               bool append) {
  const std::string shown = fmt::format("{}={}", flag, value);
  CAPSTAN_RETURN_IF_ERROR(While(shown, Assign({std::string(key), append, std::string(value)}, &impl_->job)));
  impl_->flags[std::string(key)] = shown;
  return absl::OkStatus();
}

void JobFile::ReplaceData(const DataConfig& data) { *impl_->job.mutable_data() = data; }

const JobConfig& JobFile::raw() const { return impl_->job; }

absl::Status JobFile::Finish(FileSystem& fs, const JobSurroundings& surroundings, JobConfig* job,
                             std::vector<std::string>* warnings) const {
  *job = impl_->job;
  FillDefaults(job);
  std::vector<Problem> problems;
  const absl::Status batch = job->ranks() == 0 ? absl::OkStatus() : InferBatch(job);
  CheckResult checked = CheckJob(*job, surroundings.optimizers);
  AddDataProblem(job->data(), &checked.errors);
  if (!batch.ok()) {
    // The batch is half filled in: what the ranges say about it would only confuse.
    std::erase_if(checked.errors, [](const Problem& p) { return p.key.rfind("batch.", 0) == 0; });
    problems.push_back({"batch.global", std::string(batch.message())});
  }
  problems.insert(problems.end(), checked.errors.begin(), checked.errors.end());
  impl_->FindFiles(fs, surroundings, "data.train", job->mutable_data()->mutable_train(), &problems);
  impl_->FindFiles(fs, surroundings, "data.eval", job->mutable_data()->mutable_eval(), &problems);
  if (warnings != nullptr) {
    for (const Problem& warning : checked.warnings) warnings->push_back(impl_->Describe(warning));
  }
  if (problems.empty()) return absl::OkStatus();
  std::vector<std::string> lines;
  for (const Problem& problem : problems) lines.push_back(impl_->Describe(problem));
  return InvalidArgument(JoinText(lines, "\n"));
}

}  // namespace capstan
