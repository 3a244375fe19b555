#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/gradcheck.h"
#include "core/tape.h"
#include "lab/judge/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace norma::lab {

namespace {

constexpr DType kDouble = DType::float64;

Tensor gradcheck_input(const Subject& subject, MemoryFormat format) {
  Tensor x = copy_of(random_input({2, subject.channels, 3, 4}), format, kDouble);
  x.set_requires_grad();
  return x;
}

/// The layer as a function with the same result each time: its running statistics are set back before each call.
class LayerFunction {
 public:
  explicit LayerFunction(nn::Module& layer) : layer_(&layer) {
    for (const auto& [name, buffer] : layer.named_buffers()) {
      kept_.emplace_back(buffer, copy_of(buffer));
    }
  }

  Tensors operator()(const Tensors& inputs) const {
    for (const auto& [buffer, at_first] : kept_) {
      copy_into(at_first, buffer);
    }
    return {(*layer_)(inputs[0])};
  }

 private:
  nn::Module* layer_;
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

double sum_of_products(const Tensor& a, const Tensor& b) {
  const std::vector<double> of_a = a.to_vector<double>();
  const std::vector<double> of_b = b.to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < of_a.size(); ++i) {
    sum += of_a[i] * of_b[i];
  }
  return sum;
}

/// The element of x at this row-major index, as a tensor.
Tensor element_of(const Tensor& x, int64_t index) {
  int64_t offset = x.offset();
  for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
    offset += index % x.size(axis) * x.stride(axis);
    index /= x.size(axis);
  }
  return alias(x, {}, {}, offset);
}

}  // namespace

Finding check_gradients(const Subject& subject) {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = gradcheck_input(subject, format);
    const auto layer = subject.make(x, kDouble);
    const GradcheckResult result = gradcheck(LayerFunction(*layer), {x});
    check(result.passed, to_string(format), "{}", result.message);
  }
  return {};
}

Finding check_parameter_gradients(const Subject& subject) {
  const Tensor x = gradcheck_input(subject, MemoryFormat::contiguous);
  const auto layer = subject.make(x, kDouble);
  const nn::NamedTensors parameters = layer->named_parameters();
  if (parameters.empty()) {
    return {CheckOutcome::noted, "there are none"};
  }
  Generator random(17);
  const LayerFunction f(*layer);
  const Tensor y = f({x})[0];
  const Tensor dy = randn(y.sizes(), {.dtype = kDouble}, random);
  backward(y, dy);
  // d(sum of dy · y) / dp = (value at p + step - value at p - step) / (2 · step)
  constexpr double kStep = 1e-6;
  const NoGradGuard guard;
  for (const auto& [name, parameter] : parameters) {
    check(parameter.grad().defined(), name, "expected a gradient, got none");
    const std::vector<double> values = parameter.to_vector<double>();
    const std::vector<double> gradient = parameter.grad().to_vector<double>();
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      const Tensor element = element_of(parameter, i);
      const auto value_at = [&](double number) {
        copy_into(scalar(number, kDouble), element);
        return sum_of_products(f({x})[0], dy);
      };
      const double difference = (value_at(values[at] + kStep) - value_at(values[at] - kStep)) / (2 * kStep);
      copy_into(scalar(values[at], kDouble), element);
      check(std::abs(gradient[at] - difference) <= 1e-5 + 1e-4 * std::abs(difference), name,
            "element {}: expected gradient {:.6g} (central difference), got {:.6g}", i, difference, gradient[at]);
    }
  }
  return {};
}

Finding check_second_derivatives(const Subject& subject) {
  const Tensor x = gradcheck_input(subject, MemoryFormat::contiguous);
  const auto layer = subject.make(x, kDouble);
  const GradcheckResult result = gradgradcheck(LayerFunction(*layer), {x});
  check(result.passed, "x", "{}", result.message);
  return {};
}

}  // namespace norma::lab
