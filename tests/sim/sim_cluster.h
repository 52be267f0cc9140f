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

// The same with checkpoints, and everything killed at drawn times: each life but the last one ends in the middle, the
// next one begins from the newest good checkpoint (or from nothing) with other numbers of servers, shards and workers.
struct Lives {
  uint32_t kills = 2;
  double writer_fails = 0;       // share of the shards' parts that fail
  double writer_refuses = 0;     // share of the sink's calls that find no room
  uint32_t writer_delay = 0;     // polls until a part is written
};
struct LivesOutcome : Outcome {
  uint32_t resumed = 0;          // lives that began from a checkpoint
  uint64_t checkpoints = 0;      // committed, the last ones included
};
LivesOutcome RunLives(uint64_t seed, const JobShape& shape, const Weather& weather, const Lives& lives);
Lives DrawLives(uint64_t seed, JobShape* shape);

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
