#include "common/sha256.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace capstan {
namespace {

struct DigestVector {
  std::string message;
  std::string digest;
};

std::string Digest(const std::string& message, size_t piece) {
  Sha256 sha;
  for (size_t at = 0; at < message.size(); at += piece) {
    sha.Update(message.data() + at, std::min(piece, message.size() - at));
  }
  return ToHex(sha.Finish());
}

TEST(Sha256, VectorsOfFips180) {
  const DigestVector kVectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const DigestVector& v : kVectors) {
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{64}, size_t{1000000}}) {
      EXPECT_EQ(Digest(v.message, piece), v.digest) << v.message.size() << " bytes in pieces of " << piece;
    }
  }
}

TEST(Sha256, HexHasLeadingZeros) {
  Sha256Digest digest = {};
  digest[31] = 0x0f;
  EXPECT_EQ(ToHex(digest), std::string(63, '0') + "f");
}

}  // namespace
}  // namespace capstan
