// What can be wrong with a job before any data is read.
#pragma once

#include <string>
#include <vector>

namespace capstan {

class JobConfig;

struct Problem {
  std::string key;   // dotted path, for example "cluster.heartbeat_limit_ms"; where the problem is reported
  std::string text;  // what was seen, what is wanted
};

struct CheckResult {
  std::vector<Problem> errors;
  std::vector<Problem> warnings;  // the job runs
};

// Checks every key of a job whose defaults and batch are filled in, alone and against the others.
//   optimizers  the known names
CheckResult CheckJob(const JobConfig& job, const std::vector<std::string>& optimizers);

}  // namespace capstan
