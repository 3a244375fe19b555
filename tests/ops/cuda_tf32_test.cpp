#include "core/tf32.h"
#include "ops/conv/conv.h"
#include "ops/cuda_results.h"
#include "ops/matmul/matmul.h"

namespace norma::test {
namespace {

/// Results and gradients of a convolution and of a linear layer.
Tensors products(Device device, DType dtype, MemoryFormat format) {
  const auto on_device = [&](const Tensor& x) {
    return to_device(copy_of(x, x.rank() == 4 ? format : MemoryFormat::contiguous, dtype), device).set_requires_grad();
  };
  const DefaultDeviceGuard guard(kCpu);  // the numbers are those of one device
  const auto numbers = [](const Sizes& sizes, uint64_t seed) { return random_tensor(sizes, seed, DType::float32); };
  const Tensor x = on_device(numbers({3, 40, 13, 11}, 1));
  const Tensor weight = on_device(numbers({24, 40, 3, 3}, 2));
  const Tensor rows = on_device(numbers({50, 96}, 3));
  const Tensor matrix = on_device(numbers({33, 96}, 4));
  const Tensor y = conv2d(x, weight, {}, {.padding = 1});
  const Tensor z = linear(rows, matrix);
  y.backward(on_device(numbers(y.sizes(), 5)).detach());
  z.backward(on_device(numbers(z.sizes(), 6)).detach());
  return test::on_cpu({y, z, x.grad(), weight.grad(), rows.grad(), matrix.grad()});
}

}  // namespace

TEST_CASE("cuda tf32: products keep the digits of float32 unless TF32 is allowed") {
  for (const Device device : cuda_devices()) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const Tensors expected = products(kCpu, DType::float64, format);
      for (const bool allowed : {false, true}) {
        CAPTURE(allowed);
        const Tf32Guard guard(allowed);
        const Tensors found = products(device, DType::float32, format);
        for (size_t i = 0; i < found.size(); ++i) {
          CAPTURE(i);
          // TF32 rounds each operand to 11 bits, float32 to 24. Sums of up to 429 products are some tens.
          CHECK(relative_difference(found[i], expected[i]) <= (allowed ? 2e-3 : 2e-6));
        }
      }
    }
  }
}

}  // namespace norma::test
