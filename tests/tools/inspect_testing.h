// A run folder as the help of capstan-inspect names it, and the program run on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/control.pb.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan::testing {

struct ToolResult {
  int code = -1;
  std::string out;
  std::string err;
  nlohmann::json json() const;  // of `out`; fails the test where it is none
};

// The job of examples/adult_wide_deep.textproto over a few rows of data of the test's own, planned as training does.
EffectiveJob AdultJob(const std::string& folder);
// Two checkpoints of it, the second incremental: rows for "education" and the other columns of the data.
// "Bachelors" has rows, "Preschool" has none; dense tables have all blocks but those of "numeric".
CheckpointSpec AdultCheckpoint(const EffectiveJob& job, int layers);

// A folder with runs/adult/checkpoints/C000001 and C000002. The program runs in it.
class RunFolder {
 public:
  RunFolder();
  const std::string& path() const { return folder_.path(); }
  std::string root() const { return folder_ / "runs/adult/checkpoints"; }
  const EffectiveJob& job() const { return job_; }
  const CheckpointSpec& spec(int layers) const { return layers == 1 ? first_ : second_; }

  // Arguments as a shell takes them. `redirect`, if not empty, is where stdout goes: "/dev/full", "&-".
  ToolResult Run(const std::string& arguments, const std::string& redirect = "") const;
  // After a line of shell: "ulimit -f 1;".
  ToolResult RunWith(const std::string& before, const std::string& arguments, const std::string& redirect = "") const;

 private:
  TemporaryFolder folder_;
  EffectiveJob job_;
  CheckpointSpec first_, second_;
};

// Every file and folder below `path` with its size and the time it last changed.
std::map<std::string, std::string> Snapshot(const std::string& path);

}  // namespace capstan::testing
