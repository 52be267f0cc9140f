#include "data/generator.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/random.h"

namespace capstan {

namespace {

using click_log::kCategorical;
using click_log::kCategoricalFields;
using click_log::kFactors;
using click_log::kMissGroups;
using click_log::kMissRate;
using click_log::kNumeric;
using click_log::kNumericFields;
using click_log::kTriples;
using click_log::kValueGroups;

// What a draw is for; one stream each.
enum StreamTag : uint64_t {
  kTagGroup = 1,
  kTagSelect = 2,
  kTagCategory = 3,
  kTagMissing = 4,
  kTagRowLatent = 5,
  kTagNumber = 6,
  kTagLabel = 7,
  kTagSalt = 8,
  kTagWeight = 9,
  kTagFactor = 16,  // + factor
  kTagTriple = 32,  // + triple
  kTagNumericFactor = 48,
};

constexpr uint32_t kFrequentRanks = 200;
constexpr size_t kSmallNumbers = 8192;
constexpr uint64_t kCalibrationRows = uint64_t{1} << 18;
constexpr uint64_t kCalibrationBlock = 4096;
constexpr double kMinNumericMean = 0.3;
constexpr double kMaxStandardNumber = 3;
constexpr size_t kFieldWithNegatives = 1;  // I2 holds some -1, as in the real log
constexpr double kNegativeBelow = -2;

// CounterHash in two halves: all draws of one stream share the first.
constexpr uint64_t Chain(uint64_t seed, uint64_t tag, uint64_t a) {
  return Mix64(Mix64(Mix64(seed) ^ tag) ^ a);
}
constexpr uint64_t Draw(uint64_t chain, uint64_t b) { return Mix64(chain ^ b); }

// In (0, 1), both ends excluded.
double ToUniform(uint64_t h) { return (static_cast<double>(h >> 11) + 0.5) * 0x1p-53; }

// Sum of four 16-bit lanes, scaled to mean 0 and variance 1: near normal, bounded by 3.47, and free of libm
// calls.
double ToNormal(uint64_t h) {
  const uint64_t sum = (h & 0xffff) + ((h >> 16) & 0xffff) + ((h >> 32) & 0xffff) + (h >> 48);
  constexpr double kScale = 1.7320508075688772 / 65536;  // sqrt(3) / 2^16
  return (static_cast<double>(sum) - 131070.0) * kScale;
}

double Fade(uint32_t rank) { return 1 / std::sqrt(1 + rank / click_log::kRareScale); }

// The finalizer of MurmurHash3 (Appleby): a bijection on 32 bits.
uint32_t Finalize32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

double Logistic(double z) { return 1 / (1 + std::exp(-z)); }

// The b at which the mean of logistic(b + z) is `rate`. Bisection: the mean grows with b.
double FindIntercept(const std::vector<double>& z, double rate) {
  std::vector<double> odds_against(z.size());
  for (size_t i = 0; i < z.size(); ++i) odds_against[i] = std::exp(-z[i]);
  double low = -8;
  double high = 8;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    const double factor = std::exp(-middle);
    double total = 0;
    for (size_t begin = 0; begin < z.size(); begin += kCalibrationBlock) {
      double sum = 0;
      for (size_t i = begin; i < begin + kCalibrationBlock; ++i) sum += 1 / (1 + factor * odds_against[i]);
      total += sum;
    }
    (total > rate * static_cast<double>(z.size()) ? high : low) = middle;
  }
  return (low + high) / 2;
}

void AppendHex8(uint32_t value, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[8];
  for (int i = 7; i >= 0; --i, value >>= 4) text[i] = kDigits[value & 15];
  out->append(text, sizeof text);
}

}  // namespace

ClickLog::ClickLog(uint64_t seed) : seed_(seed) {
  PrepareFields();
  PrepareTeacher();
  Calibrate();
}

void ClickLog::PrepareFields() {
  for (size_t f = 0; f < kCategoricalFields; ++f) {
    const click_log::CategoricalField& field = kCategorical[f];
    TailLaw& tail = tails_[f];
    while (tail.head < field.head.size() && field.head[tail.head] > 0) {
      tail.head_mass += field.head[tail.head];
      tail.cumulative[tail.head++] = tail.head_mass;
    }
    const double power = 1 - field.exponent;
    tail.ranks = field.vocabulary - field.tail_offset;
    tail.low = std::pow(1 + field.shift, power);
    tail.span = std::pow(tail.ranks + 1 + field.shift, power) - tail.low;
    tail.power = 1 / power;
    salts_[f] = static_cast<uint32_t>(CounterHash(seed_, kTagSalt, f, 0));
  }
  for (size_t j = 0; j < kNumericFields; ++j) {
    noise_share_[j] = std::sqrt(1 - kNumeric[j].row_share * kNumeric[j].row_share);
  }
}

void ClickLog::PrepareTeacher() {
  for (size_t f = 0; f < kCategoricalFields; ++f) {
    weight_chain_[f] = Chain(seed_, kTagWeight, f);
    for (size_t q = 0; q < kFactors; ++q) factor_chain_[f][q] = Chain(seed_, kTagFactor + q, f);
  }
  for (size_t h = 0; h < kTriples.size(); ++h) {
    for (size_t i = 0; i < 3; ++i) triple_chain_[h][i] = Chain(seed_, kTagTriple + h, kTriples[h][i]);
  }
  for (size_t j = 0; j < kNumericFields; ++j) {
    for (size_t q = 0; q < kFactors; ++q) {
      numeric_factors_[j][q] = ToNormal(CounterHash(seed_, kTagNumericFactor, j, q));
    }
  }
  frequent_effects_.reserve(kCategoricalFields * kFrequentRanks);
  for (size_t f = 0; f < kCategoricalFields; ++f) {
    for (uint32_t rank = 0; rank < kFrequentRanks; ++rank) frequent_effects_.push_back(MakeEffect(f, rank));
  }
  small_numbers_.resize(kSmallNumbers);
  for (size_t v = 0; v < kSmallNumbers; ++v) small_numbers_[v] = std::log1p(static_cast<double>(v));
}

// Sums go block by block, then over the blocks: short chains of additions, in one fixed order.
void ClickLog::Calibrate() {
  constexpr size_t kParts = 4;
  std::vector<Parts> parts(kCalibrationRows);
  for (uint64_t i = 0; i < kCalibrationRows; ++i) {
    ClickRow row;
    DrawFeatures(kFirstReservedRow + i, &row);
    parts[i] = TeacherParts(row);
  }
  const auto mean_of = [&](const auto& term) {
    Parts total{};
    for (uint64_t begin = 0; begin < kCalibrationRows; begin += kCalibrationBlock) {
      Parts sum{};
      for (uint64_t i = begin; i < begin + kCalibrationBlock; ++i) {
        for (size_t c = 0; c < kParts; ++c) sum[c] += term(parts[i][c], c);
      }
      for (size_t c = 0; c < kParts; ++c) total[c] += sum[c];
    }
    for (double& value : total) value /= static_cast<double>(kCalibrationRows);
    return total;
  };
  calibration_.mean = mean_of([](double value, size_t) { return value; });
  const Parts variance = mean_of([&](double value, size_t c) {
    const double away = value - calibration_.mean[c];
    return away * away;
  });
  for (size_t c = 0; c < kParts; ++c) calibration_.deviation[c] = std::sqrt(variance[c]);

  std::vector<double> z(kCalibrationRows);
  for (uint64_t i = 0; i < kCalibrationRows; ++i) z[i] = Combine(parts[i]);
  calibration_.intercept = FindIntercept(z, click_log::kClickRate);
}

ClickRow ClickLog::Row(uint64_t row) const {
  ClickRow out;
  out.row = row;
  DrawFeatures(row, &out);
  out.logit = calibration_.intercept + Combine(TeacherParts(out));
  out.probability = Logistic(out.logit);
  out.clicked = ToUniform(CounterHash(seed_, kTagLabel, row, 0)) < out.probability;
  return out;
}

void ClickLog::DrawFeatures(uint64_t row, ClickRow* out) const {
  const uint64_t missing = Chain(seed_, kTagMissing, row);
  std::array<bool, kMissGroups> absent;
  for (size_t g = 0; g < kMissGroups; ++g) absent[g] = ToUniform(Draw(missing, g)) < kMissRate[g];
  const auto is_absent = [&](int group) { return group != click_log::kNeverMissing && absent[group]; };

  const uint64_t own = Chain(seed_, kTagCategory, row);
  const uint64_t select = Chain(seed_, kTagSelect, row);
  const uint64_t shared = Chain(seed_, kTagGroup, row);
  std::array<double, kValueGroups> group_draw;
  for (size_t g = 0; g < kValueGroups; ++g) group_draw[g] = ToUniform(Draw(shared, g));
  for (size_t f = 0; f < kCategoricalFields; ++f) {
    const click_log::CategoricalField& field = kCategorical[f];
    if (is_absent(field.miss_group)) {
      out->ranks[f] = kMissingRank;
      continue;
    }
    const bool in_group = field.group_share > 0 && ToUniform(Draw(select, f)) < field.group_share;
    out->ranks[f] = DrawRank(f, in_group ? group_draw[field.value_group] : ToUniform(Draw(own, f)));
  }

  const double latent = ToNormal(CounterHash(seed_, kTagRowLatent, row, 0));
  const uint64_t number = Chain(seed_, kTagNumber, row);
  for (size_t j = 0; j < kNumericFields; ++j) {
    const click_log::NumericField& field = kNumeric[j];
    if (is_absent(field.miss_group)) {
      out->numbers[j] = kMissingNumber;
      continue;
    }
    const double noise = field.row_share * latent + noise_share_[j] * ToNormal(Draw(number, j));
    const double log_value = field.mean + field.deviation * noise;
    const auto value = static_cast<int64_t>(std::floor(std::exp(log_value) - 0.5));
    const bool negative = j == kFieldWithNegatives && log_value < kNegativeBelow;
    out->numbers[j] = negative ? -1 : std::max<int64_t>(value, 0);
  }
}

// Inverts the distribution of the field: the head by comparison, the tail in closed form.
uint32_t ClickLog::DrawRank(size_t field, double uniform) const {
  const TailLaw& tail = tails_[field];
  for (size_t i = 0; i < tail.head; ++i) {
    if (uniform < tail.cumulative[i]) return static_cast<uint32_t>(i + 1);
  }
  const double place = (uniform - tail.head_mass) / (1 - tail.head_mass);
  const double x = std::pow(tail.low + place * tail.span, tail.power) - kCategorical[field].shift;
  const double rank = std::min(std::max(std::floor(x), 1.0), tail.ranks);
  return kCategorical[field].tail_offset + static_cast<uint32_t>(rank);
}

ClickLog::Effect ClickLog::MakeEffect(size_t field, uint32_t rank) const {
  const double fade = Fade(rank);
  Effect effect;
  effect.weight = ToNormal(Draw(weight_chain_[field], rank)) * fade;
  effect.factors_squared = 0;
  for (size_t q = 0; q < kFactors; ++q) {
    const double value = ToNormal(Draw(factor_chain_[field][q], rank)) * fade;
    effect.factors[q] = value;
    effect.factors_squared += value * value;
  }
  return effect;
}

// Negative values count as 0: log1p(-1) is minus infinity.
double ClickLog::StandardNumber(size_t field, int64_t value) const {
  const auto clamped = static_cast<uint64_t>(std::max<int64_t>(value, 0));
  const double log_value =
      clamped < kSmallNumbers ? small_numbers_[clamped] : std::log1p(static_cast<double>(clamped));
  const double standard =
      (log_value - std::max(kNumeric[field].mean, kMinNumericMean)) / kNumeric[field].deviation;
  return std::clamp(standard, -kMaxStandardNumber, kMaxStandardNumber);
}

// Pair interactions over all 39 fields by the identity of factorization machines (Rendle, ICDM 2010):
// sum over pairs of <x_a, x_b> = (|sum x|^2 - sum |x|^2) / 2.
ClickLog::Parts ClickLog::TeacherParts(const ClickRow& row) const {
  double linear = 0;
  double numeric = 0;
  double squares = 0;
  std::array<double, kFactors> sums{};
  for (size_t f = 0; f < kCategoricalFields; ++f) {
    const uint32_t rank = row.ranks[f];
    const Effect effect =
        rank < kFrequentRanks ? frequent_effects_[f * kFrequentRanks + rank] : MakeEffect(f, rank);
    linear += effect.weight;
    squares += effect.factors_squared;
    for (size_t q = 0; q < kFactors; ++q) sums[q] += effect.factors[q];
  }
  for (size_t j = 0; j < kNumericFields; ++j) {
    if (row.numbers[j] == kMissingNumber) {
      numeric += kNumeric[j].missing_effect;
      continue;
    }
    const double t = StandardNumber(j, row.numbers[j]);
    numeric += kNumeric[j].linear * t + kNumeric[j].quadratic * (t * t - 1);
    for (size_t q = 0; q < kFactors; ++q) {
      const double value = t * numeric_factors_[j][q];
      sums[q] += value;
      squares += value * value;
    }
  }
  double square_of_sum = 0;
  for (const double sum : sums) square_of_sum += sum * sum;

  double triples = 0;
  for (size_t h = 0; h < kTriples.size(); ++h) {
    double product = 1;
    for (size_t i = 0; i < 3; ++i) product *= ToNormal(Draw(triple_chain_[h][i], row.ranks[kTriples[h][i]]));
    triples += product;
  }
  return {linear, numeric, 0.5 * (square_of_sum - squares), triples};
}

double ClickLog::Combine(const Parts& parts) const {
  double z = 0;
  for (size_t c = 0; c < parts.size(); ++c) {
    z += std::sqrt(click_log::kPartVariance[c]) *
         ((parts[c] - calibration_.mean[c]) / calibration_.deviation[c]);
  }
  return z;
}

uint32_t ClickLog::Id(size_t field, uint32_t rank) const { return Finalize32(rank ^ salts_[field]); }

void ClickLog::AppendTsv(const ClickRow& row, std::string* out) const {
  out->push_back(row.clicked ? '1' : '0');
  for (const int64_t number : row.numbers) {
    out->push_back('\t');
    if (number == kMissingNumber) continue;
    char text[20];
    const auto end = std::to_chars(text, text + sizeof text, number).ptr;
    out->append(text, end);
  }
  for (size_t f = 0; f < kCategoricalFields; ++f) {
    out->push_back('\t');
    if (row.ranks[f] != kMissingRank) AppendHex8(Id(f, row.ranks[f]), out);
  }
  out->push_back('\n');
}

}  // namespace capstan
