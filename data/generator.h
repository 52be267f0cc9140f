// A synthetic click log in the shape of Criteo's (13 numbers, 26 categories, one label) whose click
// probability is known for every row, so that a model's distance from the best possible one can be measured.
// Row r of seed s is a pure function of (s, r): any part can be made anywhere, in any order.
// docs/generator.md describes it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "data/generator_params.h"

namespace capstan {

inline constexpr int64_t kMissingNumber = std::numeric_limits<int64_t>::min();
inline constexpr uint32_t kMissingRank = 0;

// Rows from here on calibrate the teacher; no data set may use them.
inline constexpr uint64_t kFirstReservedRow = uint64_t{1} << 62;
// By convention training rows start at 0 and test rows here.
inline constexpr uint64_t kFirstTestRow = 1'000'000'000;

struct ClickRow {
  uint64_t row = 0;
  std::array<int64_t, click_log::kNumericFields> numbers{};     // kMissingNumber where missing
  std::array<uint32_t, click_log::kCategoricalFields> ranks{};  // 1 = most frequent value; kMissingRank
  double logit = 0;        // log-odds of a click given the features shown
  double probability = 0;  // of a click: the Bayes posterior, since the teacher sees only what the row shows
  bool clicked = false;
};

// Constants that give every seed the same click rate and the same difficulty.
struct ClickCalibration {
  std::array<double, 4> mean{};  // of the teacher's parts over the calibration rows
  std::array<double, 4> deviation{};
  double intercept = 0;
};

// Immutable after construction, hence thread-safe. About 300 KB.
class ClickLog {
 public:
  // Costs about half a second: the calibration makes 2^18 rows on this thread.
  explicit ClickLog(uint64_t seed);

  ClickRow Row(uint64_t row) const;
  // The id printed for a rank of a categorical field (0-based); different ranks of a field have different
  // ids.
  uint32_t Id(size_t field, uint32_t rank) const;
  // Appends label, numbers and ids (8 hex digits) with tabs between them and a newline at the end: the column
  // order of the Criteo Kaggle files. Missing values are empty.
  void AppendTsv(const ClickRow& row, std::string* out) const;

  uint64_t seed() const { return seed_; }
  const ClickCalibration& calibration() const { return calibration_; }

 private:
  // What the teacher adds for one value of one categorical field.
  struct Effect {
    double weight;
    std::array<double, click_log::kFactors> factors;
    double factors_squared;
  };
  // Constants of inverting one field's tail distribution.
  struct TailLaw {
    std::array<double, click_log::kHeadRanks> cumulative;  // of the head
    size_t head = 0;                                       // ranks in the head
    double head_mass = 0;
    double low = 0, span = 0, power = 0;
    double ranks = 0;  // in the tail
  };
  using Parts = std::array<double, 4>;  // linear, numeric, pairs, triples

  void PrepareFields();
  void PrepareTeacher();
  void Calibrate();

  void DrawFeatures(uint64_t row, ClickRow* out) const;
  uint32_t DrawRank(size_t field, double uniform) const;
  Effect MakeEffect(size_t field, uint32_t rank) const;
  double StandardNumber(size_t field, int64_t value) const;
  Parts TeacherParts(const ClickRow& row) const;
  double Combine(const Parts& parts) const;  // log-odds less the intercept

  uint64_t seed_;
  ClickCalibration calibration_;

  std::array<TailLaw, click_log::kCategoricalFields> tails_;
  std::array<uint32_t, click_log::kCategoricalFields> salts_{};
  std::array<double, click_log::kNumericFields> noise_share_{};

  // First links of the hash chains, so that a draw costs one or two more.
  std::array<uint64_t, click_log::kCategoricalFields> weight_chain_{};
  std::array<std::array<uint64_t, click_log::kFactors>, click_log::kCategoricalFields> factor_chain_{};
  std::array<std::array<uint64_t, 3>, click_log::kTriples.size()> triple_chain_{};
  std::array<std::array<double, click_log::kFactors>, click_log::kNumericFields> numeric_factors_{};

  std::vector<Effect> frequent_effects_;  // [field, rank] for ranks below kFrequentRanks
  std::vector<double> small_numbers_;     // log1p of 0, 1, …
};

}  // namespace capstan
