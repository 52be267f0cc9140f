#include "kernels/gpu/gpu_info.h"

#include <fmt/format.h>

#include "kernels/gpu/gpu_devices.h"

namespace capstan {

#if CAPSTAN_HAVE_CUDA

std::string DescribeGpu() {
  const GpuDevices devices = FindGpuDevices();
  std::string text = fmt::format("GPU code built for {}; ", CAPSTAN_GPU_TARGETS);
  if (!devices.error.empty()) return text + "no device: " + devices.error;
  text += fmt::format("{} {}", devices.names.size(), devices.names.size() == 1 ? "device" : "devices");
  return devices.names.empty() ? text : text + ": " + fmt::format("{}", fmt::join(devices.names, ", "));
}

#else

std::string DescribeGpu() { return "built without CUDA"; }

#endif

}  // namespace capstan
