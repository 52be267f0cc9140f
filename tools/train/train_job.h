// The job that `capstan train` runs, from its options.
#pragma once

#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

class JobConfig;
struct JobSurroundings;
struct TrainOptions;

// Loads the job file, or without one guesses a schema from the first file of --data and takes Wide & Deep;
// applies the flags, then every --set; completes and checks the job (tools/job/job_file.h). `notes` gets what
// a person should read: the guessed schema, and warnings. kInvalidArgument or kNotFound; messages name the
// file and line or the flag.
absl::Status MakeTrainJob(FileSystem& fs, const TrainOptions& options, const JobSurroundings& surroundings,
                          JobConfig* job, std::vector<std::string>* notes);

}  // namespace capstan
