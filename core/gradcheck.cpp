#include "core/gradcheck.h"

#include "base/lists.h"
#include "core/base_ops.h"
#include "core/device_functions.h"
#include "core/factory.h"
#include "core/op.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>

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
  const Tensors result = filtered(inputs, &Tensor::requires_grad);
  for (const Tensor& x : result) {
    check_dtype("gradcheck", "inputs", x, DType::float64);
  }
  check(!result.empty(), "gradcheck", "inputs: expected one that requires a gradient");
  return result;
}

/// A tensor of random numbers like each of these.
Tensors random_like(const Tensors& outputs, uint64_t seed) {
  Generator generator(seed);
  return mapped(outputs, [&](const Tensor& output) {
    const Tensor weight = empty_like(output);
    normal_(weight, 0, 1, generator);
    return weight;
  });
}

using Gradients = std::vector<std::vector<double>>;

/// Gradients of the sum over all outputs of output · weight; undefined for inputs that they do not depend on.
Tensors gradients_of(const Tensors& outputs, const Tensors& weights, const Tensors& inputs, bool create_graph) {
  Tensors connected;
  Tensors starts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].requires_grad()) {
      connected.push_back(outputs[i]);
      starts.push_back(weights[i]);
    }
  }
  return connected.empty() ? Tensors(inputs.size()) : grad(connected, inputs, starts, {.create_graph = create_graph});
}

/// The values of the gradients; zeros for undefined ones.
Gradients values_of(const Tensors& gradients, const Tensors& inputs) {
  Gradients result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(gradients[i].defined() ? gradients[i].to_vector<double>()
                                            : std::vector<double>(static_cast<size_t>(inputs[i].numel()), 0.0));
  }
  return result;
}

// --- inputs that depend on each other ---------------------------------------------------------------------------

constexpr double kCoupling = 0.05;

/// A tensor filled with factor * sum(x). Linear, and its gradient is of the same kind.
Tensor spread(const Tensor& x, const Sizes& sizes, Device device, double factor) {
  const std::vector<double> values = x.to_vector<double>();
  const double total = std::accumulate(values.begin(), values.end(), 0.0);
  return Op("spread").record(
      {x}, full(sizes, factor * total, {.dtype = x.dtype(), .device = device}), {},
      [from = x.sizes(), home = x.device(), factor](const Tensor& dy, const BackwardContext&) -> Tensors {
        return {spread(dy, from, home, factor)};
      });
}

double factor_behind(const Tensor& previous) {
  return kCoupling / static_cast<double>(std::max<int64_t>(1, previous.numel()));
}

/// The inputs with a gradient become x + kCoupling * mean(the one before).
Tensors coupled(const Tensors& inputs) {
  Tensors result;
  Tensor previous;
  for (const Tensor& x : inputs) {
    if (!x.requires_grad()) {
      result.push_back(x);
      continue;
    }
    previous = previous.defined() ? accumulate(x, spread(previous, x.sizes(), x.device(), factor_behind(previous)))
                                  : identity(x);
    result.push_back(previous);
  }
  return result;
}

/// Turns gradients of the tensors that coupled() returned, taken as independent, into those of its arguments.
void through_coupling(Gradients& gradients, const Tensors& inputs) {
  for (size_t k = gradients.size(); k-- > 1;) {
    const double total = std::accumulate(gradients[k].begin(), gradients[k].end(), 0.0);
    for (double& value : gradients[k - 1]) {
      value += factor_behind(inputs[k - 1]) * total;
    }
  }
}

// --- comparing --------------------------------------------------------------------------------------------------

/// Keeps one failure: the first.
class Comparison {
 public:
  Comparison(const Tensors& inputs, const GradcheckOptions& options) : inputs_(inputs), options_(options) {}

  void element(size_t input, int64_t index, std::string_view how, double got, std::string_view what, double expected) {
    const double error = std::abs(got - expected);
    result_.worst = std::isnan(error) ? error : std::max(result_.worst, error);
    if (!(error <= options_.atol + options_.rtol * std::abs(expected))) {  // also NaN
      failed(input, fmt::format("element {}: {} gives {:.10g}, {} {:.10g}", index, how, got, what, expected));
    }
  }

  void all(std::string_view how, const Gradients& got, std::string_view what, const Gradients& expected) {
    for (size_t n = 0; n < got.size(); ++n) {
      for (size_t i = 0; i < got[n].size(); ++i) {
        element(n, static_cast<int64_t>(i), how, got[n][i], what, expected[n][i]);
      }
    }
  }

  void failed(size_t input, const std::string& message) {
    if (result_.passed) {
      result_.passed = false;
      result_.message = fmt::format("input {} ({}), {}", input, describe(inputs_[input]), message);
    }
  }

  [[nodiscard]] const GradcheckResult& result() const { return result_; }

 private:
  const Tensors& inputs_;
  const GradcheckOptions& options_;
  GradcheckResult result_{.passed = true};
};

/// Compares the gradients with central differences of f.
void compare_with_differences(const TensorFunction& f, const Tensors& inputs, const Tensors& checked,
                              const Gradients& analytic, const std::vector<std::vector<double>>& weights,
                              const GradcheckOptions& options, Comparison& comparison) {
  // On the emulated device each kernel opens its memory and closes it again, which takes longer than the kernel. f has
  // run like that already; here it runs thousands of times.
  const auto open = device_functions.at("gradcheck", checked[0].device());
  for (size_t n = 0; n < checked.size(); ++n) {
    const Tensor& x = checked[n];
    const std::vector<double> values = x.to_vector<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double before = values[static_cast<size_t>(i)];
      const Tensor element = alias(x.detach(), {}, {}, x.offset() + offset_of(x, i));
      double above = 0;
      double below = 0;
      try {
        fill_(element, before + options.eps);
        above = weighted_sum(f(inputs), weights);
        fill_(element, before - options.eps);
        below = weighted_sum(f(inputs), weights);
      } catch (...) {  // the input is the caller's
        fill_(element, before);
        throw;
      }
      fill_(element, before);
      comparison.element(n, i, "backward", analytic[n][static_cast<size_t>(i)], "the central difference",
                         (above - below) / (2 * options.eps));
    }
  }
}

/// Compares f of inputs that depend on each other with the chain rule over f of independent ones with the same values.
void check_coupled(const TensorFunction& f, const Tensors& inputs, const Tensors& checked, const Tensors& weights,
                   Comparison& comparison) {
  const Tensors related = coupled(inputs);
  Tensors apart;
  Tensors apart_checked;
  for (const Tensor& x : related) {
    apart.push_back(x.requires_grad() ? x.detach().set_requires_grad() : x);
    if (x.requires_grad()) {
      apart_checked.push_back(apart.back());
    }
  }
  Gradients expected = values_of(gradients_of(f(apart), weights, apart_checked, false), apart_checked);
  through_coupling(expected, checked);
  for (const bool create_graph : {false, true}) {
    const Gradients got = values_of(gradients_of(f(coupled(inputs)), weights, checked, create_graph), checked);
    comparison.all(create_graph ? "for inputs that depend on each other, create_graph"
                                : "for inputs that depend on each other, backward",
                   got, "the chain rule", expected);
  }
}

}  // namespace

GradcheckResult gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  const Tensors checked = inputs_with_gradient(inputs);
  const Tensors outputs = f(inputs);
  const Tensors weights = random_like(outputs, options.seed);
  const auto weight_values = mapped(weights, [](const Tensor& weight) { return weight.to_vector<double>(); });
  const Tensors plain = gradients_of(outputs, weights, checked, false);
  const Gradients analytic = values_of(plain, checked);

  Comparison comparison(checked, options);
  compare_with_differences(f, inputs, checked, analytic, weight_values, options, comparison);
  for (size_t n = 0; n < checked.size(); ++n) {
    if (plain[n].defined() && plain[n].requires_grad()) {
      comparison.failed(n, "its gradient stays on the tape without create_graph");
    }
  }
  comparison.all("create_graph", values_of(gradients_of(f(inputs), weights, checked, true), checked), "backward",
                 analytic);
  check_coupled(f, inputs, checked, weights, comparison);
  return comparison.result();
}

GradcheckResult gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options) {
  Tensors all = inputs;
  for (Tensor weight : random_like(f(inputs), options.seed + 1)) {
    all.push_back(weight.set_requires_grad());
  }
  const size_t count = inputs.size();
  auto gradients = [&f, count](const Tensors& arguments) {
    const Tensors xs = mapped(std::span(arguments).first(count), identity);
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
