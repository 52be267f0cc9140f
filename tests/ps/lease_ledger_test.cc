#include "ps/lease_ledger.h"

#include <vector>

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(LeaseLedger, ABatchCountsOnce) {
  LeaseLedger ledger;
  EXPECT_TRUE(ledger.ShouldApply(3, 0));
  ledger.MarkApplied(3, 0);
  EXPECT_FALSE(ledger.ShouldApply(3, 0));
  EXPECT_TRUE(ledger.ShouldApply(3, 1));
  EXPECT_TRUE(ledger.ShouldApply(4, 0));
}

TEST(LeaseLedger, ClosedLeasesStayClosed) {
  struct Case {
    const char* why;
    LeaseId below;
    std::vector<LeaseId> above;
    std::vector<LeaseId> closed;
    std::vector<LeaseId> open;
  };
  const Case cases[] = {
      {"nothing", 1, {}, {}, {1, 2, 100}},
      {"all below", 4, {}, {1, 2, 3}, {4, 5}},
      {"and some above", 4, {6, 8}, {1, 3, 6, 8}, {4, 5, 7, 9}},
      {"listed ones may be below too", 4, {2, 6}, {2, 6}, {4, 5}},
  };
  for (const Case& c : cases) {
    LeaseLedger ledger;
    for (LeaseId lease = 1; lease < 10; ++lease) ledger.MarkApplied(lease, 0);
    ledger.Close(c.below, c.above);
    ledger.Close(1, {});  // an older order that comes late opens nothing
    for (const LeaseId lease : c.closed) EXPECT_FALSE(ledger.ShouldApply(lease, 77)) << c.why << " " << lease;
    for (const LeaseId lease : c.open) EXPECT_TRUE(ledger.ShouldApply(lease, 77)) << c.why << " " << lease;
    EXPECT_EQ(ledger.ShouldApply(9, 0), false) << c.why << ": applied before";
  }
}

TEST(LeaseLedger, ForgetsTheSetsOfClosedLeases) {
  LeaseLedger ledger;
  for (LeaseId lease = 1; lease <= 100; ++lease) ledger.MarkApplied(lease, 0);
  const std::vector<LeaseId> above = {60};
  ledger.Close(51, above);
  EXPECT_EQ(ledger.open_leases(), 49u);
}

TEST(LeaseLedger, HasRoomForWhatAJobCanHaveOpenAndNoMore) {
  LeaseLedger ledger;
  EXPECT_TRUE(ledger.HasRoom(1, 0, 2));
  ledger.MarkApplied(1, 5);
  ledger.MarkApplied(1, 6);
  EXPECT_FALSE(ledger.HasRoom(1, 7, 2)) << "a lease of two batches";
  EXPECT_TRUE(ledger.HasRoom(1, 6, 2)) << "known already";
  for (LeaseId lease = 2; lease <= LeaseLedger::kMaxOpenLeases; ++lease) ledger.MarkApplied(lease, 0);
  EXPECT_FALSE(ledger.HasRoom(1'000'000, 0, 2));
  ledger.Close(3, {});
  EXPECT_TRUE(ledger.HasRoom(1'000'000, 0, 2));
}

}  // namespace
}  // namespace capstan
