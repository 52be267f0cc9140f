// Looking up rows and sending gradients back to them, for float and double.
//
// A *lookup* is one key of one feature of one record. Lookups are numbered in (record, feature, position)
// order over the whole batch; index[k] is the row of `table` that lookup k uses. Every sum below adds in that
// order, so the bits depend on the batch alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace capstan {

// The keys of one feature in CSR form: record i has lookups offsets[i] … offsets[i+1]. Memory of the caller.
struct FeatureLookups {
  const uint32_t* offsets = nullptr;  // [records + 1], offsets[0] = 0
  const float* values = nullptr;      // one factor per lookup of this feature, or null: all are 1
};

// The lookups of a batch. `features` and `index` are the caller's memory.
struct Lookups {
  std::span<const FeatureLookups> features;
  const uint32_t* index = nullptr;
  bool one_each = false;  // every feature has exactly one key in every record, and no values: a faster path
};

// The number of the first lookup of `record`.
size_t FirstLookup(std::span<const FeatureLookups> features, size_t record);

// Whether Lookups::one_each may be set.
bool HasOneEach(std::span<const FeatureLookups> features, size_t records);

// For records first … first+rows: out[i, f·width …] = Σ of value · table[index] over the lookups of feature
// f; zeros where there is none. table: [*, width]. Row i of out starts at out + i · stride (i = 0 is record
// `first`).
template <typename T>
void PoolRows(const Lookups& lookups, size_t first, size_t rows, size_t width, const T* table, T* out,
              size_t stride);

// Backward of PoolRows: adds value · dout[i, f·width …] to gradients[index]. Where touched[index] is 0 the
// row is written, not added to, and touched set: its floats may be uninitialised before.
template <typename T>
void ScatterPooledRows(const Lookups& lookups, size_t first, size_t rows, size_t width, const T* dout,
                       size_t stride, T* gradients, uint8_t* touched);

// For records first … first+rows: out[i] += Σ of value · table[index] over all lookups of the record.
// Width 1.
template <typename T>
void AddScalarSums(const Lookups& lookups, size_t first, size_t rows, const T* table, T* out);

// Backward of AddScalarSums: adds value · dout[i] to gradients[index], with `touched` as above.
template <typename T>
void ScatterScalars(const Lookups& lookups, size_t first, size_t rows, const T* dout, T* gradients,
                    uint8_t* touched);

}  // namespace capstan
