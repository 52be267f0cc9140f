#include "common/status.h"

#include <string>

#include <gtest/gtest.h>

namespace capstan {
namespace {

struct MakerCase {
  absl::Status (*make)(std::string_view);
  absl::StatusCode code;
};

TEST(Status, EveryMakerHasItsCode) {
  const MakerCase kCases[] = {
      {InvalidArgument, absl::StatusCode::kInvalidArgument},
      {NotFound, absl::StatusCode::kNotFound},
      {Unavailable, absl::StatusCode::kUnavailable},
      {Aborted, absl::StatusCode::kAborted},
      {ResourceExhausted, absl::StatusCode::kResourceExhausted},
      {DataLoss, absl::StatusCode::kDataLoss},
      {DeadlineExceeded, absl::StatusCode::kDeadlineExceeded},
      {Internal, absl::StatusCode::kInternal},
  };
  for (const MakerCase& c : kCases) {
    const absl::Status status = c.make("what happened");
    EXPECT_EQ(status.code(), c.code);
    EXPECT_EQ(status.message(), "what happened");
  }
}

TEST(Status, WhileAddsTheContextAndKeepsTheCode) {
  const absl::Status inner = DataLoss("line 3: no label");
  const absl::Status outer = While("scanning", While("reading 'a.csv'", inner));
  EXPECT_EQ(outer.message(), "scanning: reading 'a.csv': line 3: no label");
  EXPECT_EQ(outer.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(While("anything", absl::OkStatus()).ok());
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument("odd");
  return n / 2;
}
absl::Status QuarterInto(int n, int* out) {
  CAPSTAN_ASSIGN_OR_RETURN(const int half, Half(n));
  CAPSTAN_ASSIGN_OR_RETURN(*out, Half(half));
  CAPSTAN_RETURN_IF_ERROR(*out == 0 ? NotFound("zero") : absl::OkStatus());
  return absl::OkStatus();
}

TEST(Status, MacrosReturnTheFirstError) {
  int out = -1;
  EXPECT_TRUE(QuarterInto(8, &out).ok());
  EXPECT_EQ(out, 2);
  EXPECT_EQ(QuarterInto(7, &out).message(), "odd");
  EXPECT_EQ(QuarterInto(6, &out).message(), "odd");
  EXPECT_EQ(QuarterInto(0, &out).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace capstan
