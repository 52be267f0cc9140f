#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/random.h"
#include "tests/kernels/random_floats.h"

namespace capstan {
namespace {

constexpr size_t kTableRows = 11;

// A made-up batch: its features in CSR form and the table row of each lookup.
struct LookupCase {
  std::vector<std::vector<uint32_t>> offsets;
  std::vector<std::vector<float>> values;
  std::vector<uint32_t> index;
  std::vector<FeatureLookups> features;
  size_t records = 0;

  Lookups View(bool allow_fast = true) const {
    return {features, index.data(), allow_fast && HasOneEach(features, records)};
  }
};

// One key for each record and feature if max_keys is 1, else 0 … max_keys.
LookupCase MakeLookups(size_t records, size_t features, uint64_t max_keys, bool with_values) {
  SeededRandom random(records * 100 + features);
  LookupCase c;
  c.records = records;
  size_t count = 0;
  for (size_t f = 0; f < features; ++f) {
    std::vector<uint32_t>& offsets = c.offsets.emplace_back(1, 0);
    for (size_t i = 0; i < records; ++i) {
      offsets.push_back(offsets.back() +
                        static_cast<uint32_t>(max_keys == 1 ? 1 : random.Below(max_keys + 1)));
    }
    c.values.push_back(with_values ? RandomFloats(offsets.back(), f) : std::vector<float>());
    count += offsets.back();
  }
  for (size_t k = 0; k < count; ++k) c.index.push_back(static_cast<uint32_t>(random.Below(kTableRows)));
  for (size_t f = 0; f < features; ++f) {
    c.features.push_back({c.offsets[f].data(), with_values ? c.values[f].data() : nullptr});
  }
  return c;
}

// Calls body(record, feature, table row, value) for all lookups in the promised order.
template <typename Body>
void EachLookup(const LookupCase& c, const Body& body) {
  size_t k = 0;
  for (size_t i = 0; i < c.records; ++i) {
    for (size_t f = 0; f < c.features.size(); ++f) {
      for (uint32_t p = c.offsets[f][i]; p < c.offsets[f][i + 1]; ++p, ++k) {
        body(i, f, c.index[k], c.values[f].empty() ? 1.0f : c.values[f][p]);
      }
    }
  }
}

std::vector<LookupCase> AllCases() {
  std::vector<LookupCase> cases;
  for (const bool values : {false, true}) {
    for (const uint64_t max_keys : {1, 4}) {
      cases.push_back(MakeLookups(40, 3, max_keys, values));
      cases.push_back(MakeLookups(1, 1, max_keys, values));
      cases.push_back(MakeLookups(9, 26, max_keys, values));
    }
  }
  return cases;
}
constexpr size_t kWidths[] = {1, 3, 4, 8, 16, 20, 32, 64};

TEST(Embedding, PoolRowsSumsInLookupOrder) {
  for (const LookupCase& c : AllCases()) {
    for (const size_t width : kWidths) {
      const std::vector<float> table = RandomFloats(kTableRows * width, width);
      const size_t columns = c.features.size() * width, stride = columns + 2;
      std::vector<float> wanted(c.records * stride, 7.0f), out(wanted), slow(wanted);
      for (size_t i = 0; i < c.records; ++i) std::fill_n(wanted.begin() + i * stride, columns, 0.0f);
      EachLookup(c, [&](size_t i, size_t f, uint32_t row, float value) {
        for (size_t j = 0; j < width; ++j)
          wanted[i * stride + f * width + j] += value * table[row * width + j];
      });
      // In two blocks, as models call it.
      const size_t half = c.records / 2;
      PoolRows(c.View(), 0, half, width, table.data(), out.data(), stride);
      PoolRows(c.View(), half, c.records - half, width, table.data(), out.data() + half * stride, stride);
      EXPECT_EQ(out, wanted) << width;
      PoolRows(c.View(false), 0, c.records, width, table.data(), slow.data(), stride);
      EXPECT_EQ(slow, wanted) << width;
    }
  }
}

TEST(Embedding, ScatterCopiesFirstThenAddsInLookupOrder) {
  for (const LookupCase& c : AllCases()) {
    for (const size_t width : kWidths) {
      const size_t stride = c.features.size() * width + 1;
      const std::vector<float> dout = RandomFloats(c.records * stride, 2);
      const float nan = std::nanf("");
      std::vector<float> wanted(kTableRows * width, nan), sums(wanted);
      std::vector<uint8_t> wanted_touched(kTableRows, 0), touched(wanted_touched);
      EachLookup(c, [&](size_t i, size_t f, uint32_t row, float value) {
        for (size_t j = 0; j < width; ++j) {
          float& sum = wanted[row * width + j];
          const float contribution = value * dout[i * stride + f * width + j];
          sum = wanted_touched[row] ? sum + contribution : contribution;
        }
        wanted_touched[row] = 1;
      });
      const size_t half = c.records / 2;
      ScatterPooledRows(c.View(), 0, half, width, dout.data(), stride, sums.data(), touched.data());
      ScatterPooledRows(c.View(), half, c.records - half, width, dout.data() + half * stride, stride,
                        sums.data(), touched.data());
      EXPECT_EQ(touched, wanted_touched);
      for (size_t r = 0; r < kTableRows * width; ++r) {
        if (touched[r / width] != 0) {
          EXPECT_EQ(sums[r], wanted[r]);
        } else {
          EXPECT_TRUE(std::isnan(sums[r])) << "an untouched row was written";
        }
      }
    }
  }
}

TEST(Embedding, ScalarSumsAndTheirGradients) {
  for (const LookupCase& c : AllCases()) {
    const std::vector<float> table = RandomFloats(kTableRows, 1), dout = RandomFloats(c.records, 2);
    std::vector<float> out = RandomFloats(c.records, 3), wanted = out;
    std::vector<float> sums(kTableRows, std::nanf("")), wanted_sums(kTableRows);
    std::vector<uint8_t> touched(kTableRows, 0), wanted_touched(touched);
    EachLookup(c, [&](size_t i, size_t, uint32_t row, float value) {
      wanted[i] += value * table[row];
      wanted_sums[row] = wanted_touched[row] ? wanted_sums[row] + value * dout[i] : value * dout[i];
      wanted_touched[row] = 1;
    });
    const size_t half = c.records / 2;
    AddScalarSums(c.View(), 0, half, table.data(), out.data());
    AddScalarSums(c.View(), half, c.records - half, table.data(), out.data() + half);
    EXPECT_EQ(out, wanted);
    ScatterScalars(c.View(), 0, half, dout.data(), sums.data(), touched.data());
    ScatterScalars(c.View(), half, c.records - half, dout.data() + half, sums.data(), touched.data());
    EXPECT_EQ(touched, wanted_touched);
    for (size_t r = 0; r < kTableRows; ++r) {
      if (touched[r] != 0) {
        EXPECT_EQ(sums[r], wanted_sums[r]);
      }
    }
  }
}

TEST(Embedding, TheFirstContributionKeepsItsSign) {
  const LookupCase c = MakeLookups(1, 1, 1, false);
  const float minus_zero = -0.0f;
  std::vector<float> sums(kTableRows, 1.0f);
  std::vector<uint8_t> touched(kTableRows, 0);
  ScatterPooledRows(c.View(), 0, 1, 1, &minus_zero, 1, sums.data(), touched.data());
  EXPECT_TRUE(std::signbit(sums[c.index[0]]));
  touched.assign(kTableRows, 0);
  ScatterScalars(c.View(), 0, 1, &minus_zero, sums.data(), touched.data());
  EXPECT_TRUE(std::signbit(sums[c.index[0]]));
}

TEST(Embedding, KnowsWhenEachFeatureHasOneKey) {
  EXPECT_TRUE(MakeLookups(5, 2, 1, false).View().one_each);
  EXPECT_FALSE(MakeLookups(5, 2, 1, true).View().one_each);
  LookupCase c = MakeLookups(4, 1, 1, false);
  c.offsets[0] = {0, 2, 2, 3, 4};  // as many keys as records, but not one each
  c.features[0].offsets = c.offsets[0].data();
  EXPECT_FALSE(HasOneEach(c.features, 4));
  EXPECT_TRUE(HasOneEach({}, 4));
}

}  // namespace
}  // namespace capstan
