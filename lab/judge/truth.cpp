#include "lab/judge/norms.h"

#include "base/lists.h"
#include "core/parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::lab::judge {

namespace {

/// Blocks of elements are summed apart, so that a mean does not depend on the number of threads.
constexpr int64_t kBlocks = 64;

/// Collects errors.
class Tally {
 public:
  void add(double value, long double truth, long double unit) {
    ++numbers_;
    if (!std::isfinite(truth)) {
      const bool same = std::isnan(truth) ? std::isnan(value) : static_cast<long double>(value) == truth;
      wrong_ += same ? 0 : 1;
      return;
    }
    ++finite_;
    if (!std::isfinite(value)) {
      ++wrong_;
      worst_ = sum_ = std::numeric_limits<double>::infinity();
      return;
    }
    const auto error = static_cast<double>(std::abs(static_cast<long double>(value) - truth) / unit);
    worst_ = std::max(worst_, error);
    sum_ += error;
  }
  void add(const Tally& other) {
    worst_ = std::max(worst_, other.worst_);
    sum_ += other.sum_;
    numbers_ += other.numbers_;
    finite_ += other.finite_;
    wrong_ += other.wrong_;
  }
  [[nodiscard]] Errors errors() const {
    return {worst_, finite_ > 0 ? sum_ / static_cast<double>(finite_) : 0, numbers_};
  }
  [[nodiscard]] int64_t wrong() const { return wrong_; }

 private:
  double worst_ = 0;
  double sum_ = 0;
  int64_t numbers_ = 0;
  int64_t finite_ = 0;
  int64_t wrong_ = 0;
};

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

}  // namespace

double step_of(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return 0x1p-7;
    case DType::float16: return 0x1p-10;
    case DType::float32: return 0x1p-23;
    default: return 0x1p-52;
  }
}

std::map<std::string, double> worst_in_steps(const Accuracy& accuracy, DType dtype) {
  std::map<std::string, double> worst;
  for (const auto& [name, errors] : {std::pair("output", accuracy.output),
                                     {"dx", accuracy.dx},
                                     {"dweight", accuracy.dweight},
                                     {"dbias", accuracy.dbias}}) {
    if (errors.numbers > 0) {
      worst[name] = errors.worst / step_of(dtype);
    }
  }
  // A number in the place of the truth's NaN has no distance from it.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (accuracy.wrong_outputs > 0) {
    worst["output"] = kInfinity;
  }
  if (accuracy.wrong_gradients > 0 && std::isfinite(accuracy.dweight.worst) && std::isfinite(accuracy.dbias.worst)) {
    worst["dx"] = kInfinity;
  }
  return worst;
}

NormReferenceInputs reference_inputs(const Norm& norm, const Inputs& inputs) {
  NormSpec spec = norm.spec(inputs.x.rank());
  spec.eps = inputs.eps;
  const Inputs moved{.x = inputs.x, .parameters = inputs.with_offset(norm.weight_offset), .dy = inputs.dy};
  return {.spec = spec,
          .x = inputs.x,
          .weight = moved.parameter("weight"),
          .bias = inputs.parameter("bias"),
          .dy = inputs.dy};
}

Truth::Truth(const Norm& norm, const Inputs& inputs) {
  if (norm.spec) {
    take_reference(norm, inputs);
  } else {
    take_formula(norm, inputs);
  }
}

void Truth::take_reference(const Norm& norm, const Inputs& inputs) {
  reference_.emplace(reference_inputs(norm, inputs));
  const NormSets& index = reference_->sets();
  const auto sets = static_cast<size_t>(index.sets());
  const auto weights = static_cast<size_t>(index.weights());
  output_unit_.assign(sets, 0);
  dx_unit_.assign(sets, 0);
  std::vector<Wide> sum_dy(weights, 0);
  std::vector<Wide> sum_dy_xhat(weights, 0);
  const auto square_if_finite = [](Wide value) { return std::isfinite(value) ? value * value : Wide(0); };
  index.for_each([&](size_t i, size_t set, size_t w) {
    output_unit_[set] += square_if_finite(reference_->y(i, set, w));
    dx_unit_[set] += square_if_finite(reference_->scaled_dx(i, set, w));
    const Wide dy = reference_->dz(i, set, w);
    sum_dy[w] += std::abs(dy);
    sum_dy_xhat[w] += std::abs(dy * reference_->xhat(i, set));
  });
  const auto count = static_cast<Wide>(index.set_size());
  for (size_t set = 0; set < sets; ++set) {
    output_unit_[set] = std::max(Wide(1), std::sqrt(output_unit_[set] / count));
    dx_unit_[set] = std::max(Wide(1), std::sqrt(dx_unit_[set] / count));
  }
  for (const auto& [name, parameter] : inputs.parameters) {
    OfParameter& truth = parameters_.emplace_back();
    truth.is_bias = name == "bias";
    for (size_t w = 0; w < weights; ++w) {
      truth.values.push_back(truth.is_bias ? reference_->dbias(w) : reference_->dweight(w));
      truth.units.push_back(std::isfinite(sum_dy_xhat[w]) ? std::max(sum_dy[w], sum_dy_xhat[w]) : sum_dy[w]);
    }
  }
}

void Truth::take_formula(const Norm& norm, const Inputs& inputs) {
  const formula::Evaluation evaluation(norm.formula, inputs.x, inputs.with_offset(norm.weight_offset), inputs.eps);
  y_ = mapped(evaluation.output(), &formula::Number::value);
  const Wide typical = root_mean_square(y_);
  output_unit_ = {norm.relative && typical > 0 ? typical : std::max(Wide(1), typical)};
  auto gradients = evaluation.gradients(inputs.dy, /* by_output= */ true);
  const auto unit = [](Wide known) { return known > 0 ? known : 1; };
  dx_unit_ = {unit(std::max<Wide>(root_mean_square(gradients["x"].sizes), norm.least_dx))};
  dx_ = std::move(gradients["x"].values);
  for (const auto& [name, parameter] : inputs.parameters) {
    formula::Gradient& gradient = gradients[name];
    const Wide whole = root_mean_square(gradient.sizes);
    for (size_t i = 0; i < gradient.sizes.size(); ++i) {
      Wide& size = gradient.sizes[i];
      size = unit(std::isfinite(size) ? std::max(size, gradient.reached[i]) : whole);
    }
    parameters_.push_back({name == "bias", std::move(gradient.values), std::move(gradient.sizes)});
  }
}

/// Calls visit(element, y, its unit, dx, its unit) for one of kBlocks parts of the elements.
template <class Visit>
void Truth::visit_block(int64_t block, const Visit& visit) const {
  const int64_t count = reference_ ? reference_->sets().rows() : static_cast<int64_t>(y_.size());
  const int64_t per_block = (count + kBlocks - 1) / kBlocks;
  const int64_t first = std::min(block * per_block, count);
  const int64_t last = std::min(first + per_block, count);
  if (reference_) {
    reference_->sets().for_each(first, last, [&](size_t i, size_t set, size_t w) {
      visit(i, reference_->y(i, set, w), output_unit_[set], reference_->dx(i, set, w),
            reference_->rstd(set) * dx_unit_[set]);
    });
  } else {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      visit(i, y_[i], output_unit_[0], dx_[i], dx_unit_[0]);
    }
  }
}

Accuracy Truth::accuracy(const Results& results) const {
  const std::vector<double> y_found = results.y.to_vector<double>();
  const std::vector<double> dx_found = results.dx.to_vector<double>();
  std::vector<Tally> outputs(kBlocks);
  std::vector<Tally> gradients(kBlocks);
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      Tally output;
      Tally gradient;
      visit_block(block, [&](size_t i, Wide y, Wide y_unit, Wide dx, Wide dx_unit) {
        output.add(y_found[i], y, y_unit);
        gradient.add(dx_found[i], dx, dx_unit);
      });
      outputs[static_cast<size_t>(block)] = output;
      gradients[static_cast<size_t>(block)] = gradient;
    }
  });
  for (size_t block = 1; block < outputs.size(); ++block) {
    outputs[0].add(outputs[block]);
    gradients[0].add(gradients[block]);
  }
  Tally dweight;
  Tally dbias;
  for (size_t which = 0; which < parameters_.size(); ++which) {
    const OfParameter& truth = parameters_[which];
    const std::vector<double> found = results.gradients[which].to_vector<double>();
    for (size_t i = 0; i < found.size(); ++i) {
      (truth.is_bias ? dbias : dweight).add(found[i], truth.values[i], truth.units[i]);
    }
  }
  return {.output = outputs[0].errors(),
          .dx = gradients[0].errors(),
          .dweight = dweight.errors(),
          .dbias = dbias.errors(),
          .wrong_outputs = outputs[0].wrong(),
          .wrong_gradients = gradients[0].wrong() + dweight.wrong() + dbias.wrong()};
}

}  // namespace norma::lab::judge
