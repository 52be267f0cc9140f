// A whole cluster in one thread from one seed: scheduler, servers with shards, workers with ranks, bad weather. Runs a
// job to its end and says whether everything that must hold did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim_job.h"
#include "sim_network.h"

namespace capstan::sim {

struct Outcome {
  std::vector<std::string> faults;   // empty: all invariants held
  std::string model_sha256;
  uint64_t frames = 0;
  double simulated_seconds = 0;

  bool ok() const { return faults.empty(); }
  std::string Text() const;
};

// Directed faults on top of the weather.
struct Zombie {
  bool old_term = false;         // a process that was replaced sends its pushes again, with other bits
  bool old_generation = false;   // frames of before a rewind come late
};

Outcome RunCluster(uint64_t seed, const JobShape& shape, const Weather& weather, const Zombie& zombie = {});

// Everything drawn from the seed: shape, weather, number of processes.
struct Scenario {
  JobShape shape;
  Weather weather;
  Zombie zombie;
};
Scenario DrawScenario(uint64_t seed, const std::string& consistency);

// The bits of `shape` on one server and one worker in calm weather; what any sync run must give.
std::string ReferenceSha256(const JobShape& shape);

}  // namespace capstan::sim
