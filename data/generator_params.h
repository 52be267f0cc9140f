// The numbers behind the generated click log: field shapes fitted to the first 10,000 rows of the public
// Criteo Kaggle log, and the weights of the teacher. They are part of what "seed 1, row 7" means: changing
// one changes every file made before, so the golden rows in tests/data/generator_test.cc pin them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace capstan::click_log {

inline constexpr size_t kNumericFields = 13;
inline constexpr size_t kCategoricalFields = 26;
inline constexpr size_t kMissGroups = 11;
inline constexpr size_t kValueGroups = 5;  // groups 1 … 4 are correlated; group 0 is unused
inline constexpr size_t kFactors = 4;      // dimensions of the teacher's pair interactions
inline constexpr size_t kHeadRanks = 8;
inline constexpr int kNeverMissing = -1;

// Ranks 1, 2, … of `head` have the probabilities given there; a Zipf-Mandelbrot law with this exponent and
// shift covers the ranks above `tail_offset` up to `vocabulary`.
struct CategoricalField {
  uint32_t vocabulary;
  std::array<double, kHeadRanks> head;  // 0 from the first unused place on
  double exponent;
  double shift;
  uint32_t tail_offset;
  int value_group;  // fields of one group share their draw with probability `group_share`
  double group_share;
  int miss_group;  // fields of one group are missing in the same rows
};

// log1p(value) is about normal with this mean and deviation, with correlation `row_share` to a latent of the
// row.
struct NumericField {
  double mean;
  double deviation;
  double row_share;
  int miss_group;
  double linear;  // the teacher's weights of the standardised value, of its square less 1, …
  double quadratic;
  double missing_effect;  // … and of its absence
};

extern const std::array<CategoricalField, kCategoricalFields> kCategorical;
extern const std::array<NumericField, kNumericFields> kNumeric;
extern const std::array<double, kMissGroups> kMissRate;

// Triples of categorical fields (0-based) whose product enters the teacher.
inline constexpr std::array<std::array<size_t, 3>, 4> kTriples = {
    {{4, 7, 13}, {5, 16, 22}, {8, 19, 24}, {0, 21, 13}}};

inline constexpr double kRareScale = 2000;   // effects fade as 1/sqrt(1 + rank/kRareScale)
inline constexpr double kClickRate = 0.256;  // mean probability over the calibration rows
// Shares of the variance of the log-odds: linear, numeric, pairs, triples.
inline constexpr std::array<double, 4> kPartVariance = {0.95, 0.75, 0.38, 0.32};

}  // namespace capstan::click_log
