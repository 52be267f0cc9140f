// What this build and this machine know about GPUs.
#pragma once

#include <string>

namespace capstan {

// One line for `--version`: "built without CUDA", or "GPU code built for sm_80, sm_90; 1 device: NVIDIA
// H200", or why no device can be used. Never fails and needs no driver; the first call may take a second
// where there is one. Thread-safe.
std::string DescribeGpu();

}  // namespace capstan
