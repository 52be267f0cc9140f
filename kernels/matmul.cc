#include "kernels/matmul.h"

#include <glog/logging.h>
#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/vector_ops.h"

namespace capstan {

// Not in the anonymous namespace: members of Cache have these types.
enum class ProductKind {
  kForward,
  kForwardBias,
  kForwardBiasRelu,
  kForwardRelu,
  kDataGradient,
  kWeightGradient
};

struct ProductKey {
  ProductKind kind;
  ProductShape shape;
  int threads;

  friend bool operator==(const ProductKey& a, const ProductKey& b) {
    return a.kind == b.kind && a.shape.rows == b.shape.rows && a.shape.in == b.shape.in &&
           a.shape.out == b.shape.out && a.shape.x_stride == b.shape.x_stride && a.threads == b.threads;
  }
};

namespace {

using Dim = dnnl::memory::dim;

ProductKind ForwardKind(bool bias, bool relu) {
  if (bias) return relu ? ProductKind::kForwardBiasRelu : ProductKind::kForwardBias;
  return relu ? ProductKind::kForwardRelu : ProductKind::kForward;
}
bool HasBias(ProductKind kind) {
  return kind == ProductKind::kForwardBias || kind == ProductKind::kForwardBiasRelu;
}
bool HasRelu(ProductKind kind) {
  return kind == ProductKind::kForwardRelu || kind == ProductKind::kForwardBiasRelu;
}

dnnl::memory::desc MatrixOf(size_t rows, size_t columns, size_t row_stride, size_t column_stride) {
  return dnnl::memory::desc(
      {static_cast<Dim>(rows), static_cast<Dim>(columns)}, dnnl::memory::data_type::f32,
      dnnl::memory::dims{static_cast<Dim>(row_stride), static_cast<Dim>(column_stride)});
}

// c = a·b, as oneDNN sees each of our products: a transposed matrix is one with swapped strides.
struct Operands {
  dnnl::memory::desc a, b, c;
};

Operands OperandsOf(ProductKind kind, const ProductShape& s) {
  switch (kind) {
    case ProductKind::kDataGradient:
      return {MatrixOf(s.rows, s.out, s.out, 1), MatrixOf(s.out, s.in, 1, s.out),
              MatrixOf(s.rows, s.in, s.x_stride, 1)};
    case ProductKind::kWeightGradient:
      return {MatrixOf(s.in, s.rows, 1, s.x_stride), MatrixOf(s.rows, s.out, s.out, 1),
              MatrixOf(s.in, s.out, s.out, 1)};
    default:
      return {MatrixOf(s.rows, s.in, s.x_stride, 1), MatrixOf(s.in, s.out, s.out, 1),
              MatrixOf(s.rows, s.out, s.out, 1)};
  }
}

}  // namespace

// Compiled products, the least recently used dropped first. A training loop needs kinds × layers × (full and
// last block), far below the limit.
class MatrixProducts::Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void Run(ProductKind kind, const ProductShape& shape, const float* a, const float* b, const float* bias,
           float* c) {
    Entry& entry = Find({kind, shape, omp_get_max_threads()});
    // oneDNN takes inputs and outputs as void*; it does not write the inputs.
    entry.a.set_data_handle(const_cast<float*>(a));
    entry.b.set_data_handle(const_cast<float*>(b));
    entry.c.set_data_handle(c);
    if (bias != nullptr) entry.bias.set_data_handle(const_cast<float*>(bias));
    entry.scratch.set_data_handle(scratch_.data());
    // The C function takes the arguments as they are; the C++ one copies a map into an array each time.
    const dnnl_status_t status =
        dnnl_primitive_execute(entry.primitive.get(), stream_.get(), static_cast<int>(entry.arguments.size()),
                               entry.arguments.data());
    CHECK_EQ(status, dnnl_success) << "oneDNN could not run a product it had accepted";
    stream_.wait();
  }

 private:
  static constexpr size_t kMaxEntries = 256;

  struct Entry {
    ProductKey key;
    uint64_t last_use = 0;
    dnnl::primitive primitive;
    dnnl::memory a, b, bias, c, scratch;
    std::vector<dnnl_exec_arg_t> arguments;  // the memory objects above
  };

  Entry& Find(const ProductKey& key) {
    ++clock_;
    for (const auto& entry : entries_) {
      if (entry->key == key) {
        entry->last_use = clock_;
        return *entry;
      }
    }
    if (entries_.size() == kMaxEntries) {
      entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& x, const auto& y) {
        return x->last_use < y->last_use;
      }));
    }
    entries_.push_back(Compile(key));
    entries_.back()->last_use = clock_;
    return *entries_.back();
  }

  std::unique_ptr<Entry> Compile(const ProductKey& key) {
    const Operands operands = OperandsOf(key.kind, key.shape);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
    if (key.kind == ProductKind::kWeightGradient) after.append_sum(1.0f);
    if (HasRelu(key.kind)) after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(after);

    const dnnl::memory::desc bias = MatrixOf(1, key.shape.out, key.shape.out, 1);
    auto entry = std::make_unique<Entry>();
    entry->key = key;
    const dnnl::matmul::primitive_desc description(
        HasBias(key.kind) ? dnnl::matmul::desc(operands.a, operands.b, bias, operands.c)
                          : dnnl::matmul::desc(operands.a, operands.b, operands.c),
        attributes, engine_);
    entry->primitive = dnnl::matmul(description);
    entry->a = dnnl::memory(operands.a, engine_, nullptr);
    entry->b = dnnl::memory(operands.b, engine_, nullptr);
    entry->c = dnnl::memory(operands.c, engine_, nullptr);
    entry->scratch = dnnl::memory(description.scratchpad_desc(), engine_, nullptr);
    entry->arguments = {{DNNL_ARG_SRC, entry->a.get()},
                        {DNNL_ARG_WEIGHTS, entry->b.get()},
                        {DNNL_ARG_DST, entry->c.get()},
                        {DNNL_ARG_SCRATCHPAD, entry->scratch.get()}};
    if (HasBias(key.kind)) {
      entry->bias = dnnl::memory(bias, engine_, nullptr);
      entry->arguments.push_back({DNNL_ARG_BIAS, entry->bias.get()});
    }
    scratch_.Resize(std::max(scratch_.size(), description.scratchpad_desc().get_size()));
    return entry;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  AlignedBuffer<std::byte> scratch_;
  std::vector<std::unique_ptr<Entry>> entries_;
  uint64_t clock_ = 0;
};

MatrixProducts::MatrixProducts() : cache_(std::make_unique<Cache>()) {}
MatrixProducts::~MatrixProducts() = default;

void MatrixProducts::Forward(const ProductShape& s, const float* x, const float* w, const float* b, bool relu,
                             float* y) {
  if (s.out > 1) {
    cache_->Run(ForwardKind(b != nullptr, relu), s, x, w, b, y);
    return;
  }
  for (size_t i = 0; i < s.rows; ++i) {
    const float sum = Dot(x + i * s.x_stride, w, s.in) + (b != nullptr ? *b : 0.0f);
    y[i] = relu ? std::max(sum, 0.0f) : sum;
  }
}

void MatrixProducts::DataGradient(const ProductShape& s, const float* dy, const float* w, float* dx) {
  if (s.out > 1) {
    cache_->Run(ProductKind::kDataGradient, s, dy, w, nullptr, dx);
    return;
  }
  for (size_t i = 0; i < s.rows; ++i) {
    for (size_t k = 0; k < s.in; ++k) dx[i * s.x_stride + k] = dy[i] * w[k];
  }
}

void MatrixProducts::WeightGradient(const ProductShape& s, const float* x, const float* dy, float* dw) {
  if (s.out > 1) {
    cache_->Run(ProductKind::kWeightGradient, s, x, dy, nullptr, dw);
    return;
  }
  AddScaledRows(s.rows, s.in, x, s.x_stride, dy, dw);
}

void MatrixProducts::Forward(const ProductShape& s, const double* x, const double* w, const double* b,
                             bool relu, double* y) {
  for (size_t i = 0; i < s.rows; ++i) {
    for (size_t j = 0; j < s.out; ++j) {
      double sum = b != nullptr ? b[j] : 0.0;
      for (size_t k = 0; k < s.in; ++k) sum += x[i * s.x_stride + k] * w[k * s.out + j];
      y[i * s.out + j] = relu ? std::max(sum, 0.0) : sum;
    }
  }
}

void MatrixProducts::DataGradient(const ProductShape& s, const double* dy, const double* w, double* dx) {
  for (size_t i = 0; i < s.rows; ++i) {
    for (size_t k = 0; k < s.in; ++k) {
      double sum = 0.0;
      for (size_t j = 0; j < s.out; ++j) sum += dy[i * s.out + j] * w[k * s.out + j];
      dx[i * s.x_stride + k] = sum;
    }
  }
}

void MatrixProducts::WeightGradient(const ProductShape& s, const double* x, const double* dy, double* dw) {
  for (size_t i = 0; i < s.rows; ++i) {
    for (size_t k = 0; k < s.in; ++k) {
      for (size_t j = 0; j < s.out; ++j) dw[k * s.out + j] += x[i * s.x_stride + k] * dy[i * s.out + j];
    }
  }
}

}  // namespace capstan
