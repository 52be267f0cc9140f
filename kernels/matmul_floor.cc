#include "kernels/matmul_floor.h"

#include <glog/logging.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/matmul.h"

namespace capstan {

// One layer's arrays; what they hold does not matter for the time. (Named: a member of Arrays has this type.)
struct FloorLayer {
  ProductShape shape;
  size_t gradient_inputs;
  AlignedBuffer<float> x, w, b, y, dy, dx, dw;
};

namespace {

AlignedBuffer<float> FilledBuffer(size_t size) {
  AlignedBuffer<float> buffer(size);
  for (size_t i = 0; i < size; ++i) buffer.data()[i] = static_cast<float>(i % 17) * 0.01f - 0.08f;
  return buffer;
}

std::vector<FloorLayer> MakeFloorLayers(std::span<const size_t> widths, size_t embedded, size_t rows) {
  std::vector<FloorLayer> layers;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    const size_t stride = (widths[l] + 15) / 16 * 16;
    FloorLayer layer;
    layer.shape = {rows, widths[l], widths[l + 1], stride};
    layer.gradient_inputs = l == 0 ? embedded : widths[l];
    layer.x = FilledBuffer(rows * stride);
    layer.w = FilledBuffer(widths[l] * widths[l + 1]);
    layer.b = FilledBuffer(widths[l + 1]);
    layer.y = FilledBuffer(rows * widths[l + 1]);
    layer.dy = FilledBuffer(rows * widths[l + 1]);
    layer.dx = FilledBuffer(rows * stride);
    layer.dw = FilledBuffer(widths[l] * widths[l + 1]);
    layers.push_back(std::move(layer));
  }
  return layers;
}

void RunFloorBlock(MatrixProducts& products, std::vector<FloorLayer>& layers, size_t rows) {
  for (FloorLayer& l : layers) {
    l.shape.rows = rows;
    products.Forward(l.shape, l.x.data(), l.w.data(), l.b.data(), l.shape.out > 1, l.y.data());
  }
  for (auto l = layers.rbegin(); l != layers.rend(); ++l) {
    products.WeightGradient(l->shape, l->x.data(), l->dy.data(), l->dw.data());
    ProductShape shape = l->shape;
    shape.in = l->gradient_inputs;
    if (shape.in > 0) products.DataGradient(shape, l->dy.data(), l->w.data(), l->dx.data());
  }
}

}  // namespace

double ThreadSeconds() {
  timespec now;
  PCHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct MatmulFloor::Arrays {
  size_t batch;
  size_t block_rows;
  MatrixProducts products;
  std::vector<FloorLayer> layers;
};

MatmulFloor::MatmulFloor(std::span<const size_t> widths, size_t embedded, size_t batch, size_t block_rows)
    : arrays_(std::make_unique<Arrays>()) {
  CHECK(widths.size() >= 2 && batch > 0 && block_rows > 0 && embedded <= widths[0]);
  arrays_->batch = batch;
  arrays_->block_rows = block_rows;
  arrays_->layers = MakeFloorLayers(widths, embedded, std::min(batch, block_rows));
}

MatmulFloor::~MatmulFloor() = default;

double MatmulFloor::Run() {
  const double start = ThreadSeconds();
  for (size_t done = 0; done < arrays_->batch; done += arrays_->block_rows) {
    RunFloorBlock(arrays_->products, arrays_->layers, std::min(arrays_->block_rows, arrays_->batch - done));
  }
  return ThreadSeconds() - start;
}

double MatmulFloor::flop() const {
  double sum = 0;
  for (const FloorLayer& l : arrays_->layers) {
    sum += 2.0 * static_cast<double>(arrays_->batch * l.shape.out) *
           static_cast<double>(2 * l.shape.in + l.gradient_inputs);
  }
  return sum;
}

}  // namespace capstan
