// Where the programs of this installation are.
#pragma once

#include <string>

namespace capstan {

// The folder of the running program; its siblings are started from there.
std::string FolderOfThisProgram();

}  // namespace capstan
