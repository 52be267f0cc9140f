// What `capstan eval` does for one model and, with --follow, for every new checkpoint of a run. Inside tools/eval only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/exit_code.h"
#include "common/status.h"
#include "storage/saved_model.h"
#include "tools/eval/eval_commands.h"
#include "tools/eval/evaluate.h"

namespace capstan {

int Complain(std::string_view command, const absl::Status& status, ExitCode code);
// What a failed scoring says to the shell: the data is wrong, the saved model is, or the run itself failed.
ExitCode ScoringCode(const absl::Status& status);
// The newest good one of a run, every file's hash checked; newer ones that are damaged are named on stderr.
absl::StatusOr<std::unique_ptr<SavedModel>> LoadModel(std::string_view command, const std::string& path);
ScoreOptions ScoringOptions(const EvalCommandOptions& options);
// One line of JSON on stdout, one for a person on stderr.
absl::Status ShowReport(const EvalReport& report, const SavedModel& model, bool name_checkpoint, std::string* json);

// The newest checkpoint of a run whenever there is a new one, until the run has ended. A single checkpoint is measured
// once. Returns the exit code: 200 when the run's processes are gone without a result, 204 without news for too long.
int FollowRun(const EvalCommandOptions& options);

}  // namespace capstan
