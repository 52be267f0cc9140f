#include "kernels/gpu/gpu_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(GpuInfo, SaysWhatThisBuildHasWithOrWithoutADevice) {
#if CAPSTAN_HAVE_CUDA
  EXPECT_THAT(DescribeGpu(),
              ::testing::MatchesRegex("GPU code built for sm_80, sm_90; (no device: .+|[0-9]+ device.*)"));
#else
  EXPECT_EQ(DescribeGpu(), "built without CUDA");
#endif
  EXPECT_EQ(DescribeGpu(), DescribeGpu()) << "asking again changes nothing";
}

}  // namespace
}  // namespace capstan
