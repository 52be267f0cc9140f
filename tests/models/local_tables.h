// The tables of one network in one process: what servers and clients do elsewhere, in a hundred lines, so
// that models can be checked and trained in a test.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/initial_value.h"
#include "models/network.h"
#include "proto/control.pb.h"

namespace capstan {

// Everything one step needs of a table: unique rows in order of first use, the index of the lookups,
// gradients.
template <typename T>
struct LocalTable {
  TableSpec spec;
  std::map<uint64_t, std::vector<T>> rows;  // sparse: by key; dense: all elements under key 0
  std::map<uint64_t, std::vector<T>> first_moment, second_moment;
  std::vector<uint64_t> step_keys;  // of this step, unique
  std::vector<uint32_t> index;
  std::vector<T> values, gradients;
  std::vector<uint8_t> touched;
};

template <typename T>
class LocalTables {
 public:
  LocalTables(const Network<T>& network, uint64_t seed) : network_(network), seed_(seed) {
    for (const TableSpec& spec : network.tables()) tables_.emplace_back().spec = spec;
  }

  LocalTable<T>& table(size_t id) { return tables_[id]; }
  size_t size() const { return tables_.size(); }

  // Makes weights() and gradients() those of `batch`.
  void Open(const Batch& batch) {
    std::vector<std::vector<uint64_t>> keys(tables_.size());
    network_.CollectKeys(batch, &keys);
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (tables_[t].spec.kind() == TableSpec::SPARSE) {
        OpenSparse(tables_[t], keys[t]);
      } else {
        tables_[t].step_keys = {0};
        tables_[t].values = Row(tables_[t], 0);
        tables_[t].gradients.assign(tables_[t].spec.elements(), T(0));
      }
    }
  }

  // Gradients of untouched sparse rows hold NaN, so that reading one shows.
  std::vector<Weights<T>> weights() const {
    std::vector<Weights<T>> out;
    for (const LocalTable<T>& t : tables_) out.push_back({t.values.data(), t.index});
    return out;
  }
  std::vector<Gradients<T>> gradients() {
    std::vector<Gradients<T>> out;
    for (LocalTable<T>& t : tables_) out.push_back({t.gradients.data(), t.touched.data()});
    return out;
  }

  // Adam (Kingma and Ba 2014) on the mean gradients of the open step, rows not in it left alone.
  void ApplyAdam(double weight_sum, double learning_rate) {
    ++steps_;
    for (LocalTable<T>& t : tables_) {
      const size_t width = t.values.size() / std::max<size_t>(t.step_keys.size(), 1);
      for (size_t r = 0; r < t.step_keys.size(); ++r) {
        std::vector<T>& w = Row(t, t.step_keys[r]);
        std::vector<T>& m = t.first_moment[t.step_keys[r]];
        std::vector<T>& v = t.second_moment[t.step_keys[r]];
        m.resize(width);
        v.resize(width);
        for (size_t j = 0; j < width; ++j) {
          const double g = static_cast<double>(t.gradients[r * width + j]) / weight_sum;
          m[j] = static_cast<T>(0.9 * static_cast<double>(m[j]) + 0.1 * g);
          v[j] = static_cast<T>(0.999 * static_cast<double>(v[j]) + 0.001 * g * g);
          const double m_hat = static_cast<double>(m[j]) / (1 - std::pow(0.9, steps_));
          const double v_hat = static_cast<double>(v[j]) / (1 - std::pow(0.999, steps_));
          w[j] -= static_cast<T>(learning_rate * m_hat / (std::sqrt(v_hat) + 1e-8));
        }
      }
    }
  }

 private:
  void OpenSparse(LocalTable<T>& t, const std::vector<uint64_t>& keys) {
    const size_t width = t.spec.width();
    t.step_keys.clear();
    t.index.clear();
    t.values.clear();
    std::unordered_map<uint64_t, uint32_t> seen;
    for (const uint64_t key : keys) {
      const auto [at, fresh] = seen.try_emplace(key, static_cast<uint32_t>(seen.size()));
      t.index.push_back(at->second);
      if (!fresh) continue;
      t.step_keys.push_back(key);
      const std::vector<T>& row = Row(t, key);
      t.values.insert(t.values.end(), row.begin(), row.end());
    }
    t.gradients.assign(t.step_keys.size() * width, std::nan(""));
    t.touched.assign(t.step_keys.size(), 0);
  }

  std::vector<T>& Row(LocalTable<T>& t, uint64_t key) {
    const auto [at, fresh] = t.rows.try_emplace(key);
    if (fresh) {
      const size_t width = t.spec.kind() == TableSpec::SPARSE ? t.spec.width() : t.spec.elements();
      const InitialValue initial(seed_, t.spec.name(), t.spec.scale());
      for (size_t j = 0; j < width; ++j) at->second.push_back(static_cast<T>(initial.At(key, j)));
    }
    return at->second;
  }

  const Network<T>& network_;
  uint64_t seed_;
  int steps_ = 0;
  std::vector<LocalTable<T>> tables_;
};

}  // namespace capstan
