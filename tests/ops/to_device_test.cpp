#include "core/device.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

namespace norma::test {

TEST_CASE("to(device): values, strides and dtype, there and back, in every layout") {
  for (const Layout layout : kLayouts) {
    for (const DType dtype : {DType::float64, DType::bfloat16, DType::int32}) {
      const Tensor x = in_layout(to(to_device(random_tensor({2, 3, 4, 5}, 1), kCpu), dtype), layout);
      const Tensor there = to(x, kCudaEmulated);
      CHECK(there.device() == kCudaEmulated);
      CHECK(there.dtype() == dtype);
      CHECK(there.strides() == preserved_strides(x.sizes(), x.strides()));
      CHECK(max_difference(to(there, kCpu), x) == 0);
      CHECK(to(x, kCpu).is_same(x));
      CHECK(to(there, kCudaEmulated).is_same(there));
    }
  }
}

TEST_CASE("to(device): gradients, once and twice") {
  check_gradients(
      "to(device)",
      [](const Tensors& in) {
        const Tensor there = to(in[0], kCudaEmulated);
        const Tensor back = to(mul(there, there), kCpu);
        return Tensors{mul(back, to(in[0], kCpu))};
      },
      {random_tensor({2, 3, 4, 5}, 1)}, /* twice= */ true);
}

TEST_CASE("to(device): the gradient lies where its tensor does, in its format") {
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    Tensor x = in_layout(to_device(random_tensor({2, 3, 4, 5}, 1), kCpu), layout);
    x.set_requires_grad();
    const Tensor y = to(x, kCudaEmulated);
    // A gradient in the other format.
    const Layout other = layout == Layout::contiguous ? Layout::channels_last : Layout::contiguous;
    const Tensor dy = in_layout(to_device(random_tensor({2, 3, 4, 5}, 2), kCudaEmulated), other);
    const Tensor dx = grad({y}, {x}, {dy})[0];
    CHECK(dx.device() == kCpu);
    CHECK(dx.strides() == x.strides());
    CHECK(max_difference(dx, dy) == 0);
  }
}

TEST_CASE("to(device): error texts") {
  const std::string refused = error_of([] { to(zeros({2}), Device{.type = DeviceType::cuda}); });
  CHECK_MESSAGE(test::is_refusal_of_cuda(refused, "to"), refused);
  CHECK(error_of([] { to(Tensor(), kCudaEmulated); }) == "to: x: expected a tensor, got none");
}

}  // namespace norma::test
