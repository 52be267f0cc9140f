#include "ps/rate_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <google/protobuf/text_format.h>

#include "proto/control.pb.h"
#include "ps/table.h"

namespace capstan {
namespace {

ScheduleConfig Parse(const std::string& text) {
  ScheduleConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

struct GoldenRates {
  const char* config;
  std::vector<std::pair<uint64_t, double>> factors;  // by step
};
// By hand, or with Python's math module in fp64.
const GoldenRates kGoldenRates[] = {
    {"", {{0, 1}, {1, 1}, {1000000, 1}}},
    {"warmup_steps: 4", {{1, 0.25}, {2, 0.5}, {4, 1}, {5, 1}, {100, 1}}},
    {"warmup_steps: 4 warmup_start: 0.2", {{1, 0.4}, {2, 0.6}, {3, 0.8}, {4, 1}}},
    {"kind: 'linear' steps: 10", {{1, 1}, {2, 0.9}, {6, 0.5}, {11, 0}, {50, 0}}},
    {"kind: 'linear' steps: 10 end_factor: 0.2 warmup_steps: 2", {{1, 0.5}, {2, 1}, {7, 0.6}, {12, 0.2}, {99, 0.2}}},
    {"kind: 'cosine' steps: 8",
     {{1, 1}, {2, 0.961939766255643}, {3, 0.853553390593274}, {4, 0.691341716182545}, {5, 0.5},
      {6, 0.308658283817455}, {8, 0.0380602337443566}, {9, 0}, {10, 0}}},
    {"kind: 'cosine' steps: 8 end_factor: 0.1", {{3, 0.868198051533946}, {9, 0.1}, {30, 0.1}}},
    {"kind: 'cosine' steps: 4 restart_growth: 1", {{1, 1}, {3, 0.5}, {5, 1}, {7, 0.5}, {4001, 1}}},
    {"kind: 'cosine' steps: 4 restart_growth: 2",
     {{1, 1}, {3, 0.5}, {5, 1}, {9, 0.5}, {13, 1}, {21, 0.5}, {29, 1}, {uint64_t{1} << 40, 1}}},
    {"kind: 'polynomial' steps: 10", {{1, 1}, {6, 0.25}, {10, 0.01}, {11, 0}}},
    {"kind: 'polynomial' steps: 4 power: 0.5 end_factor: 0.5", {{1, 1}, {2, 0.933012701892219}, {5, 0.5}}},
    {"kind: 'polynomial' steps: 2 power: 3.5", {{2, 0.0883883476483184}}},
    {"kind: 'inverse_sqrt' warmup_steps: 4", {{2, 0.5}, {4, 1}, {16, 0.5}, {64, 0.25}}},
    {"kind: 'inverse_sqrt' steps: 3", {{1, 1}, {10, 0.5}, {46, 0.25}}},
    {"kind: 'step' steps: 3 step_factor: 0.5", {{1, 1}, {3, 1}, {4, 0.5}, {6, 0.5}, {7, 0.25}}},
    {"kind: 'step' boundary: 2 boundary: 5", {{2, 1}, {3, 0.1}, {5, 0.1}, {6, 0.01}, {600, 0.01}}},
    {"kind: 'one_cycle' steps: 10 peak_at: 0.4",
     {{1, 0.04}, {3, 0.52}, {5, 1}, {8, 0.5}, {11, 0}, {12, 0}}},
    {"kind: 'one_cycle' steps: 10 peak_at: 0.4 start_factor: 0.5 end_factor: 0.1", {{1, 0.5}, {3, 0.75}, {8, 0.55}}},
    {"kind: 'one_cycle' steps: 4 peak_at: 1", {{1, 0.04}, {3, 0.52}, {5, 1}, {6, 1}}},
    {"kind: 'one_cycle' steps: 4 peak_at: 0", {{1, 1}, {3, 0.5}, {5, 0}}},
};

TEST(RateSchedule, ReachesTheGoldenFactors) {
  for (const GoldenRates& c : kGoldenRates) {
    SCOPED_TRACE(c.config);
    const auto schedule = RateSchedule::Make(Parse(c.config));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    for (const auto& [step, factor] : c.factors) {
      EXPECT_NEAR(schedule->Factor(step), factor, 1e-7 * factor + 1e-16) << "step " << step;
    }
  }
}

TEST(RateSchedule, TheCosineIsThatOfTheLibraryToTheLastBitsOfAFloat) {
  constexpr uint64_t kSteps = 100000;
  const auto schedule = RateSchedule::Make(Parse("kind: 'cosine' steps: 100000"));
  ASSERT_TRUE(schedule.ok());
  for (uint64_t p = 0; p <= kSteps; p += 37) {
    const double exact = (1 + std::cos(3.14159265358979323846 * static_cast<double>(p) / kSteps)) / 2;
    EXPECT_NEAR(schedule->Factor(p + 1), exact, 6e-8 * exact + 1e-16) << p;
  }
}

TEST(RateSchedule, StaysBetweenZeroAndOneAtAnyStep) {
  for (const GoldenRates& c : kGoldenRates) {
    const auto schedule = RateSchedule::Make(Parse(c.config));
    ASSERT_TRUE(schedule.ok());
    for (uint64_t step = 1; step != 0; step *= 3) {
      for (const uint64_t t : {step - 1, step, step + 1, ~step}) {
        EXPECT_GE(schedule->Factor(t), 0) << c.config << " " << t;
        EXPECT_LE(schedule->Factor(t), 1) << c.config << " " << t;
      }
      if (step > UINT64_MAX / 3) break;
    }
  }
}

TEST(RateSchedule, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"kind: 'cosin' steps: 3", "'cosin'"},
      {"kind: 'linear'", "steps"},
      {"kind: 'cosine'", "steps"},
      {"kind: 'inverse_sqrt'", "steps"},
      {"kind: 'step'", "steps"},
      {"kind: 'linear' steps: 1000000000000000", "steps"},
      {"warmup_start: 2", "warmup_start"},
      {"warmup_start: nan", "warmup_start"},
      {"end_factor: -0.1", "end_factor"},
      {"step_factor: 1.5", "step_factor"},
      {"start_factor: -1", "start_factor"},
      {"peak_at: 1.1", "peak_at"},
      {"kind: 'polynomial' steps: 3 power: 0.7", "power"},
      {"kind: 'polynomial' steps: 3 power: 0", "power"},
      {"kind: 'step' boundary: 5 boundary: 5", "boundary"},
      {"kind: 'step' boundary: 0", "boundary"},
  };
  for (const auto& [text, says] : cases) {
    const auto schedule = RateSchedule::Make(Parse(text));
    ASSERT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(schedule.status().message()), testing::HasSubstr(says)) << text;
  }
}

// A table with a schedule is the table that is told the product of factors.
TEST(RateSchedule, MultipliesTheRateOfItsTable) {
  TableSpec spec;
  spec.set_name("t");
  spec.set_width(2);
  spec.mutable_optimizer()->set_name("adagrad");
  spec.mutable_optimizer()->set_learning_rate(0.5);
  const auto plain = Table::Create(spec, 1);
  *spec.mutable_optimizer()->mutable_schedule() = Parse("kind: 'cosine' steps: 9 warmup_steps: 3");
  const auto scheduled = Table::Create(spec, 1);
  ASSERT_TRUE(plain.ok() && scheduled.ok());
  const auto schedule = RateSchedule::Make(spec.optimizer().schedule());
  const std::vector<Key> keys = {3, 4};
  const std::vector<float> gradients = {1, -2, 0.5f, 3};
  float a[4], b[4], first[4];
  for (uint64_t step = 1; step <= 12; ++step) {
    (*scheduled)->Apply(keys, gradients.data(), {0.5f, step});
    (*plain)->Apply(keys, gradients.data(), {0.5f * schedule->Factor(step), step});
    (*scheduled)->Gather(keys, a);
    (*plain)->Gather(keys, b);
    EXPECT_EQ(std::memcmp(a, b, sizeof(a)), 0) << step;
    if (step == 11) std::memcpy(first, a, sizeof(a));
  }
  EXPECT_EQ(std::memcmp(a, first, sizeof(a)), 0) << "step 12 has a factor of 0";
  spec.mutable_optimizer()->mutable_schedule()->set_kind("cosin");
  const auto refused = Table::Create(spec, 1);
  EXPECT_THAT(std::string(refused.status().message()), testing::AllOf(testing::HasSubstr("'t'"), testing::HasSubstr("cosin")));
}

}  // namespace
}  // namespace capstan
