#include "core/emulated/launch.h"
#include "launch_checks_guard.h"
#include "ops/norm/cuda/loops.h"
#include "ops/norm/norm.h"
#include "support.h"

// The number of launches of an op: each costs some microseconds, whatever it computes.

using namespace norma;
using namespace norma::test;

namespace {

struct BatchNormCase {
  Sizes sizes;
  Activation activation;
  bool with_residual;
};

/// Launches of batch_norm() in training and of its gradients.
int64_t launches_of_batch_norm(const BatchNormCase& c, MemoryFormat format, DType dtype) {
  const int64_t channels = c.sizes[1];
  const TensorOptions of_channels{.dtype = compute_dtype(dtype)};
  const auto image = [&] { return copy_of(randn(c.sizes), format, dtype); };
  const Tensor x = image().set_requires_grad();
  const Tensor weight = randn({channels}, of_channels).set_requires_grad();
  const Tensor bias = randn({channels}, of_channels).set_requires_grad();
  const Tensor residual = c.with_residual ? image().set_requires_grad() : Tensor{};
  const Tensor running_mean = randn({channels}, of_channels);
  const Tensor running_var = ones({channels}, of_channels);
  const Tensor batches = zeros({}, {.dtype = DType::int64});
  const Tensor dy = image();
  Tensors inputs{x, weight, bias};
  if (c.with_residual) {
    inputs.push_back(residual);
  }
  const int64_t before = emulated::launch_counts().launches;
  const Tensor y = batch_norm(x, running_mean, running_var, weight, bias, {.num_batches_tracked = batches},
                              {c.activation, residual});
  grad({y}, inputs, {dy});
  const int64_t launches = emulated::launch_counts().launches - before;
  CHECK(batches.item<int64_t>() == 1);
  return launches;
}

/// Threads of the kernels of a norm's backward pass over the channels, in `format`.
int64_t threads_of_backward(MemoryFormat format, int64_t channels, bool with_weights) {
  const Tensor x = copy_of(randn({64, channels, 4, 8}), format).set_requires_grad();
  const Tensor weight = randn({channels}).set_requires_grad();
  const Tensor bias = randn({channels}).set_requires_grad();
  const Tensor y = layer_norm_2d(x, weight, bias);
  const Tensor dy = copy_of(randn(x.sizes()), format);
  const int64_t before = emulated::launch_counts().threads;
  grad({y}, with_weights ? Tensors{x, weight, bias} : Tensors{x}, {dy});
  return emulated::launch_counts().threads - before;
}

}  // namespace

TEST_CASE("cuda norms: as many threads as a warp has add up the parts of a weight's gradient") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  constexpr int64_t kChannels = 96;
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    CAPTURE(to_string(format));
    const int64_t more = threads_of_backward(format, kChannels, true) - threads_of_backward(format, kChannels, false);
    CHECK(more == 2 * kChannels * 32);
  }
}

TEST_CASE("cuda norms: a GPU that runs fewer blocks of a kernel at a time gets fewer") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  emulated::LaunchChecks few = emulated::launch_checks();
  few.resident_blocks = 1;
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    CAPTURE(to_string(format));
    const int64_t many = threads_of_backward(format, 96, false);
    const LaunchChecksGuard checks(few);
    CHECK(threads_of_backward(format, 96, false) < many);
  }
}

TEST_CASE("cuda norms: chunks of rows in channels_last begin at no multiples of a large power of two") {
  struct Layer {
    int64_t channels;
    int64_t pixels;
  };
  for (const Layer& layer : {Layer{64, 56 * 56},
                             {128, 56 * 56},
                             {256, 56 * 56},
                             {128, 28 * 28},
                             {256, 28 * 28},
                             {512, 28 * 28},
                             {256, 14 * 14},
                             {512, 14 * 14},
                             {1024, 14 * 14},
                             {2048, 7 * 7}}) {
    for (const int64_t blocks_of_processor : {2, 3, 4, 6}) {
      CAPTURE(layer.channels);
      CAPTURE(layer.pixels);
      CAPTURE(blocks_of_processor);
      const auto plan = kernels::emulated::plan_columns({.reduce_outer = 128 * layer.pixels, .kept = layer.channels},
                                                        /* vector= */ 8, 132 * blocks_of_processor);
      const int64_t bytes_of_step = kernels::emulated::kColumnThreads / plan.lanes * layer.channels * 2;
      const int64_t bytes_of_chunk = plan.rows_of_chunk * layer.channels * 2;
      const bool few = bytes_of_chunk < 8 * bytes_of_step;
      CHECK((few || bytes_of_chunk % (2 * bytes_of_step) != 0));
    }
  }
}

TEST_CASE("cuda norms: batch norm launches at most five kernels for a step of training") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  for (const BatchNormCase& c : {BatchNormCase{{4, 64, 8, 8}, Activation::identity, false},
                                 {{4, 64, 8, 8}, Activation::relu, false},
                                 {{4, 64, 8, 8}, Activation::relu, true},
                                 {{4, 256, 7, 7}, Activation::relu, true},
                                 {{4, 33, 5, 3}, Activation::relu, true},
                                 {{1, 33, 5, 3}, Activation::relu, true},
                                 {{8, 512, 1, 1}, Activation::relu, true}}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
        CAPTURE(to_string(c.sizes));
        CAPTURE(to_string(c.activation));
        CAPTURE(c.with_residual);
        CAPTURE(to_string(format));
        CAPTURE(to_string(dtype));
        CHECK(launches_of_batch_norm(c, format, dtype) <= 5);
      }
    }
  }
}
