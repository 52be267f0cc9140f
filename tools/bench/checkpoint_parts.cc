#include "tools/bench/checkpoint_parts.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>

namespace capstan {
namespace {

std::string NextBenchFolder() {
  static int number = 0;
  return (std::filesystem::temp_directory_path() / fmt::format("capstan-bench.{}.{}", getpid(), ++number)).string();
}

}  // namespace

BenchFolder::BenchFolder() : path_(NextBenchFolder()) { std::filesystem::create_directories(path_); }

BenchFolder::~BenchFolder() {
  std::error_code ignored;  // it is only a leftover in the system's temporary folder
  std::filesystem::remove_all(path_, ignored);
}

uint64_t ZipfRanks::Next() {
  constexpr double kPower = 1 - kExponent;
  const double rank = std::pow(1 + random_.Unit() * (std::pow(static_cast<double>(n_), kPower) - 1), 1 / kPower);
  return std::min<uint64_t>(static_cast<uint64_t>(rank) - 1, n_ - 1);
}

void MakeRequest(std::vector<Key>* keys) {
  std::sort(keys->begin(), keys->end());
  keys->erase(std::unique(keys->begin(), keys->end()), keys->end());
}

uint64_t MemoryOfProcess(pid_t pid, const std::string& line_name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(line_name + ":", 0) == 0) return std::stoull(line.substr(line_name.size() + 1)) * 1024;
  }
  return 0;
}

double CpuSecondsOfProcess(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace capstan
