#include "core/parallel.h"
#include "core/tape.h"
#include "map_norm_cases.h"
#include "norm_properties.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cmath>

// The norms of ops/map_norm/. Their plain gradients come from kernels; with create_graph, from composed
// functions that share nothing with them.

using namespace norma;
using namespace norma::test;

namespace {

/// Memory orders: those of support.h, then channels before images, and columns before rows.
constexpr int kOrders = 5;
Tensor in_order(const Tensor& x, int order) {
  switch (order) {
    case 0: return in_layout(x, Layout::contiguous);
    case 1: return in_layout(x, Layout::channels_last);
    case 2: return in_layout(x, Layout::strided);
    case 3: return permute(contiguous(permute(x, {1, 0, 2, 3})), {1, 0, 2, 3}).detach();
    default: return permute(contiguous(permute(x, {0, 1, 3, 2})), {0, 1, 3, 2}).detach();
  }
}

/// x and the parameters of a case, all of which want a gradient.
Tensors inputs_of(const MapNormCase& norm, const Sizes& sizes, DType dtype, int order) {
  Tensors inputs{in_order(to(random_tensor(sizes, 1), dtype), order)};
  for (int64_t i = 0; i < norm.parameters; ++i) {
    inputs.push_back(random_tensor({sizes[1]}, 2 + static_cast<uint64_t>(i), DType::float32));
    if (dtype == DType::float64) {
      inputs.back() = to(inputs.back(), dtype);
    }
  }
  for (Tensor& input : inputs) {
    input = input.detach();
    input.set_requires_grad();
  }
  return inputs;
}

Tensor dy_of(const Tensor& y, int order) {
  return in_order(to(random_tensor(y.sizes(), 9), y.dtype()), order);
}

}  // namespace

TEST_CASE("map norms: the gradients of the kernels are those of the composed functions") {
  // Rows and runs shorter and longer than a vector, blocks that end early, one channel, one image, one pixel.
  for (const Sizes& sizes : {Sizes{3, 70, 13, 29}, Sizes{2, 5, 37, 41}, Sizes{1, 35, 3, 2}, Sizes{4, 1, 5, 7},
                             Sizes{5, 40, 1, 1}, Sizes{2, 300, 9, 9}}) {
    for (int order = 0; order < kOrders; ++order) {
      for (const MapNormCase& norm : map_norm_cases()) {
        for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu}) {
          if (activation == Activation::gelu && order != 0) {
            continue;  // it is an op of its own
          }
          CAPTURE(norm.name);
          CAPTURE(to_string(sizes));
          CAPTURE(to_string(activation));
          CAPTURE(order);
          const Tensors inputs = inputs_of(norm, sizes, DType::float64, order);
          const Tensor y = norm.run(inputs, activation);
          const Tensor dy = dy_of(y, order);
          const Tensors own = grad({y}, inputs, {dy}, {.retain_graph = true});
          const Tensors composed = grad({y}, inputs, {dy}, {.create_graph = true});
          if (activation != Activation::gelu) {  // gelu chooses for itself where sizes are 1
            CHECK(own[0].strides() == y.strides());
          }
          for (size_t i = 0; i < own.size(); ++i) {
            CAPTURE(i);
            const Tensor expected = composed[i].detach();
            const double largest = max_difference(expected, zeros_like(expected));
            CHECK(max_difference(own[i], expected) <= 1e-12 * std::max(1.0, largest));
          }
        }
      }
    }
  }
}

TEST_CASE("map norms: an activation in the options is the same as behind the norm") {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    for (const int order : {0, 1}) {
      for (const MapNormCase& norm : map_norm_cases()) {
        CAPTURE(norm.name);
        CAPTURE(to_string(dtype));
        const Tensors inputs = inputs_of(norm, {3, 10, 5, 7}, dtype, order);
        const Tensor y = norm.run(inputs, Activation::relu);
        const Tensor apart = relu(norm.run(inputs, Activation::identity));
        CHECK(max_difference(to(y, DType::float64), to(apart, DType::float64)) == 0);
        CHECK(y.strides() == apart.strides());
        const Tensor dy = dy_of(y, order);
        const Tensors one = grad({y}, inputs, {dy});
        const Tensors two = grad({apart}, inputs, {dy});
        for (size_t i = 0; i < one.size(); ++i) {
          CHECK(max_difference(to(one[i], DType::float64), to(two[i], DType::float64)) == 0);
        }
      }
    }
  }
}

TEST_CASE("map norms: finite differences with relu") {
  for (const MapNormCase& norm : map_norm_cases()) {
    CAPTURE(norm.name);
    const auto f = [&](const Tensors& in) -> Tensors { return {norm.run(in, Activation::relu)}; };
    const Tensors inputs = inputs_of(norm, {2, 5, 3, 4}, DType::float64, 0);
    const GradcheckResult result = gradcheck(f, inputs);
    CHECK_MESSAGE(result.passed, result.message);
  }
}

TEST_CASE("map norms: the same bits for 1, 2 and 3 threads") {
  const int before = num_threads();
  for (const Sizes& sizes : {Sizes{3, 70, 20, 24}, Sizes{2, 300, 9, 9}}) {
    for (const int order : {0, 1}) {
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const MapNormCase& norm : map_norm_cases()) {
          CAPTURE(norm.name);
          const Tensors inputs = inputs_of(norm, sizes, dtype, order);
          std::vector<Tensors> results;
          for (const int threads : {1, 2, 3}) {
            set_num_threads(threads);
            const Tensor y = norm.run(inputs, Activation::relu);
            results.push_back(grad({y}, inputs, {dy_of(y, order)}));
            results.back().push_back(y.detach());
          }
          for (size_t i = 0; i < results[0].size(); ++i) {
            CHECK(max_difference(to(results[0][i], DType::float64), to(results[1][i], DType::float64)) == 0);
            CHECK(max_difference(to(results[0][i], DType::float64), to(results[2][i], DType::float64)) == 0);
          }
        }
      }
    }
  }
  set_num_threads(before);
}
