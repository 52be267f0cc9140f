// Prints a digest of what each optimizer makes of random rows. Built several times, for other instruction sets;
// optimizer_bits_test.cc compares what they print.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/random.h"
#include "proto/job.pb.h"
#include "ps/gradient_rules.h"
#include "ps/optimizer.h"

namespace capstan {
namespace {

uint64_t Digest(const std::string& name) {
  uint64_t digest = 0;
  SeededRandom random(3);
  for (const uint32_t width : {1u, 5u, 8u, 16u, 23u, 64u, 100u}) {
    OptimizerConfig config;
    config.set_name(name);
    config.set_learning_rate(0.05);
    config.set_l1(0.001);
    config.set_l2(0.01);
    config.set_clip_value(3);
    config.set_clip_norm(0.8 * width);
    const auto optimizer = MakeOptimizer(config);
    if (!optimizer.ok()) return 0;
    auto rules = GradientRules::Make(config, (*optimizer)->HasOwnPenalty());
    if (!rules.ok()) return 0;
    const RowLayout layout{width, (*optimizer)->SlotFloats(width)};
    std::vector<uint64_t> memory(layout.bytes() / sizeof(uint64_t));
    const RowRef row(reinterpret_cast<std::byte*>(memory.data()));
    for (uint32_t j = 0; j < width; ++j) row.weights()[j] = UniformFromBits(random.Next());
    (*optimizer)->InitSlots(row.slots(layout), width);
    std::vector<float> gradient(width);
    for (uint64_t step = 1; step <= 20; ++step) {
      for (float& g : gradient) g = UniformFromBits(random.Next()) * 4;
      const StepScalars scalars = (*optimizer)->Prepare({step % 3 == 0 ? 0.5f : 1.0f, step});
      (*optimizer)->Update(layout, &row, rules->Before(&row, gradient.data(), 1, width), 1, scalars);
      rules->After(&row, 1, width, scalars.learning_rate);
    }
    for (const uint64_t word : memory) digest = (digest ^ word) * 0x9E3779B97F4A7C15u + (digest >> 29);
  }
  return digest;
}

}  // namespace
}  // namespace capstan

int main() {
  for (const std::string_view name : capstan::OptimizerNames()) {
    std::printf("%s %016llx\n", std::string(name).c_str(),
                static_cast<unsigned long long>(capstan::Digest(std::string(name))));
  }
  return 0;
}
