#include "lab/audit/accuracy.h"

#include "core/parallel.h"

#include <algorithm>
#include <cmath>

namespace norma::lab::audit {

namespace {

/// Blocks of rows are summed apart, so that a mean does not depend on the number of threads.
constexpr int64_t kBlocks = 64;

}  // namespace

NormTruth::NormTruth(const NormReferenceInputs& inputs) : reference_(inputs), has_bias_(inputs.bias.defined()) {
  const NormSets& index = reference_.sets();
  const auto sets = static_cast<size_t>(index.sets());
  const auto weights = static_cast<size_t>(index.weights());
  output_unit_.assign(sets, 0);
  dx_unit_.assign(sets, 0);
  std::vector<Wide> sum_dy(weights, 0);
  std::vector<Wide> sum_dy_xhat(weights, 0);
  const auto square_if_finite = [](Wide value) { return std::isfinite(value) ? value * value : Wide(0); };
  index.for_each([&](size_t i, size_t set, size_t w) {
    output_unit_[set] += square_if_finite(reference_.y(i, set, w));
    dx_unit_[set] += square_if_finite(reference_.scaled_dx(i, set, w));
    const Wide dy = reference_.dz(i, set, w);
    sum_dy[w] += std::abs(dy);
    sum_dy_xhat[w] += std::abs(dy * reference_.xhat(i, set));
  });
  const auto count = static_cast<Wide>(index.set_size());
  for (size_t set = 0; set < sets; ++set) {
    output_unit_[set] = std::max(Wide(1), std::sqrt(output_unit_[set] / count));
    dx_unit_[set] = std::max(Wide(1), std::sqrt(dx_unit_[set] / count));
  }
  for (size_t w = 0; w < weights; ++w) {
    weight_unit_.push_back(std::isfinite(sum_dy_xhat[w]) ? std::max(sum_dy[w], sum_dy_xhat[w]) : sum_dy[w]);
  }
}

Accuracy NormTruth::accuracy(const NormResults& results) const {
  const std::vector<double> y_found = results.y.to_vector<double>();
  const std::vector<double> dx_found = results.dx.to_vector<double>();
  const NormSets& index = reference_.sets();
  const int64_t rows = index.rows();
  const int64_t rows_per_block = (rows + kBlocks - 1) / kBlocks;
  std::vector<Tally> outputs(kBlocks);
  std::vector<Tally> gradients(kBlocks);
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      Tally output;
      Tally gradient;
      index.for_each(std::min(block * rows_per_block, rows), std::min((block + 1) * rows_per_block, rows),
                     [&](size_t i, size_t set, size_t w) {
                       output.add(y_found[i], reference_.y(i, set, w), output_unit_[set]);
                       gradient.add(dx_found[i], reference_.dx(i, set, w), reference_.rstd(set) * dx_unit_[set]);
                     });
      outputs[static_cast<size_t>(block)] = output;
      gradients[static_cast<size_t>(block)] = gradient;
    }
  });
  for (size_t block = 1; block < outputs.size(); ++block) {
    outputs[0].add(outputs[block]);
    gradients[0].add(gradients[block]);
  }
  const auto of_weights = [&](const Tensor& found, Wide (NormReference::*truth)(size_t) const) {
    Tally tally;
    const std::vector<double> values = found.to_vector<double>();
    for (size_t w = 0; w < weight_unit_.size(); ++w) {
      tally.add(values[w], (reference_.*truth)(w), weight_unit_[w]);
    }
    return tally;
  };
  const Tally dweight = of_weights(results.dweight, &NormReference::dweight);
  const Tally dbias = has_bias_ ? of_weights(results.dbias, &NormReference::dbias) : Tally{};
  return {.output = outputs[0].errors(),
          .dx = gradients[0].errors(),
          .dweight = dweight.errors(),
          .dbias = dbias.errors(),
          .wrong_outputs = outputs[0].wrong(),
          .wrong_gradients = gradients[0].wrong() + dweight.wrong() + dbias.wrong()};
}

}  // namespace norma::lab::audit
