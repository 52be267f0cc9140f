// Job files as text: parsing with file:line:column in every error, and printing.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"

namespace capstan {

class JobConfig;

// The text of a job file, parsed, and where each key stands in it. Movable, one thread.
class JobText {
 public:
  JobText();  // an empty text
  ~JobText();
  JobText(JobText&&) noexcept;
  JobText& operator=(JobText&&) noexcept;

  // kInvalidArgument, one line per error: "FILE:line:column: what is wrong", with the nearest known name for
  // a key or an enum value that does not exist. `file` is used in messages only.
  static absl::StatusOr<JobText> Parse(std::string_view text, const std::string& file);

  const JobConfig& job() const;
  // "FILE:line:column" of a key, for example "cluster.partitions" or "data.feature[2].column"; of the nearest
  // message around it where the key itself is absent; "FILE" where that is absent too.
  std::string Where(std::string_view key) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The job in text format, readable by Parse.
std::string PrintJob(const JobConfig& job);

}  // namespace capstan
