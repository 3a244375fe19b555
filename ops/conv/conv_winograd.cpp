#include "core/buffer.h"
#include "core/parallel.h"
#include "ops/conv/channels_last.h"
#include "ops/conv/kernels.h"
#include "ops/conv/winograd.h"
#include "ops/matmul/kernels.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>

namespace norma::kernels {

namespace {

using winograd::kernels_cpu;
using winograd::products;
using winograd::Tiles;
using winograd::Weights;

/// Tiles are worked on in blocks, so that their transforms stay in the caches.
struct Blocks {
  int64_t tiles, count;

  Blocks(int64_t all, int64_t about) : tiles(all), count(std::max<int64_t>(1, all / about)) {}
  [[nodiscard]] int64_t begin(int64_t block) const { return tiles * block / count; }
  [[nodiscard]] int64_t largest() const { return (tiles + count - 1) / count; }

  /// Calls f(block, its first tile, the number of its tiles).
  template <class F>
  void for_each(F&& f) const {
    for (int64_t block = 0; block < count; ++block) {
      f(block, begin(block), begin(block + 1) - begin(block));
    }
  }
};

/// Calls f(begin, end) for the tiles of a block, in parallel.
template <class F>
void for_tiles(const Tiles& tiles, int64_t count, F&& f) {
  parallel_for(0, count, std::max<int64_t>(1, kPointwiseGrain / (tiles.c * products(tiles.step))), f);
}

/// Calls f(begin, end) for the rows of the matrices of weights, in parallel.
template <class F>
void for_rows(const Weights& weights, int64_t step, F&& f) {
  constexpr int64_t kLine = 16;  // rows that lie in one line of the cache
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (kLine * weights.n * products(step)));
  parallel_for(0, (weights.k + kLine - 1) / kLine, grain,
               [&](int64_t begin, int64_t end) { f(begin * kLine, std::min(weights.k, end * kLine)); });
}

/// c = a b for `batch` matrices that follow each other: a (m, k) or its transpose, b (k, n).
void multiply(int64_t batch, int64_t m, int64_t n, int64_t k, bool a_transposed, const float* a, const float* b,
              float* c) {
  MatmulCase product = dense_product(DType::float32, m, n, k, a_transposed);
  product.batch = batch;
  product.a_batch = m * k;
  product.b_batch = k * n;
  product.c_batch = m * n;
  matmul_cpu.choose(product).multiply(product, a, b, /* bias= */ nullptr, c, /* keep= */ nullptr);
}

void transform_weights(const Weights& weights, int64_t step, const float* data, float* matrices) {
  for_rows(weights, step,
           [&](int64_t begin, int64_t end) { kernels_cpu.weight(weights, step, data, begin, end, matrices); });
}

/// The transforms of weights that no one changes. Several weights may lie in one storage, and begin at one place: views
/// of a part of them, or with the axes in another order.
class TransformedWeights : public DerivedData {
 public:
  const float* get(const Weights& weights, int64_t step, const float* data) {
    const std::lock_guard lock(mutex_);
    for (const Kept& kept : kept_) {
      if (kept.source == data && kept.step == step && kept.weights == weights) {
        return kept.matrices.data();
      }
    }
    const Kept& kept = kept_.emplace_back(data, step, weights);
    transform_weights(weights, step, data, kept.matrices.data());
    return kept.matrices.data();
  }

 private:
  struct Kept {
    Kept(const float* from, int64_t tile_step, const Weights& of)
        : source(from), step(tile_step), weights(of), matrices(products(step) * weights.k * weights.n) {}
    const float* source;
    int64_t step;
    Weights weights;
    Buffer<float> matrices;
  };

  std::mutex mutex_;
  std::list<Kept> kept_;
};

/// y = x * weights, whose transforms are `matrices`, tile by tile.
void convolve(const Tiles& x, const Tiles& y, const float* in, const float* matrices, const winograd::Store& then,
              float* out) {
  constexpr int64_t kBlock = 128;  // tiles; 96 to 192 are as fast for 64 to 512 channels
  const int64_t step = x.step;
  const Blocks blocks(x.count(), kBlock);
  const Buffer<float> transformed(products(step) * blocks.largest() * x.c);
  const Buffer<float> sums(products(step) * blocks.largest() * y.c);
  blocks.for_each([&](int64_t /* block */, int64_t first, int64_t size) {
    for_tiles(x, size, [&](int64_t begin, int64_t end) {
      kernels_cpu.input(x, in, first + begin, first + end, transformed.data() + begin * x.c, size * x.c);
    });
    multiply(products(step), size, y.c, x.c, /* a_transposed= */ false, transformed.data(), matrices, sums.data());
    for_tiles(y, size, [&](int64_t begin, int64_t end) {
      kernels_cpu.output(y, sums.data() + begin * y.c, size * y.c, first + begin, first + end, then, out);
    });
  });
}

/// Tiles of x (h, w, c) for outputs of (oh, ow).
Tiles tiles_of(const Conv2dCase& conv, int64_t step) {
  return {.n = conv.n,
          .h = conv.h,
          .w = conv.w,
          .c = conv.c,
          .rows = (conv.oh + step - 1) / step,
          .columns = (conv.ow + step - 1) / step,
          .step = step,
          .padding_h = conv.padding_h,
          .padding_w = conv.padding_w};
}

/// The tiles that `inputs` are for, of the images that the convolution writes.
Tiles outputs_of(const Tiles& inputs, int64_t h, int64_t w, int64_t c) {
  return {.n = inputs.n, .h = h, .w = w, .c = c, .rows = inputs.rows, .columns = inputs.columns, .step = inputs.step};
}

Weights weights_of(const Conv2dCase& conv) {
  const int64_t w = conv.weight_channels_last ? conv.c : 1;
  return {.k = conv.c,
          .n = conv.o,
          .k_stride = conv.weight_channels_last ? 1 : 9,
          .n_stride = 9 * conv.c,
          .h_stride = 3 * w,
          .w_stride = w,
          .flip = false};
}

Weights transposed(Weights weights) {
  std::swap(weights.k, weights.n);
  std::swap(weights.k_stride, weights.n_stride);
  return weights;
}

/// dx is the convolution of dy, padded by 2 - padding, with the weights turned by half a turn and transposed.
Conv2dCase mirrored(const Conv2dCase& conv) {
  Conv2dCase dy = conv;
  std::swap(dy.c, dy.o);
  std::swap(dy.h, dy.oh);
  std::swap(dy.w, dy.ow);
  dy.padding_h = 2 - conv.padding_h;
  dy.padding_w = 2 - conv.padding_w;
  return dy;
}

bool supports(const Conv2dCase& conv, Conv2dPass /* pass */) {
  constexpr int64_t kLanes = 16;  // of the widest register
  return conv.dtype == DType::float32 && conv.groups == 1 && conv.kh == 3 && conv.kw == 3 && conv.stride_h == 1 &&
         conv.stride_w == 1 && conv.dilation_h == 1 && conv.dilation_w == 1 && conv.padding_h <= 2 &&
         conv.padding_w <= 2 && conv.c >= kLanes && conv.o >= kLanes;
}

template <int64_t kStep>
bool forward_act(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                 const Epilogue& epilogue, Storage* keep) {
  if ((epilogue.activation != Activation::identity && epilogue.activation != Activation::relu) ||
      (epilogue.residual != nullptr && !conv.channels_last)) {
    return false;
  }
  const Tiles tiles = tiles_of(conv, kStep);
  const Weights weights = weights_of(conv);
  const auto* const weight_data = static_cast<const float*>(weight);
  const auto compute = [&](const float* matrices) {
    read_channels_last<float>(conv, x, conv.c, conv.h * conv.w, [&](const float* in) {
      write_channels_last<float>(conv, y, conv.o, conv.oh * conv.ow, [&](float* out) {
        convolve(tiles, outputs_of(tiles, conv.oh, conv.ow, conv.o), in, matrices,
                 {.bias = static_cast<const float*>(bias),
                  .residual = static_cast<const float*>(epilogue.residual),
                  .relu = epilogue.activation == Activation::relu},
                 out);
      });
    });
  };
  if (keep != nullptr) {
    const auto kept = keep->derived<TransformedWeights>();
    compute(kept->get(weights, kStep, weight_data));
  } else {
    const Buffer<float> matrices(products(kStep) * weights.k * weights.n);
    transform_weights(weights, kStep, weight_data, matrices.data());
    compute(matrices.data());
  }
  return true;
}

template <int64_t kStep>
void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage* keep) {
  forward_act<kStep>(conv, x, weight, bias, y, /* epilogue= */ {}, keep);
}

template <int64_t kStep>
void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  const Tiles tiles = tiles_of(mirrored(conv), kStep);
  Weights weights = transposed(weights_of(conv));
  weights.flip = true;
  const Buffer<float> matrices(products(kStep) * weights.k * weights.n);
  transform_weights(weights, kStep, static_cast<const float*>(weight), matrices.data());
  read_channels_last<float>(conv, dy, conv.o, conv.oh * conv.ow, [&](const float* in) {
    write_channels_last<float>(conv, dx, conv.c, conv.h * conv.w, [&](float* out) {
      convolve(tiles, outputs_of(tiles, conv.h, conv.w, conv.c), in, matrices.data(), /* then= */ {}, out);
    });
  });
}

/// dweight from x and dy in NHWC.
void correlate(const Tiles& x, const Tiles& dy, const Weights& weights, const float* x_data, const float* dy_data,
               float* dweight) {
  // Each block has sums of its own, so that fewer blocks are faster, but round more. Where there are many tiles, that
  // many blocks are made that sums and transforms take the same memory.
  constexpr double kBlock = 256;
  const int64_t step = x.step;
  const double pairs = static_cast<double>(x.c * dy.c) / static_cast<double>(x.c + dy.c);
  const Blocks blocks(x.count(),
                      static_cast<int64_t>(std::max(kBlock, std::sqrt(static_cast<double>(x.count()) * pairs))));
  const int64_t part = products(step) * weights.k * weights.n;
  const Buffer<float> sums(blocks.count * part);
  const Buffer<float> inputs(products(step) * blocks.largest() * x.c);
  const Buffer<float> gradients(products(step) * blocks.largest() * dy.c);
  blocks.for_each([&](int64_t block, int64_t first, int64_t size) {
    for_tiles(x, size, [&](int64_t begin, int64_t end) {
      kernels_cpu.input(x, x_data, first + begin, first + end, inputs.data() + begin * x.c, size * x.c);
      kernels_cpu.output_gradient(dy, dy_data, first + begin, first + end, gradients.data() + begin * dy.c,
                                  size * dy.c);
    });
    multiply(products(step), dy.c, x.c, size, /* a_transposed= */ true, gradients.data(), inputs.data(),
             sums.data() + block * part);
  });
  for_rows(weights, step, [&](int64_t begin, int64_t end) {
    kernels_cpu.weight_gradient(weights, step, sums.data(), blocks.count, begin, end, dweight);
  });
}

template <int64_t kStep>
void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  const Tiles tiles = tiles_of(conv, kStep);
  read_channels_last<float>(conv, x, conv.c, conv.h * conv.w, [&](const float* x_data) {
    read_channels_last<float>(conv, dy, conv.o, conv.oh * conv.ow, [&](const float* dy_data) {
      correlate(tiles, outputs_of(tiles, conv.oh, conv.ow, conv.o), transposed(weights_of(conv)), x_data, dy_data,
                static_cast<float*>(dweight));
    });
  });
}

template <int64_t kStep>
constexpr Conv2dImplementation kImplementation{.name = kStep == 4 ? "winograd_4x4" : "winograd_2x2",
                                               .supports = supports,
                                               .forward = forward<kStep>,
                                               .input_gradient = input_gradient<kStep>,
                                               .weight_gradient = weight_gradient<kStep>,
                                               .forward_act = forward_act<kStep>};

/// Time in multiplications at the full rate: of the products, of the transforms of the weights (as those of 64 tiles),
/// and of the transforms of tiles. The three numbers are fits to 35 shapes (16 to 1024 channels, maps of 2x2 to
/// 112x112, 1 to 256 images) on a Zen 5 with two threads.
double cost(const Conv2dCase& conv, int64_t step) {
  constexpr double kWeights = 64;
  const double for_number = step == 4 ? 28 : 18;
  const auto tiles = static_cast<double>(tiles_of(conv, step).count());
  const auto c = static_cast<double>(conv.c);
  const auto o = static_cast<double>(conv.o);
  return static_cast<double>(products(step)) * (c * o * (tiles + kWeights) + tiles * (c + o) * for_number);
}

}  // namespace

constinit const Conv2dImplementation conv2d_winograd_2x2 = kImplementation<2>;
constinit const Conv2dImplementation conv2d_winograd_4x4 = kImplementation<4>;

const Conv2dImplementation* fastest_winograd(const Conv2dCase& conv, Conv2dPass pass) {
  if (!supports(conv, pass)) {
    return nullptr;
  }
  const Conv2dCase written = pass == Conv2dPass::input_gradient ? mirrored(conv) : conv;
  const double two = cost(written, 2);
  const double four = cost(written, 4);
  if (std::min(two, four) > flops(conv) / 2) {
    return nullptr;
  }
  return two < four ? &conv2d_winograd_2x2 : &conv2d_winograd_4x4;
}

}  // namespace norma::kernels
