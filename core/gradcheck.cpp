#include "core/gradcheck.h"

#include "core/factory.h"
#include "core/tape.h"

#include <cmath>

namespace norma {
namespace {

/// Offset, from x's first element, of its row-major element number `index`.
int64_t offset_of(const Tensor& x, int64_t index) {
  int64_t offset = 0;
  for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
    offset += index % x.sizes()[axis] * x.strides()[axis];
    index /= x.sizes()[axis];
  }
  return offset;
}

/// Sum over all outputs of output · weight.
double weighted_sum(const Tensors& outputs, const std::vector<std::vector<double>>& weights) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<double> values = outputs[i].to_vector<double>();
    for (size_t at = 0; at < values.size(); ++at) {
      sum += values[at] * weights[i][at];
    }
  }
  return sum;
}

Tensors inputs_with_gradient(const Tensors& inputs) {
  Tensors result;
  for (const Tensor& x : inputs) {
    if (x.requires_grad()) {
      check_dtype("gradcheck", "inputs", x, DType::float64);
      result.push_back(x);
    }
  }
  check(!result.empty(), "gradcheck", "inputs: expected one that requires a gradient");
  return result;
}

/// Analytic gradients of the weighted sum; zeros for inputs that the outputs do not depend on.
std::vector<std::vector<double>> analytic_gradients(const Tensors& outputs, const Tensors& weights,
                                                    const Tensors& inputs) {
  Tensors connected;
  Tensors starts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].requires_grad()) {
      connected.push_back(outputs[i]);
      starts.push_back(weights[i]);
    }
  }
  Tensors gradients(inputs.size());
  if (!connected.empty()) {
    gradients = grad(connected, inputs, starts);
  }
  std::vector<std::vector<double>> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(gradients[i].defined() ? gradients[i].to_vector<double>()
                                            : std::vector<double>(static_cast<size_t>(inputs[i].numel()), 0.0));
  }
  return result;
}

}  // namespace

GradcheckResult gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  const Tensors checked = inputs_with_gradient(inputs);
  const Tensors outputs = f(inputs);
  Generator generator(options.seed);
  Tensors weights;
  std::vector<std::vector<double>> weight_values;
  for (const Tensor& output : outputs) {
    Tensor weight = empty_like(output);
    normal_(weight, 0, 1, generator);
    weights.push_back(weight);
    weight_values.push_back(weight.to_vector<double>());
  }
  const auto analytic = analytic_gradients(outputs, weights, checked);

  GradcheckResult result{.passed = true};
  for (size_t n = 0; n < checked.size(); ++n) {
    auto* data = checked[n].data<double>();
    for (int64_t i = 0; i < checked[n].numel(); ++i) {
      double& element = data[offset_of(checked[n], i)];
      const double before = element;
      element = before + options.eps;
      const double above = weighted_sum(f(inputs), weight_values);
      element = before - options.eps;
      const double below = weighted_sum(f(inputs), weight_values);
      element = before;

      const double numeric = (above - below) / (2 * options.eps);
      const double expected = analytic[n][static_cast<size_t>(i)];
      const double error = std::abs(expected - numeric);
      const bool passed = error <= options.atol + options.rtol * std::abs(numeric);  // false for NaN
      result.worst = std::isnan(error) ? error : std::max(result.worst, error);
      if (!passed && result.passed) {
        result.passed = false;
        result.message =
            fmt::format("input {} ({}), element {}: backward gives {:.10g}, the central difference {:.10g}", n,
                        describe(checked[n]), i, expected, numeric);
      }
    }
  }
  return result;
}

GradcheckResult gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  Tensors all = inputs;
  Generator generator(options.seed + 1);
  for (const Tensor& output : f(inputs)) {
    Tensor weight = empty_like(output);
    normal_(weight, 0, 1, generator);
    all.push_back(weight.set_requires_grad());
  }
  const size_t count = inputs.size();
  auto gradients = [&f, count](const Tensors& arguments) {
    const Tensors xs(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(count));
    const Tensors weights(arguments.begin() + static_cast<std::ptrdiff_t>(count), arguments.end());
    const Tensors wanted = inputs_with_gradient(xs);
    Tensors result = grad(f(xs), wanted, weights, {.create_graph = true});
    for (size_t i = 0; i < result.size(); ++i) {
      if (!result[i].defined()) {
        result[i] = zeros_like(wanted[i]);
      }
    }
    return result;
  };
  return gradcheck(gradients, all, options);
}

}  // namespace norma
