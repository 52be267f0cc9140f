// One input for the parser of frames: a byte of options, then the header, then the body.
#pragma once

#include <cstddef>
#include <cstdint>

namespace capstan {

// Options. A mutated input never has the right checksums, so most inputs ask to be sealed.
inline constexpr uint8_t kInputSeal = 1;       // set body_len and both checksums right
inline constexpr uint8_t kInputUnaligned = 2;  // put the body at an odd address
inline constexpr uint8_t kInputIdentify = 4;   // set magic, version and header_len right

// Takes the input through everything that a frame from a stranger goes through. Ends the process if a parser
// accepts what its header says it must not.
void ParseFrameInput(const uint8_t* data, size_t size);

}  // namespace capstan
