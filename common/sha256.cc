#include "common/sha256.h"

#include <sodium.h>

namespace capstan {

struct Sha256::State {
  crypto_hash_sha256_state state;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { crypto_hash_sha256_init(&state_->state); }
Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t size) {
  crypto_hash_sha256_update(&state_->state, static_cast<const unsigned char*>(data), size);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  crypto_hash_sha256_final(&state_->state, digest.data());
  return digest;
}

std::string ToHex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.size());
  for (const uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace capstan
