#include "tools/nearest_name.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(NearestName, EditDistance) {
  struct Case {
    const char* a;
    const char* b;
    size_t distance;
  };
  const Case cases[] = {
      {"", "", 0},           {"", "abc", 3},         {"abc", "", 3},           {"train", "train", 0},
      {"train", "trian", 1}, {"epoch", "epochs", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1},
      {"ca", "abc", 3},  // restricted: no edit inside a swapped pair
  };
  for (const Case& c : cases) EXPECT_EQ(EditDistance(c.a, c.b), c.distance) << c.a << " " << c.b;
}

TEST(NearestName, OnlyWhatIsNear) {
  const std::vector<std::string> known = {"train", "eval", "predict", "gen"};
  EXPECT_EQ(NearestName("trian", known), "train");
  EXPECT_EQ(NearestName("evla", known), "eval");
  EXPECT_EQ(NearestName("predcit", known), "predict");
  EXPECT_EQ(NearestName("inspect", known), "");
  EXPECT_EQ(NameHint("trian", known), "; did you mean 'train'?");
  EXPECT_EQ(NameHint("zzzz", known), "; known are train, eval, predict, gen");
  EXPECT_EQ(NameHint("zzzz", {}), "");
}

}  // namespace
}  // namespace capstan
