#include "kernels/gpu/gpu_devices.h"

#include <cuda_runtime.h>

namespace capstan {
namespace {

constexpr int kProbe = 0x0ca9;

__global__ void WriteProbe(int* out) { *out = kProbe; }

// Runs the probe on the current device: proves that the code of this build, not only the driver, works there.
cudaError_t RunProbe() {
  int* on_device = nullptr;
  if (const cudaError_t error = cudaMalloc(&on_device, sizeof(int)); error != cudaSuccess) return error;
  int seen = 0;
  WriteProbe<<<1, 1>>>(on_device);
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaMemcpy(&seen, on_device, sizeof seen, cudaMemcpyDeviceToHost);
  const cudaError_t freed = cudaFree(on_device);
  if (error == cudaSuccess) error = freed;
  return error == cudaSuccess && seen != kProbe ? cudaErrorUnknown : error;
}

}  // namespace

GpuDevices FindGpuDevices() {
  GpuDevices found;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    found.error = cudaGetErrorString(error);
    return found;
  }
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties = {};
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) error = RunProbe();
    if (error == cudaSuccess) {
      found.names.emplace_back(properties.name);
    } else if (found.error.empty()) {
      found.error = cudaGetErrorString(error);
    }
  }
  if (!found.names.empty()) found.error.clear();
  return found;
}

}  // namespace capstan
