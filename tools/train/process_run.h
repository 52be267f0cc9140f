// `capstan train --servers=N`: starts scheduler, servers and workers as processes on free ports of this machine,
// watches them, and cleans all of them up.
#pragma once

#include <string>

#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"
#include "tools/train/start_point.h"

namespace capstan {

class EffectiveJob;

// `programs`: the folder with capstan-scheduler, capstan-ps and capstan-worker. The first process that fails is the
// cause that the result names. Call before other threads start.
RunResult RunProcesses(const EffectiveJob& job, RunFolder& folder, const StartPoint& start, const std::string& programs, ProgressView& view);

}  // namespace capstan
