// SHA-256 (FIPS 180-4) by libsodium.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace capstan {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Update(const void* data, size_t size);
  Sha256Digest Finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string ToHex(const Sha256Digest& digest);

}  // namespace capstan
