#include "core/parallel.h"
#include "core/tape.h"
#include "ops/map_norm_cases.h"
#include "ops/norm_properties.h"
#include "ops/shape/view.h"
#include "ops/third_derivatives.h"

#include <cmath>

// Every norm of ops/map_norm/. Their plain gradients come from kernels; with create_graph, from composed functions that
// share nothing with them. map_norm_edges_test.cpp has what belongs to one of them.

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
  for (const Tensor& parameter : map_norm_parameters(norm, sizes[1])) {
    inputs.push_back(to(parameter, dtype == DType::float64 ? dtype : DType::float32));
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

TensorFunction function_of(const MapNormCase& norm, const MapNormOptions& options = {}) {
  return [norm, options](const Tensors& in) -> Tensors { return {norm.run(in, options)}; };
}

}  // namespace

TEST_CASE("map norms: values and gradients by their formulas") {
  for (const Sizes& sizes :
       {Sizes{2, 3, 4, 5}, Sizes{3, 33, 1, 2}, Sizes{3, 1, 4, 2}, Sizes{1, 3, 2, 5}, Sizes{4, 3, 1, 1}, Sizes{2, 3, 7},
        Sizes{2, 4, 3, 5}, Sizes{3, 6, 1, 1}, Sizes{2, 4, 7}, Sizes{2, 33, 3, 2}, Sizes{2, 3, 2, 2, 3}}) {
    for (const MapNormCase& norm : all_map_norm_cases()) {
      for (const double eps : {1e-5, 0.1}) {
        const Tensor x = random_tensor(sizes, 1);
        const Tensor dy = random_tensor(sizes, 9);
        Tensors inputs = map_norm_parameters(norm, sizes[1]);
        inputs.insert(inputs.begin(), x);
        const NormValues expected = norm.define(inputs, dy, eps);
        for (const Layout layout : kLayouts) {
          CAPTURE(norm.name);
          CAPTURE(to_string(sizes));
          CAPTURE(eps);
          CAPTURE(to_string(layout));
          inputs[0] = in_layout(x, layout);
          for (Tensor& input : inputs) {
            input = input.detach().set_requires_grad();
          }
          const Tensor y = norm.run(inputs, {.eps = eps});
          CHECK(distance_to(y, expected.at("y")) <= 1e-13 * std::max(largest_number(y), 1.0));
          const Tensors gradients = grad({y}, inputs, {dy});
          for (size_t i = 0; i < gradients.size(); ++i) {
            const std::vector<double>& values = expected.at(i == 0 ? "dx" : "d" + norm.parameters[i - 1]);
            double scale = 1;  // of what the gradient is a sum of
            for (const double term : expected.at("terms")) {
              scale = std::max(scale, std::abs(term));
            }
            CAPTURE(i);
            CHECK(distance_to(gradients[i], values) <= 1e-12 * scale);
          }
        }
      }
    }
  }
}

TEST_CASE("map norms: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 3}, Sizes{4, 2, 1, 1}, Sizes{2, 4, 5}, Sizes{1, 2, 3, 2}}) {
    for (const MapNormCase& norm : all_map_norm_cases()) {
      Tensors inputs = map_norm_parameters(norm, sizes[1]);
      inputs.insert(inputs.begin(), random_tensor(sizes, 11));
      check_gradients(norm.name + " " + to_string(sizes), function_of(norm, {.eps = 0.1}), inputs, /* twice= */ true);
    }
  }
}

TEST_CASE("map norms: third derivatives") {
  for (const MapNormCase& norm : all_map_norm_cases()) {
    Tensors inputs = map_norm_parameters(norm, 2);
    inputs.insert(inputs.begin(), random_tensor({3, 2, 2}, 31));
    check_third_derivative(
        norm.name, [&](const Tensors& in) { return norm.run(in, {.eps = 0.1}); }, inputs);
  }
}

TEST_CASE("map norms: memory formats, float32 and 16 bits") {
  for (const MapNormCase& norm : all_map_norm_cases()) {
    const auto parameters = [&](int64_t channels) { return map_norm_parameters(norm, channels); };
    Tensors inputs = parameters(5);
    inputs.insert(inputs.begin(), random_tensor({2, 5, 3, 4}, 5));
    check_formats(norm.name, function_of(norm), parameters);
    check_float32(norm.name, function_of(norm), inputs);
    check_sixteen_bits(norm.name, function_of(norm), inputs);
  }
}

TEST_CASE("map norms: the gradients of the kernels are those of the composed functions" *
          doctest::test_suite("slow-emulated")) {
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
          const Tensor y = norm.run(inputs, {.activation = activation});
          const Tensor dy = dy_of(y, order);
          const Tensors own = grad({y}, inputs, {dy}, {.retain_graph = true});
          const Tensors composed = grad({y}, inputs, {dy}, {.create_graph = true});
          if (activation != Activation::gelu) {  // gelu chooses for itself where sizes are 1
            CHECK(own[0].strides() == y.strides());
          }
          for (size_t i = 0; i < own.size(); ++i) {
            CAPTURE(i);
            const Tensor expected = composed[i].detach();
            const double largest = largest_number(expected);
            CHECK(max_difference(own[i], expected) <= 1e-12 * std::max(largest, 1.0));
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
        const Tensor y = norm.run(inputs, {.activation = Activation::relu});
        const Tensor apart = relu(norm.run(inputs, {}));
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
    const Tensors inputs = inputs_of(norm, {2, 5, 3, 4}, DType::float64, 0);
    const GradcheckResult result = gradcheck(function_of(norm, {.activation = Activation::relu}), inputs);
    CHECK_MESSAGE(result.passed, result.message);
  }
}

TEST_CASE("map norms: the same bits for 1, 2 and 3 threads" * doctest::test_suite("again")) {
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
            const Tensor y = norm.run(inputs, {.activation = Activation::relu});
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
