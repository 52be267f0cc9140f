#include <cstddef>
#include <cstdint>

#include "frame_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  capstan::ParseFrameInput(data, size);
  return 0;
}
