#include "data/generator.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/generator_blocks.h"

namespace capstan {
namespace {

using ::testing::ElementsAreArray;

// One per test binary: calibration takes a while under a sanitizer.
const ClickLog& SeedOne() {
  static const ClickLog* log = new ClickLog(1);
  return *log;
}

std::string Tsv(const ClickLog& log, const ClickRow& row) {
  std::string text;
  log.AppendTsv(row, &text);
  return text;
}

struct GoldenRow {
  uint64_t row;
  double logit;
  double probability;
  bool clicked;
  const char* text;
  std::vector<uint32_t> ranks;
};

// From an independent implementation of the same definition.
const std::vector<GoldenRow>& GoldenRows() {
  static const std::vector<GoldenRow> rows = {
      {0,
       -0.438852770403594,
       0.392014365026580,
       true,
       "1\t\t45\t72\t\t5558\t70\t42\t51\t63\t\t1\t0\t"
       "\t2183854a\taf197388\t6712420f\t17f13a16\td4cd97dc\t\ta72360df\t26196d2f\tb4f769ee\t88551980\t43dbad8"
       "a\t2d1dc503\t860ef83a\t662e1904\t11598564\t592cdbbc\t95b2db56\t35c31eaa\teae4bab4\t0c56be17\t74c09df4"
       "\t\t00c03bc8\t35f55eca\tc96f977f\t1d0e2008",
       {4, 47, 67, 20, 1,    0, 1266, 2,  1, 179, 16,     56, 391,
        2, 22, 39, 3,  3553, 1, 3,    47, 0, 1,   161576, 12, 7}},
      {1,
       -1.060168430555254,
       0.257277268715103,
       false,
       "0\t0\t7\t4\t12\t6307\t642\t0\t4\t20\t0\t0\t\t6"
       "\t824218fc\t3fbb20bc\t7cbc1f8d\t9090ceb6\td4cd97dc\t\t5551d502\td85bf0d5\tc1655cd8\tabc633ae\t058c25e"
       "1\t45705ebc\t5b114acd\t662e1904\t545cab10\t2bbfe766\t3a46c415\t71171403\tbd6f8925\t767b0b1d\t48b377a4"
       "\t\t22c8bea4\tfa36ffd3\tf9c39ab0\tdaa316bb",
       {1, 94,   3776,  465, 1,   0,  148, 3,     2, 1480, 80, 40699, 63,
        2, 1274, 47653, 1,   381, 19, 1,   81860, 0, 2,    65, 2,     9046}},
      {2,
       -2.087347690052193,
       0.110332654458944,
       false,
       "0\t1\t0\t29\t7\t3080\t\t0\t5\t73\t1\t2\t\t15"
       "\t0cd2b78e\t10751548\td71022a5\te3b8091b\td4cd97dc\td37b5216\t1062b1b3\te2e9e371\tb4f769ee\t678b85fc"
       "\tb4c89984\t47b71bac\t6a5b7b4f\t2f7c87a4\t8bfd0a3f\tdef3c27b\t9518ddec\tfa04236d\t\t\t6ece0cb9\t\t22c"
       "8bea4\t159b54b5\t\t",
       {2, 48,  14305, 1466, 1,  2, 1367, 1,    1, 51, 667, 9655, 525,
        1, 486, 4005,  4,    41, 0, 0,    6534, 0, 2,  141, 0,    0}},
      {3,
       -1.898760739073920,
       0.130248798541443,
       false,
       "0\t\t1\t1\t\t31063\t56\t36\t20\t13\t\t3\t1\t"
       "\t0cd2b78e\t57e4b3f8\ta5b64c7b\t4a30ad53\td4cd97dc\tf3f03879\t9ca8598a\te2e9e371\tb4f769ee\t659f9b57"
       "\td88f7316\tad66a0a6\t46dad71c\t2f7c87a4\te8a2d556\td3c9d634\tbf282f10\t1e66458b\t\t\t49c73149\t\t00c"
       "03bc8\t1c4a27fd\t\t",
       {2, 4,    5797086, 1003723, 1,   1, 8545, 1,       1, 63, 3429,  236, 2186,
        1, 1525, 2651900, 2,       447, 0, 0,    3678803, 0, 1,  73412, 0,   0}},
      {1'000'000'000'000,
       -1.922762746177137,
       0.127553800859643,
       false,
       "0\t0\t0\t8\t0\t1166\t114\t0\t6\t55\t0\t2\t\t26"
       "\t63fc8f0c\tfb7c0b90\tb3200827\tf045d4dd\td4cd97dc\t\t368a6131\tf3f9b6d4\tb4f769ee\t48b55cac\t8c6768f"
       "3\t861e9e98\t1df5b495\te6be46c4\t0cd5fb89\t4ce8acde\t3a46c415\t94f00e4a\td393e686\t75a35333\t52aceb18"
       "\t\t87d9adac\t6cf9a7ab\tadd862b5\t0a9e9acc",
       {8, 16, 1, 1, 1, 0, 330, 43, 1, 4, 157, 1, 125, 3, 508, 1, 1, 171, 22, 2, 11, 0, 3, 1, 11, 56}},
  };
  return rows;
}

TEST(ClickLog, GoldenRowsOfSeedOne) {
  for (const GoldenRow& golden : GoldenRows()) {
    SCOPED_TRACE(golden.row);
    const ClickRow row = SeedOne().Row(golden.row);
    EXPECT_EQ(row.row, golden.row);
    EXPECT_NEAR(row.logit, golden.logit, 1e-12);
    EXPECT_NEAR(row.probability, golden.probability, 1e-12);
    EXPECT_EQ(row.clicked, golden.clicked);
    EXPECT_THAT(row.ranks, ElementsAreArray(golden.ranks));
    EXPECT_EQ(Tsv(SeedOne(), row), std::string(golden.text) + "\n");
  }
}

struct GoldenCalibration {
  uint64_t seed;
  std::vector<double> mean;
  std::vector<double> deviation;
  double intercept;
};

TEST(ClickLog, GoldenCalibration) {
  const std::vector<GoldenCalibration> table = {
      {1,
       {-1.2821879908249958, -0.6495938225523333, -0.34164051021344327, 0.09134267303646522},
       {4.243938073173954, 1.8424275581567902, 47.21283813871496, 1.8201674294692303},
       -1.4892373833783759},
      {2,
       {-2.446570190252832, -0.6519680360103612, 4.56818709747448, -0.1286109155337627},
       {4.565889529615682, 1.8423463025084716, 44.68518285070525, 2.0639085866497893},
       -1.4868127098098802},
  };
  for (const GoldenCalibration& golden : table) {
    SCOPED_TRACE(golden.seed);
    const ClickCalibration found =
        golden.seed == 1 ? SeedOne().calibration() : ClickLog(golden.seed).calibration();
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(found.mean[c], golden.mean[c], 1e-12 * golden.deviation[c]) << c;
      EXPECT_NEAR(found.deviation[c], golden.deviation[c], 1e-12 * golden.deviation[c]) << c;
    }
    EXPECT_NEAR(found.intercept, golden.intercept, 1e-12);
  }
}

// Counts over the first 10,000 rows: any slip in a field's law, a missing rate or a group shows here.
TEST(ClickLog, FirstTenThousandRowsHaveTheKnownCounts) {
  constexpr uint32_t kDistinct[] = {162, 440,  5425, 4141, 53,   8,   3311, 90,   3, 3069, 2146, 5253, 1836,
                                    25,  2085, 4772, 10,   1190, 573, 4,    5039, 7, 15,   2533, 63,   1996};
  constexpr uint32_t kMissingIds[] = {0, 0, 351, 351, 0, 1196, 0,    0,   0,    0, 0,   351,  0,
                                      0, 0, 351, 0,   0, 4410, 4410, 351, 7855, 0, 351, 4410, 4410};
  constexpr uint32_t kMissingNumbers[] = {4457, 0, 2058, 1973, 435, 2285, 435, 7, 435, 4457, 435, 7697, 1973};
  constexpr int64_t kSums[] = {17111,  918699,  167583, 66919, 555043580, 1143725, 125610,
                               147462, 1269286, 3434,   23005, 1241,      85489};
  std::vector<std::set<uint32_t>> ids(26);
  std::vector<uint32_t> missing_ids(26);
  std::vector<uint32_t> missing_numbers(13);
  std::vector<int64_t> sums(13);
  uint32_t clicks = 0;
  uint32_t negatives = 0;
  for (uint64_t r = 0; r < 10'000; ++r) {
    const ClickRow row = SeedOne().Row(r);
    for (size_t f = 0; f < 26; ++f) {
      if (row.ranks[f] == kMissingRank) {
        ++missing_ids[f];
      } else {
        ids[f].insert(SeedOne().Id(f, row.ranks[f]));
      }
    }
    for (size_t j = 0; j < 13; ++j) {
      if (row.numbers[j] == kMissingNumber) {
        ++missing_numbers[j];
        continue;
      }
      sums[j] += row.numbers[j];
      if (row.numbers[j] < 0) {
        EXPECT_EQ(j, 1u);
        EXPECT_EQ(row.numbers[j], -1);
        ++negatives;
      }
    }
    clicks += row.clicked ? 1 : 0;
  }
  std::vector<uint32_t> distinct;
  for (const std::set<uint32_t>& field : ids) distinct.push_back(static_cast<uint32_t>(field.size()));
  EXPECT_THAT(distinct, ElementsAreArray(kDistinct));
  EXPECT_THAT(missing_ids, ElementsAreArray(kMissingIds));
  EXPECT_THAT(missing_numbers, ElementsAreArray(kMissingNumbers));
  EXPECT_THAT(sums, ElementsAreArray(kSums));
  EXPECT_EQ(clicks, 2557u);
  EXPECT_EQ(negatives, 866u);
}

TEST(ClickLog, RanksStayInsideTheVocabularyAndIdsDoNotCollide) {
  for (size_t f = 0; f < click_log::kCategoricalFields; ++f) {
    SCOPED_TRACE(f);
    const uint32_t ranks = std::min<uint32_t>(click_log::kCategorical[f].vocabulary, 2000);
    std::set<uint32_t> ids;
    for (uint32_t rank = 1; rank <= ranks; ++rank) ids.insert(SeedOne().Id(f, rank));
    EXPECT_EQ(ids.size(), ranks);
  }
  for (uint64_t r = 0; r < 2000; ++r) {
    const ClickRow row = SeedOne().Row(kFirstTestRow + r);
    for (size_t f = 0; f < click_log::kCategoricalFields; ++f) {
      EXPECT_LE(row.ranks[f], click_log::kCategorical[f].vocabulary) << f;
    }
  }
}

TEST(ClickLog, SeedsAreDifferentLogs) {
  const ClickLog two(2);
  EXPECT_NE(Tsv(two, two.Row(0)), Tsv(SeedOne(), SeedOne().Row(0)));
  EXPECT_NE(two.Id(0, 1), SeedOne().Id(0, 1));
}

// 0.25624 over the first million; 51,475 clicks in the first 200,000.
TEST(ClickLog, ClickRateAndEntropyOfALongRun) {
  uint64_t clicks = 0;
  double entropy = 0;
  const absl::Status status = MakeClickBlocks(SeedOne(), 0, 200'000, 2, [&](const ClickBlock& block) {
    clicks += block.clicks;
    for (const double p : block.probabilities) entropy -= p * std::log(p) + (1 - p) * std::log1p(-p);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(clicks, 51'475u);
  EXPECT_NEAR(entropy / 200'000, 0.4225, 0.001);
}

TEST(MakeClickBlocks, BytesDoNotDependOnThreadsOrStart) {
  constexpr uint64_t kStart = 123'456'789;
  constexpr uint64_t kRows = 3 * kClickBlockRows + 17;
  std::string expected;
  for (uint64_t r = 0; r < kRows; ++r) SeedOne().AppendTsv(SeedOne().Row(kStart + r), &expected);
  for (const unsigned threads : {1u, 2u, 5u}) {
    SCOPED_TRACE(threads);
    std::string text;
    uint64_t next_row = kStart;
    const absl::Status status =
        MakeClickBlocks(SeedOne(), kStart, kRows, threads, [&](const ClickBlock& block) {
          EXPECT_EQ(block.first_row, next_row);
          next_row += block.probabilities.size();
          text += block.tsv;
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(next_row, kStart + kRows);
    EXPECT_TRUE(text == expected);
  }
}

TEST(MakeClickBlocks, TheFirstErrorOfTheSinkEndsTheWork) {
  int calls = 0;
  const absl::Status status = MakeClickBlocks(SeedOne(), 0, 20 * kClickBlockRows, 3, [&](const ClickBlock&) {
    return ++calls == 2 ? Unavailable("disk full") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 2);
}

TEST(MakeClickBlocks, NoRowsNoBlocks) {
  const absl::Status status = MakeClickBlocks(SeedOne(), 7, 0, 4, [](const ClickBlock&) {
    ADD_FAILURE() << "a block of no rows";
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClickProbabilities, AreThoseOfTheRowsAsked) {
  const std::vector<uint64_t> rows = {5, 3, 1'000'000'007, 3, 0};
  for (const unsigned threads : {1u, 2u, 8u}) {
    const std::vector<double> found = ClickProbabilities(SeedOne(), rows, threads);
    ASSERT_EQ(found.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(found[i], SeedOne().Row(rows[i]).probability) << i;
  }
  EXPECT_TRUE(ClickProbabilities(SeedOne(), {}, 2).empty());
}

}  // namespace
}  // namespace capstan
