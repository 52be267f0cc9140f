// What the parts of `capstan-bench checkpoint` share.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/types.h"

namespace capstan {

// A temporary folder that goes with this object.
class BenchFolder {
 public:
  BenchFolder();
  ~BenchFolder();
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
};

// Ranks 0 … n-1 of a Zipf distribution, by inversion of its continuous form: good enough to heat some rows.
class ZipfRanks {
 public:
  static constexpr double kExponent = 1.05;
  ZipfRanks(uint64_t n, uint64_t seed) : n_(n), random_(seed) {}
  uint64_t Next();

 private:
  const uint64_t n_;
  SeededRandom random_;
};

constexpr Key KeyOfBenchRow(uint64_t row) { return Mix64(row + 17); }
// Sorted, without repeats: as a request has them.
void MakeRequest(std::vector<Key>* keys);

// A line of /proc/PID/status ("VmRSS"), in bytes; 0: it is not there.
uint64_t MemoryOfProcess(pid_t pid, const std::string& line_name);
// CPU time of all threads of a process so far; 0: there is no such process.
double CpuSecondsOfProcess(pid_t pid);

}  // namespace capstan
