// What the tests of data/ share: configs from text, files in memory, a scan and a read in one line.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "data/dataset.h"
#include "proto/control.pb.h"
#include "proto/job.pb.h"

namespace capstan::testing_data {

inline DataConfig ConfigOf(const std::string& text) {
  DataConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

inline void Put(FileSystem& fs, const std::string& path, const std::string& contents) {
  const absl::Status status = WriteFileAtomically(fs, path, contents);
  ASSERT_TRUE(status.ok()) << status;
}

struct Scanned {
  DataPlan plan;
  Recipe recipe;
};

inline absl::StatusOr<Scanned> Scan(FileSystem& fs, const DataConfig& config,
                                    const std::vector<std::string>& files, SplitRule rule = {},
                                    Recipe recipe = {}) {
  Scanned scanned;
  scanned.recipe = std::move(recipe);
  CAPSTAN_RETURN_IF_ERROR(ScanData(fs, config, files, rule, &scanned.plan, &scanned.recipe));
  return scanned;
}

// All splits of the files in order.
inline absl::StatusOr<std::vector<ParsedSplit>> ReadAll(FileSystem& fs, const DataConfig& config,
                                                        const Scanned& scanned, bool labels = true) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset,
                           Dataset::Open(fs, config, scanned.plan, scanned.recipe));
  dataset->SetLabelsRequired(labels);
  std::vector<ParsedSplit> splits;
  for (int i = 0; i < scanned.plan.split_size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(ParsedSplit split, dataset->ReadSplit(static_cast<uint32_t>(i)));
    splits.push_back(std::move(split));
  }
  return splits;
}

// Folder of the public data sets, or "" if it is not there.
inline std::string DataDir() {
  const char* given = std::getenv("CAPSTAN_DATA_DIR");
  const std::string folder = given != nullptr ? given : std::string(CAPSTAN_SOURCE_DIR) + "/../shared/data";
  const absl::StatusOr<bool> there = PosixFileSystem().Exists(folder + "/adult/adult.data.gz");
  return there.ok() && *there ? folder : "";
}

inline std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace capstan::testing_data
