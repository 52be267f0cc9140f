#include "kernels/cpu_isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/compute_thread.h"
#include "kernels/matmul.h"

namespace capstan {
namespace {

using Code = absl::StatusCode;

// Pinning lasts for the process, so each case runs in one of its own.
template <typename Body>
void InOwnProcess(const Body& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(body() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(CpuIsaDeathTest, IsPinnedOnce) {
  InOwnProcess([] {
    return PinCpuIsa("avx2").ok() && PinCpuIsa("avx2").ok() &&
           PinCpuIsa("sse4").code() == Code::kInvalidArgument;
  });
}

TEST(CpuIsaDeathTest, RefusesAnotherOneLater) {
  if (BestCpuIsa() != "avx512") GTEST_SKIP() << "this machine has AVX2 only";
  InOwnProcess([] { return PinCpuIsa("avx2").ok() && PinCpuIsa("avx512").code() == Code::kInvalidArgument; });
  InOwnProcess([] { return PinCpuIsa("avx512").ok() && PinCpuIsa("avx2").code() == Code::kInvalidArgument; });
}

TEST(CpuIsaDeathTest, RefusesWhatTheMachineLacks) {
  if (BestCpuIsa() == "avx512") GTEST_SKIP() << "this machine has AVX-512";
  InOwnProcess([] { return PinCpuIsa("avx512").code() == Code::kInvalidArgument; });
}

TEST(CpuIsaDeathTest, RefusesUnknownNames) {
  InOwnProcess([] {
    return PinCpuIsa("").code() == Code::kInvalidArgument &&
           PinCpuIsa("AVX2").code() == Code::kInvalidArgument &&
           PinCpuIsa("auto").code() == Code::kInvalidArgument && PinCpuIsa("avx2").ok();
  });
}

TEST(CpuIsaDeathTest, RefusesToComeAfterTheFirstProduct) {
  if (BestCpuIsa() != "avx512") GTEST_SKIP() << "on AVX2 the default and the pinned one are the same";
  InOwnProcess([] {
    std::vector<float> x(64, 1.0f), w(64, 1.0f), y(64);
    MatrixProducts().Forward({8, 8, 8, 8}, x.data(), w.data(), nullptr, false, y.data());
    return PinCpuIsa("avx2").code() == Code::kFailedPrecondition;
  });
}

TEST(CpuIsa, BestIsAKnownName) { EXPECT_TRUE(BestCpuIsa() == "avx2" || BestCpuIsa() == "avx512"); }

TEST(FloatMode, FlushesDenormalsInThisThreadOnly) {
  const auto halved_smallest = [] {
    volatile float smallest = std::numeric_limits<float>::min();
    return smallest * 0.5f;
  };
  float flushed = -1;
  std::thread([&] {
    SetFloatMode();
    flushed = halved_smallest();
  }).join();
  EXPECT_EQ(flushed, 0.0f);
  float kept = -1;
  std::thread([&] { kept = halved_smallest(); }).join();
  EXPECT_GT(kept, 0.0f);
}

}  // namespace
}  // namespace capstan
