// Local mode: scheduler, server and workers as threads of one process, over the in-process transport. The same nodes
// and cores as on many machines.
#pragma once

#include <string>

#include "common/status.h"
#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"
#include "tools/train/start_point.h"

namespace capstan {

class EffectiveJob;

// Trains and evaluates; SIGINT and SIGTERM end it with 130. Call before other threads start.
RunResult RunLocally(const EffectiveJob& job, RunFolder& folder, const StartPoint& start, ProgressView& view);

}  // namespace capstan
