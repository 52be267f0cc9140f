#include "tools/launcher/run_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>

#include <fmt/core.h>
#include <nlohmann/json.hpp>


namespace capstan {
namespace {

constexpr uint64_t kLeastFreeBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxMetricsBytes = uint64_t{1} << 30;

std::string TimeForName(int64_t now) {
  const auto seconds = static_cast<std::time_t>(now);
  std::tm local = {};
  localtime_r(&seconds, &local);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &local);
  return std::string(text, size);
}

// mkdir is the one call of which only one of several processes gets a yes, so it is what claims a name.
enum class Claim { kMine, kTaken };
absl::StatusOr<Claim> ClaimFolder(const std::string& path) {
  if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0) {
    CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().MakeFolders(path.substr(0, slash)));
  }
  if (mkdir(path.c_str(), 0755) == 0) return Claim::kMine;
  if (errno == EEXIST) return Claim::kTaken;
  return Unavailable(fmt::format("making the output folder '{}': {}", path, std::strerror(errno)));
}

absl::StatusOr<std::string> ClaimDefault(const std::string& job_name, int64_t now) {
  const std::string base = fmt::format("runs/{}-{}", job_name, TimeForName(now));
  for (int number = 1; number < 1000; ++number) {
    const std::string path = number == 1 ? base : fmt::format("{}-{}", base, number);
    CAPSTAN_ASSIGN_OR_RETURN(const Claim claim, ClaimFolder(path));
    if (claim == Claim::kMine) return path;
  }
  return Unavailable(fmt::format("'{}' and 999 more names are taken; give --output", base));
}

absl::StatusOr<std::string> ClaimGiven(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  CAPSTAN_ASSIGN_OR_RETURN(const Claim claim, ClaimFolder(path));
  if (claim == Claim::kMine) return path;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, PosixFileSystem().List(path));
  // A lock alone is of a run that ended before it wrote anything.
  const auto other = std::find_if(names.begin(), names.end(),
                                  [](const std::string& name) { return name != kRunLockFile; });
  if (other == names.end()) return path;
  const bool of_a_run = std::find(names.begin(), names.end(), "job.textproto") != names.end();
  return InvalidArgument(
      fmt::format("the output folder '{}' is in use (it holds '{}'); {}choose another --output, or move it away", path,
                  *other, of_a_run ? "go on in it with --resume, " : ""));
}

nlohmann::ordered_json NumberOrNull(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace

std::string ResultJson(const RunResult& result) {
  nlohmann::ordered_json json;
  json["status"] = result.status;
  if (!result.reason.empty()) json["reason"] = result.reason;
  json["exit_code"] = result.exit_code;
  json["examples"] = result.examples;
  json["steps"] = result.steps;
  json["seconds"] = result.seconds;
  json["examples_per_second"] =
      result.seconds > 0 ? static_cast<double>(result.examples) / result.seconds : 0.0;
  json["model_sha256"] = nullptr;
  if (!result.model_sha256.empty()) json["model_sha256"] = result.model_sha256;
  json["checkpoint"] = nullptr;
  if (!result.checkpoint.empty()) json["checkpoint"] = result.checkpoint;
  json["eval"] = nullptr;
  if (result.eval) {
    nlohmann::ordered_json eval;
    eval["rows"] = result.eval->rows;
    eval["auc"] = NumberOrNull(result.eval->auc);
    eval["logloss"] = NumberOrNull(result.eval->logloss);
    eval["accuracy"] = NumberOrNull(result.eval->accuracy);
    eval["calibration"] = NumberOrNull(result.eval->calibration);
    json["eval"] = eval;
  }
  // A message may hold bytes of a data file that are no UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<RunFolder> RunFolder::Create(const std::string& output, const std::string& job_name,
                                            int64_t now) {
  absl::StatusOr<std::string> path = output.empty() ? ClaimDefault(job_name, now) : ClaimGiven(output);
  if (!path.ok()) return path.status();
  RunFolder folder(*std::move(path));
  CAPSTAN_ASSIGN_OR_RETURN(folder.lock_, RunLock::Take(folder.path_));
  CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().MakeFolders(folder.path_ + "/logs"));
  return folder;
}

absl::StatusOr<RunFolder> RunFolder::Open(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const bool exists, PosixFileSystem().Exists(path));
  if (!exists) return NotFound(fmt::format("the output folder '{}' does not exist", path));
  return RunFolder(path);
}

absl::StatusOr<RunFolder> RunFolder::Continue(const std::string& path, uint64_t examples) {
  CAPSTAN_ASSIGN_OR_RETURN(RunFolder folder, Open(path));
  CAPSTAN_ASSIGN_OR_RETURN(folder.lock_, RunLock::Take(path));
  CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().MakeFolders(path + "/logs"));
  CAPSTAN_RETURN_IF_ERROR(folder.Rewind(examples));
  return folder;
}

absl::Status RunFolder::Rewind(uint64_t examples) {
  FileSystem& fs = PosixFileSystem();
  metrics_.reset();
  const absl::Status removed = fs.Remove(path_ + "/result.json");
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  // What came after the checkpoint is trained, and told, once more.
  const absl::StatusOr<std::string> text = ReadWholeFile(fs, path_ + "/metrics.jsonl", kMaxMetricsBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  std::string kept;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = text->find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string line = text->substr(begin, end + 1 - begin);
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("examples", uint64_t{0}) <= examples) kept += line;
    begin = end + 1;
  }
  return WriteFileAtomically(fs, path_ + "/metrics.jsonl", kept);
}

std::string RunFolder::log_path(std::string_view process) const {
  return fmt::format("{}/logs/{}.log", path_, process);
}

absl::Status RunFolder::CheckSpace() const {
  const absl::StatusOr<uint64_t> free = PosixFileSystem().FreeBytes(path_);
  if (!free.ok() || *free >= kLeastFreeBytes) return absl::OkStatus();  // whoever does not say may have enough
  return absl::ResourceExhaustedError(fmt::format("the disk of the output folder '{}' has {} bytes free, wanted at least "
                                                  "{}: make room, or choose another --output", path_, *free,
                                                  kLeastFreeBytes));
}

absl::Status RunFolder::WriteJob(std::string_view text) {
  return WriteFileAtomically(PosixFileSystem(), path_ + "/job.textproto", text);
}

absl::Status RunFolder::WriteOrigin(std::string_view flags) {
  return WriteFileAtomically(PosixFileSystem(), path_ + "/" + kOriginFile, flags);
}

absl::Status RunFolder::AppendMetrics(std::string_view line) {
  const std::string path = path_ + "/metrics.jsonl";
  if (metrics_ == nullptr) metrics_.reset(std::fopen(path.c_str(), "ae"));
  const std::string text = std::string(line) + "\n";
  if (metrics_ != nullptr && std::fwrite(text.data(), 1, text.size(), metrics_.get()) == text.size() &&
      std::fflush(metrics_.get()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  metrics_.reset();  // what could not be written is not tried again with the next line
  return Unavailable(fmt::format("writing '{}': {}", path, std::strerror(error)));
}

absl::Status RunFolder::WriteResult(const RunResult& result) {
  return WriteFileAtomically(PosixFileSystem(), path_ + "/result.json", ResultJson(result));
}

}  // namespace capstan
