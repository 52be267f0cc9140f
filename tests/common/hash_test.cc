// Hashes and randomness whose values are part of the protocol (proto/FORMAT.md): the golden values were
// computed by a second implementation, or come from the functions' own published vectors.
#include "common/hash.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "common/clock.h"
#include "common/initial_value.h"
#include "common/random.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxWord = std::numeric_limits<uint64_t>::max();

TEST(Hash, Mix64Golden) {
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);  // the published first output of splitmix64 from 0
  EXPECT_EQ(Mix64(1), 0x910a2dec89025cc1u);
  EXPECT_EQ(Mix64(uint64_t{1} << 63), 0x481ec0a212a9f3dbu);
  EXPECT_EQ(Mix64(kMaxWord), 0xe4d971771b652c20u);
}

TEST(Hash, Mix64ChangesHalfOfTheBitsForOneBit) {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (uint64_t x = 0; x < 64; ++x)
      changed += __builtin_popcountll(Mix64(x) ^ Mix64(x ^ (uint64_t{1} << bit)));
    EXPECT_NEAR(changed / 64.0, 32.0, 3.0) << "bit " << bit;
  }
}

struct BytesCase {
  std::string text;
  uint64_t seed;
  uint64_t hash;
};

TEST(Hash, BytesGolden) {
  const BytesCase kCases[] = {
      {"", 0, 0x2d06800538d394c2u},        {"a", 0, 0xe6c632b61e964e1fu},
      {"abc", 0, 0x78af5f94892f3950u},     {"user_id", 0, 0xd55549748fdc4fa1u},
      {"user_id", 1, 0x8ef941d9456706eeu}, {std::string(1000, 'x'), 0, 0xc0a4877b962cba82u},
  };
  for (const BytesCase& c : kCases) {
    EXPECT_EQ(HashBytes(c.text, c.seed), c.hash) << "'" << c.text << "', seed " << c.seed;
    EXPECT_EQ(HashBytes(c.text.data(), c.text.size(), c.seed), c.hash);
  }
  EXPECT_EQ(HashBytes(nullptr, 0), 0x2d06800538d394c2u);
}

TEST(Random, CounterHashGoldenAndSensitiveToEachArgument) {
  EXPECT_EQ(CounterHash(1, 2, 3, 4), 0xd55ccd4aeb3ccafbu);
  const std::set<uint64_t> distinct = {CounterHash(1, 2, 3, 4), CounterHash(2, 2, 3, 4),
                                       CounterHash(1, 3, 3, 4), CounterHash(1, 2, 4, 4),
                                       CounterHash(1, 2, 3, 5), CounterHash(4, 3, 2, 1)};
  EXPECT_EQ(distinct.size(), 6u);
}

TEST(Random, UniformStaysInsideAndIsNeverZero) {
  EXPECT_EQ(UniformFromBits(0), -0x1.fffffcp-1f);
  EXPECT_EQ(UniformFromBits(kMaxWord), 0x1.fffffcp-1f);
  EXPECT_EQ(UniformFromBits(uint64_t{1} << 63), 0x1p-23f);         // the smallest above 0
  EXPECT_EQ(UniformFromBits((uint64_t{1} << 63) - 1), -0x1p-23f);  // the largest below
  EXPECT_EQ(UniformFromBits(Mix64(0)), 0x1.8882a4p-1f);
}

TEST(Random, UniformTakesEveryValueOnceAndIsSymmetric) {
  float before = -1.0f;
  for (uint64_t i = 0; i < (uint64_t{1} << 23); ++i) {
    const float value = UniformFromBits(i << 41);
    if (!(value > before && value < 1.0f && value != 0.0f && UniformFromBits(~(i << 41)) == -value)) {
      FAIL() << "value " << i << " is " << value << " after " << before;
    }
    before = value;
  }
}

TEST(Random, UniformHasTheRightMoments) {
  double sum = 0, squares = 0;
  constexpr int kDraws = 1 << 20;
  for (int i = 0; i < kDraws; ++i) {
    const double value = UniformFromBits(Mix64(static_cast<uint64_t>(i)));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.003);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3.0, 0.002);
}

TEST(Random, SeededIsReproducibleAndBounded) {
  SeededRandom a(5), b(5), c(6);
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(a.Next(), c.Next());  // the next seed is not this stream, one further
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(a.Below(7), 7u);
    const double unit = a.Unit();
    EXPECT_TRUE(unit >= 0.0 && unit < 1.0) << unit;
  }
}

TEST(Random, SystemDiffersEachTime) {
  SystemRandom random;
  std::set<uint64_t> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(random.Next());
  EXPECT_EQ(drawn.size(), 100u);
}

TEST(InitialValue, Golden) {  // a change changes every model
  const InitialValue value(1, "user_emb", 0.25f);
  EXPECT_EQ(value.At(0, 0), 0x1.c75cacp-3f);
  EXPECT_EQ(value.At(0, 1), -0x1.575418p-4f);
  EXPECT_EQ(value.At(kMaxWord, 15), -0x1.11339cp-3f);
}

TEST(InitialValue, DependsOnSeedTableKeyAndElementAndScalesExactly) {
  const InitialValue value(1, "user_emb", 1.0f);
  EXPECT_NE(value.At(7, 3), InitialValue(2, "user_emb", 1.0f).At(7, 3));
  EXPECT_NE(value.At(7, 3), InitialValue(1, "item_emb", 1.0f).At(7, 3));
  EXPECT_NE(value.At(7, 3), value.At(8, 3));
  EXPECT_NE(value.At(7, 3), value.At(7, 4));
  EXPECT_EQ(value.At(7, 3) * 0.5f, InitialValue(1, "user_emb", 0.5f).At(7, 3));
  EXPECT_EQ(InitialValue(1, "user_emb", 0.0f).At(7, 3), 0.0f);
}

TEST(Clock, SteadyMovesOnAndManualMovesWhenTold) {
  const SteadyClock steady;
  const Time first = steady.Now();
  EXPECT_GE(steady.Now(), first);
  ManualClock manual;
  const Time start = manual.Now();
  EXPECT_GT(start, Time{}) << "a zero time would look like 'never'";
  EXPECT_EQ(manual.Now(), start);
  manual.Advance(std::chrono::milliseconds(5));
  EXPECT_EQ(manual.Now() - start, std::chrono::milliseconds(5));
  manual.Set(start);
  EXPECT_EQ(manual.Now(), start);
}

}  // namespace
}  // namespace capstan
