// The update rules, compiled for scalar code, AVX2 and AVX-512, give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace capstan {
namespace {

std::string OutputOf(const std::string& variant) {
  const std::string program = std::string(CAPSTAN_BIN_DIR "/optimizer_bits_") + variant;
  std::FILE* const pipe = popen(program.c_str(), "r");
  if (pipe == nullptr) return "cannot start " + program;
  std::string output;
  char block[4096];
  for (size_t n = 0; (n = std::fread(block, 1, sizeof(block), pipe)) > 0;) output.append(block, n);
  return pclose(pipe) == 0 ? output : program + " failed";
}

TEST(OptimizerBits, AreThoseOfScalarCode) {
  const std::string scalar = OutputOf("scalar");
  EXPECT_EQ(std::count(scalar.begin(), scalar.end(), '\n'), 11) << scalar;
  EXPECT_THAT(scalar, testing::Not(testing::HasSubstr(" 0000000000000000"))) << "a rule that was not made";
  EXPECT_EQ(OutputOf("avx2"), scalar);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl")) GTEST_SKIP() << "no AVX-512 here";
  EXPECT_EQ(OutputOf("avx512"), scalar);
}

}  // namespace
}  // namespace capstan
