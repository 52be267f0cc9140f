// The seam between the C++ and the CUDA half of gpu_info: plain types, so that nvcc compiles as little as it
// can.
#pragma once

#include <string>
#include <vector>

namespace capstan {

struct GpuDevices {
  std::vector<std::string> names;  // of devices on which a kernel of this build ran
  std::string error;               // why there is none: no driver, no device, too old for the code built
};

// Only in builds with CUDA. Runs one trivial kernel per device: a device that is listed can be used.
GpuDevices FindGpuDevices();

}  // namespace capstan
