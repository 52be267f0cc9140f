// Counters and gauges with names, one registry per node. Cores take a registry by reference; a status page or
// a log line reads it. Values may be read from any thread; names are registered once, at construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace capstan {

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  void Set(uint64_t v) { value_.store(v, std::memory_order_relaxed); }  // for gauges
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class MetricsRegistry {
 public:
  // The counter of that name, made at the first call; the reference lives as long as the registry.
  Counter& Get(std::string_view name);
  std::map<std::string, uint64_t> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Counter, std::less<>> counters_;
};

}  // namespace capstan
