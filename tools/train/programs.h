// Where the programs of this installation are.
#pragma once

#include <string>

#include "common/status.h"

namespace capstan {

// The folder of the running program; its siblings are started from there.
std::string FolderOfThisProgram();

// Every program that a run starts is there and may be executed. kNotFound names the first that is not: better now than
// when the first checkpoint fails.
absl::Status CheckPrograms(bool processes);

}  // namespace capstan
