#include "tools/launcher/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace capstan {
namespace {

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
  if (names.empty()) return path;
  return InvalidArgument(
      fmt::format("the output folder '{}' is in use (it holds '{}'); choose another --output, or "
                  "move it away",
                  path, names[0]));
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
  CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().MakeFolders(folder.path_ + "/logs"));
  return folder;
}

absl::StatusOr<RunFolder> RunFolder::Open(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const bool exists, PosixFileSystem().Exists(path));
  if (!exists) return NotFound(fmt::format("the output folder '{}' does not exist", path));
  return RunFolder(path);
}

std::string RunFolder::log_path(std::string_view process) const {
  return fmt::format("{}/logs/{}.log", path_, process);
}

absl::Status RunFolder::WriteJob(std::string_view text) {
  return WriteFileAtomically(PosixFileSystem(), path_ + "/job.textproto", text);
}

absl::Status RunFolder::AppendMetrics(std::string_view line) {
  if (metrics_ == nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(metrics_, PosixFileSystem().Create(path_ + "/metrics.jsonl"));
  }
  CAPSTAN_RETURN_IF_ERROR(metrics_->Append(line.data(), line.size()));
  CAPSTAN_RETURN_IF_ERROR(metrics_->Append("\n", 1));
  return metrics_->Sync();
}

absl::Status RunFolder::WriteResult(const RunResult& result) {
  return WriteFileAtomically(PosixFileSystem(), path_ + "/result.json", ResultJson(result));
}

}  // namespace capstan
