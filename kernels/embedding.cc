#include "kernels/embedding.h"

#include <algorithm>

namespace capstan {
namespace {

constexpr size_t kAhead = 12;  // lookups between the prefetch of a row and its use

// Width as a compile-time number where it is a common one: the loops over a row then have no tail.
template <size_t kWidth>
struct RowWidth {
  size_t operator()() const { return kWidth; }
};
struct AnyRowWidth {
  size_t width;
  size_t operator()() const { return width; }
};

template <typename Body>
void WithRowWidth(size_t width, const Body& body) {
  switch (width) {
    case 4:
      return body(RowWidth<4>{});
    case 8:
      return body(RowWidth<8>{});
    case 16:
      return body(RowWidth<16>{});
    case 32:
      return body(RowWidth<32>{});
    case 64:
      return body(RowWidth<64>{});
    default:
      return body(AnyRowWidth{width});
  }
}

template <typename T, typename Width>
void CopyRow(Width width, const T* __restrict from, T* __restrict to) {
  for (size_t j = 0; j < width(); ++j) to[j] = from[j];
}

// Adds factor · from to the gradient row, or writes it as the first contribution.
template <typename T, typename Width>
void Contribute(Width width, T factor, const T* __restrict from, T* __restrict to, uint8_t* touched) {
  if (*touched != 0) {
    for (size_t j = 0; j < width(); ++j) to[j] += factor * from[j];
  } else {
    for (size_t j = 0; j < width(); ++j) to[j] = factor * from[j];
    *touched = 1;
  }
}

// Calls body(record - first, feature, lookup number, value) in lookup order.
template <typename T, typename Body>
void ForEachLookup(const Lookups& lookups, size_t first, size_t rows, const Body& body) {
  size_t k = FirstLookup(lookups.features, first);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t f = 0; f < lookups.features.size(); ++f) {
      const FeatureLookups& feature = lookups.features[f];
      for (uint32_t p = feature.offsets[first + i]; p < feature.offsets[first + i + 1]; ++p, ++k) {
        body(i, f, k, feature.values != nullptr ? static_cast<T>(feature.values[p]) : T(1));
      }
    }
  }
}

// One key per feature: lookup k = record · features + feature, and rows can be fetched ahead of their use.
template <bool kForWrite, typename T, typename Width, typename Body>
void ForEachSingleLookup(const Lookups& lookups, size_t first, size_t rows, Width width, const T* table,
                         const Body& body) {
  const size_t features = lookups.features.size();
  const uint32_t* index = lookups.index + first * features;
  const size_t count = rows * features;
  size_t k = 0;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t f = 0; f < features; ++f, ++k) {
      __builtin_prefetch(table + index[std::min(k + kAhead, count - 1)] * width(), kForWrite ? 1 : 0);
      body(i, f, index[k]);
    }
  }
}

}  // namespace

size_t FirstLookup(std::span<const FeatureLookups> features, size_t record) {
  size_t sum = 0;
  for (const FeatureLookups& feature : features) sum += feature.offsets[record];
  return sum;
}

bool HasOneEach(std::span<const FeatureLookups> features, size_t records) {
  for (const FeatureLookups& feature : features) {
    if (feature.values != nullptr) return false;
    uint32_t wrong = 0;
    for (size_t i = 0; i <= records; ++i) wrong |= feature.offsets[i] ^ static_cast<uint32_t>(i);
    if (wrong != 0) return false;
  }
  return true;
}

template <typename T>
void PoolRows(const Lookups& lookups, size_t first, size_t rows, size_t width, const T* table, T* out,
              size_t stride) {
  WithRowWidth(width, [&](auto w) {
    if (lookups.one_each) {
      ForEachSingleLookup<false>(lookups, first, rows, w, table, [&](size_t i, size_t f, size_t row) {
        CopyRow(w, table + row * w(), out + i * stride + f * w());
      });
      return;
    }
    for (size_t i = 0; i < rows; ++i) std::fill_n(out + i * stride, lookups.features.size() * w(), T(0));
    ForEachLookup<T>(lookups, first, rows, [&](size_t i, size_t f, size_t k, T value) {
      const T* from = table + lookups.index[k] * w();
      T* to = out + i * stride + f * w();
      for (size_t j = 0; j < w(); ++j) to[j] += value * from[j];
    });
  });
}

template <typename T>
void ScatterPooledRows(const Lookups& lookups, size_t first, size_t rows, size_t width, const T* dout,
                       size_t stride, T* gradients, uint8_t* touched) {
  WithRowWidth(width, [&](auto w) {
    if (lookups.one_each) {
      ForEachSingleLookup<true>(lookups, first, rows, w, gradients, [&](size_t i, size_t f, size_t row) {
        Contribute(w, T(1), dout + i * stride + f * w(), gradients + row * w(), touched + row);
      });
      return;
    }
    ForEachLookup<T>(lookups, first, rows, [&](size_t i, size_t f, size_t k, T value) {
      const size_t row = lookups.index[k];
      Contribute(w, value, dout + i * stride + f * w(), gradients + row * w(), touched + row);
    });
  });
}

template <typename T>
void AddScalarSums(const Lookups& lookups, size_t first, size_t rows, const T* table, T* out) {
  if (lookups.one_each) {
    const size_t features = lookups.features.size();
    const uint32_t* index = lookups.index + first * features;
    for (size_t i = 0; i < rows; ++i, index += features) {
      T sum = out[i];
      for (size_t f = 0; f < features; ++f) sum += table[index[f]];
      out[i] = sum;
    }
    return;
  }
  ForEachLookup<T>(lookups, first, rows,
                   [&](size_t i, size_t, size_t k, T value) { out[i] += value * table[lookups.index[k]]; });
}

template <typename T>
void ScatterScalars(const Lookups& lookups, size_t first, size_t rows, const T* dout, T* gradients,
                    uint8_t* touched) {
  const auto contribute = [&](T contribution, size_t row) {
    // A select, not a branch: whether a key is new in this step cannot be predicted.
    gradients[row] = touched[row] != 0 ? gradients[row] + contribution : contribution;
    touched[row] = 1;
  };
  if (lookups.one_each) {
    const size_t features = lookups.features.size();
    const uint32_t* index = lookups.index + first * features;
    for (size_t i = 0; i < rows; ++i, index += features) {
      for (size_t f = 0; f < features; ++f) contribute(dout[i], index[f]);
    }
    return;
  }
  ForEachLookup<T>(lookups, first, rows, [&](size_t i, size_t, size_t k, T value) {
    contribute(value * dout[i], lookups.index[k]);
  });
}

template void PoolRows(const Lookups&, size_t, size_t, size_t, const float*, float*, size_t);
template void PoolRows(const Lookups&, size_t, size_t, size_t, const double*, double*, size_t);
template void ScatterPooledRows(const Lookups&, size_t, size_t, size_t, const float*, size_t, float*,
                                uint8_t*);
template void ScatterPooledRows(const Lookups&, size_t, size_t, size_t, const double*, size_t, double*,
                                uint8_t*);
template void AddScalarSums(const Lookups&, size_t, size_t, const float*, float*);
template void AddScalarSums(const Lookups&, size_t, size_t, const double*, double*);
template void ScatterScalars(const Lookups&, size_t, size_t, const float*, float*, uint8_t*);
template void ScatterScalars(const Lookups&, size_t, size_t, const double*, double*, uint8_t*);

}  // namespace capstan
