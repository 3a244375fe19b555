#include "ops/cuda_results.h"
#include "ops/shape/join.h"

// CUDA's selection of rows and its gradient at sizes beyond a launch, beside the CPU's, whose bits they have.

using namespace norma;
using namespace norma::test;

namespace {

/// `count` rows below `rows`, some of them several times.
Tensor some_rows(int64_t count, int64_t rows) {
  Generator generator(3);
  return randint(0, rows, {count}, {.dtype = DType::int64, .device = kCpu}, generator);
}

void check_select(const Tensor& x, int64_t axis, const Tensor& index) {
  const DefaultDeviceGuard guard(kCpu);
  const auto results = [&](Device device) {
    const Tensor there = to_device(x, device);
    const Tensor rows = to_device(index, device);
    const Tensor leaf = there.detach().set_requires_grad();
    const Tensor y = index_select(leaf, axis, rows);
    const Tensor dy = to_device(copy_of(random_tensor(y.sizes(), 2), MemoryFormat::preserve, x.dtype()), device);
    return on_cpu({y, grad({y}, {leaf}, {dy})[0]});
  };
  const Tensors expected = results(kCpu);
  for (const Device device : cuda_devices()) {
    const Tensors got = results(device);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK_MESSAGE(got[i].to_vector<double>() == expected[i].to_vector<double>(), to_string(x.dtype()), " ",
                    to_string(x.sizes()), " along ", axis, ", result ", i);
    }
  }
}

}  // namespace

TEST_CASE("cuda index: more elements than threads, many rows into few and few out of many") {
  const DefaultDeviceGuard guard(kCpu);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Tensor x = copy_of(random_tensor({300, 130}, 1), MemoryFormat::preserve, dtype);
    check_select(x, 0, some_rows(1000, 3));
    check_select(x, 0, some_rows(1000, 300));
    check_select(x, 1, some_rows(500, 130));
  }
}

TEST_CASE("cuda index: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  const Tensor x = copy_of(random_tensor({30, 13}, 1), MemoryFormat::preserve, DType::float32);
  const Tensor index = some_rows(200, 30);
  check_any_order("index", [&](Device device) {
    const Tensor leaf = to_device(x, device).detach().set_requires_grad();
    const Tensor y = index_select(leaf, 0, to_device(index, device));
    return Tensors{y, grad({y}, {leaf}, {to_device(random_tensor(y.sizes(), 2, DType::float32), device)})[0]};
  });
}
