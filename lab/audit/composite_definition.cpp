#include "core/parallel.h"
#include "lab/audit/accuracy.h"
#include "lab/audit/composite.h"

#include <algorithm>
#include <cmath>

namespace norma::lab::audit {

namespace {

long double root_mean_square(const std::vector<long double>& values) {
  long double squares = 0;
  long double count = 0;
  for (const long double value : values) {
    if (std::isfinite(value)) {
      squares += value * value;
      ++count;
    }
  }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

std::vector<Dual> constants(const Tensor& x) {
  std::vector<Dual> duals;
  for (const double value : x.to_vector<double>()) {
    duals.push_back({.value = value});
  }
  return duals;
}

}  // namespace

bool Composite::has_bias() const {
  return std::any_of(parameters.begin(), parameters.end(), [](const CompositeParameter& p) { return p.is_bias; });
}

const Composite* composite_called(const std::string& name) {
  for (const Composite& composite : all_composites()) {
    if (composite.name == name) {
      return &composite;
    }
  }
  return nullptr;
}

CompositeDefinition::CompositeDefinition(const Composite& composite, const CompositeInputs& inputs)
    : composite_(composite) {
  const std::vector<double> dy = inputs.dy.to_vector<double>();
  // The numbers of x, then those of the parameters.
  std::vector<std::vector<Dual>> numbers = {constants(inputs.x)};
  for (const Tensor& parameter : inputs.parameters) {
    numbers.push_back(constants(parameter));
  }
  const auto outputs_of = [&](const std::vector<std::vector<Dual>>& from) {
    const std::vector<std::vector<Dual>> parameters(from.begin() + 1, from.end());
    return composite.define({inputs.x.sizes(), from[0], parameters, inputs.eps});
  };
  for (const Dual& y : outputs_of(numbers)) {
    y_.push_back(y.value);
  }
  const long double size = root_mean_square(y_);
  output_unit_ = composite.relative && size > 0 ? size : std::max(1.0L, size);
  for (size_t which = 0; which < numbers.size(); ++which) {
    const size_t count = numbers[which].size();
    Gradient gradient{std::vector<long double>(count, 0), std::vector<long double>(count, 0)};
    parallel_for(0, static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
      std::vector<std::vector<Dual>> own = numbers;
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        own[which][i].slope = 1;
        own[which][i].depends = true;
        const std::vector<Dual> y = outputs_of(own);
        own[which][i] = numbers[which][i];
        for (size_t j = 0; j < y.size(); ++j) {
          if (y[j].depends) {
            const long double term = dy[j] * y[j].slope;
            gradient.values[i] += term;
            // A parameter's gradient counts as at least as large as dy, even where it cancels.
            gradient.sizes[i] += std::max(std::abs(term), which == 0 ? 0 : std::abs(static_cast<long double>(dy[j])));
          }
        }
      }
    });
    gradients_.push_back(std::move(gradient));
  }
}

Accuracy CompositeDefinition::accuracy(const CompositeResults& results) const {
  Tally output;
  const std::vector<double> y = results.y.to_vector<double>();
  for (size_t i = 0; i < y_.size(); ++i) {
    output.add(y[i], y_[i], output_unit_);
  }
  Tally dx;
  Tally dweight;
  Tally dbias;
  for (size_t which = 0; which < gradients_.size(); ++which) {
    const Gradient& truth = gradients_[which];
    const bool is_x = which == 0;
    const std::vector<double> found = (is_x ? results.dx : results.gradients[which - 1]).to_vector<double>();
    const long double whole = std::max<long double>(root_mean_square(truth.sizes), is_x ? composite_.least_dx : 0);
    Tally& tally = is_x ? dx : composite_.parameters[which - 1].is_bias ? dbias : dweight;
    for (size_t i = 0; i < found.size(); ++i) {
      const long double unit = is_x || !std::isfinite(truth.sizes[i]) ? whole : truth.sizes[i];
      tally.add(found[i], truth.values[i], unit > 0 ? unit : 1);
    }
  }
  return {.output = output.errors(),
          .dx = dx.errors(),
          .dweight = dweight.errors(),
          .dbias = dbias.errors(),
          .wrong_outputs = output.wrong(),
          .wrong_gradients = dx.wrong() + dweight.wrong() + dbias.wrong()};
}

}  // namespace norma::lab::audit
