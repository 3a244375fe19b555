#include "lab/audit/definition.h"

#include "core/parallel.h"
#include "lab/audit/tally.h"

#include <algorithm>
#include <cmath>

namespace norma::lab::audit {

namespace {

/// Blocks of rows with sums of their own, so that a mean does not depend on the number of threads.
constexpr int64_t kBlocks = 64;

std::vector<double> values_or(const Tensor& x, int64_t count, double otherwise) {
  return x.defined() ? x.to_vector<double>() : std::vector<double>(static_cast<size_t>(count), otherwise);
}

}  // namespace

Definition::Definition(const NormInputs& inputs)
    : spec_(inputs.spec),
      index_(inputs.x.sizes(), inputs.spec),
      has_bias_(inputs.bias.defined()),
      x_(inputs.x.to_vector<double>()),
      dy_(inputs.dy.to_vector<double>()),
      weight_(values_or(inputs.weight, index_.weights(), 1)),
      bias_(values_or(inputs.bias, index_.weights(), 0)) {
  find_statistics();
  find_gradients();
}

void Definition::find_statistics() {
  const auto sets = static_cast<size_t>(index_.sets());
  const int64_t set_size = index_.numel() / index_.sets();
  const auto count = static_cast<Wide>(set_size);
  const int64_t rows = index_.rows();
  mean_.assign(sets, 0);
  rest_.assign(sets, 0);
  if (spec_.centring != Centring::none) {
    // mean = sum(x) / n, and from sum(x - mean) / n what that lost to rounding
    for (std::vector<Wide>* part : {&mean_, &rest_}) {
      std::vector<Wide> sums(sets, 0);
      index_.for_each(0, rows, [&](size_t i, size_t set, size_t) { sums[set] += centred(i, set); });
      for (size_t set = 0; set < sets; ++set) {
        (*part)[set] = sums[set] / count;
      }
    }
  }
  // var = sum((x - mean)²) / (n - correction), rstd = 1 / sqrt(var + eps)
  std::vector<Wide> squares(sets, 0);
  index_.for_each(0, rows, [&](size_t i, size_t set, size_t) {
    const Wide d = centred(i, set);
    squares[set] += d * d;
  });
  rstd_.resize(sets);
  for (size_t set = 0; set < sets; ++set) {
    rstd_[set] = 1 / std::sqrt(squares[set] / (count - static_cast<Wide>(spec_.correction)) + spec_.eps);
  }
}

void Definition::find_gradients() {
  const auto sets = static_cast<size_t>(index_.sets());
  const auto weights = static_cast<size_t>(index_.weights());
  const int64_t set_size = index_.numel() / index_.sets();
  const auto count = static_cast<Wide>(set_size);
  const int64_t rows = index_.rows();
  mean_g_.assign(sets, 0);
  mean_g_xhat_.assign(sets, 0);
  dweight_.assign(weights, 0);
  dbias_.assign(weights, 0);
  std::vector<Wide> sum_dy(weights, 0);
  std::vector<Wide> sum_dy_xhat(weights, 0);
  index_.for_each(0, rows, [&](size_t i, size_t set, size_t w) {
    const Wide dy = dy_[i];
    const Wide hat = xhat(i, set);
    mean_g_[set] += dy * weight_[w];
    mean_g_xhat_[set] += dy * weight_[w] * hat;
    dweight_[w] += dy * hat;
    dbias_[w] += dy;
    sum_dy[w] += std::abs(dy);
    sum_dy_xhat[w] += std::abs(dy * hat);
  });
  for (size_t set = 0; set < sets; ++set) {
    mean_g_[set] /= count;
    mean_g_xhat_[set] /= count - static_cast<Wide>(spec_.correction);
  }
  weight_unit_.resize(weights);
  for (size_t w = 0; w < weights; ++w) {
    weight_unit_[w] = std::isfinite(sum_dy_xhat[w]) ? std::max(sum_dy[w], sum_dy_xhat[w]) : sum_dy[w];
  }

  output_unit_.assign(sets, 0);
  dx_unit_.assign(sets, 0);
  const auto square_if_finite = [](Wide value) { return std::isfinite(value) ? value * value : Wide(0); };
  index_.for_each(0, rows, [&](size_t i, size_t set, size_t w) {
    output_unit_[set] += square_if_finite(y(i, set, w));
    dx_unit_[set] += square_if_finite(scaled_dx(i, set, w));
  });
  for (size_t set = 0; set < sets; ++set) {
    output_unit_[set] = std::max(Wide(1), std::sqrt(output_unit_[set] / count));
    dx_unit_[set] = std::max(Wide(1), std::sqrt(dx_unit_[set] / count));
  }
}

Definition::Wide Definition::xhat(size_t element, size_t set) const {
  return (spec_.centring == Centring::mean ? centred(element, set) : x_[element]) * rstd_[set];
}

Definition::Wide Definition::y(size_t element, size_t set, size_t weight) const {
  return xhat(element, set) * weight_[weight] + bias_[weight];
}

// dx * sqrt(var + eps) = g - mean(g) - (x - mean) * rstd * sum(g * xhat) / (n - correction); mean(g) only where the
// mean is subtracted
Definition::Wide Definition::scaled_dx(size_t element, size_t set, size_t weight) const {
  const Wide g = static_cast<Wide>(dy_[element]) * weight_[weight];
  return g - (spec_.centring == Centring::mean ? mean_g_[set] : 0) -
         centred(element, set) * rstd_[set] * mean_g_xhat_[set];
}

Accuracy Definition::accuracy(const NormResults& results) const {
  const std::vector<double> y_found = results.y.to_vector<double>();
  const std::vector<double> dx_found = results.dx.to_vector<double>();
  const int64_t rows = index_.rows();
  const int64_t rows_per_block = (rows + kBlocks - 1) / kBlocks;
  std::vector<Tally> outputs(kBlocks);
  std::vector<Tally> gradients(kBlocks);
  parallel_for(0, kBlocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      Tally output;
      Tally gradient;
      index_.for_each(std::min(block * rows_per_block, rows), std::min((block + 1) * rows_per_block, rows),
                      [&](size_t i, size_t set, size_t w) {
                        output.add(y_found[i], y(i, set, w), output_unit_[set]);
                        gradient.add(dx_found[i], scaled_dx(i, set, w) * rstd_[set], rstd_[set] * dx_unit_[set]);
                      });
      outputs[static_cast<size_t>(block)] = output;
      gradients[static_cast<size_t>(block)] = gradient;
    }
  });
  for (size_t block = 1; block < outputs.size(); ++block) {
    outputs[0].add(outputs[block]);
    gradients[0].add(gradients[block]);
  }
  const auto of_weights = [&](const Tensor& found, const std::vector<Wide>& truth) {
    Tally tally;
    const std::vector<double> values = found.to_vector<double>();
    for (size_t i = 0; i < truth.size(); ++i) {
      tally.add(values[i], truth[i], weight_unit_[i]);
    }
    return tally;
  };
  const Tally dweight = of_weights(results.dweight, dweight_);
  const Tally dbias = has_bias_ ? of_weights(results.dbias, dbias_) : Tally{};
  return {.output = outputs[0].errors(),
          .dx = gradients[0].errors(),
          .dweight = dweight.errors(),
          .dbias = dbias.errors(),
          .wrong_outputs = outputs[0].wrong(),
          .wrong_gradients = gradients[0].wrong() + dweight.wrong() + dbias.wrong()};
}

std::vector<double> Definition::output() const {
  std::vector<double> values(x_.size());
  index_.for_each(0, index_.rows(),
                  [&](size_t i, size_t set, size_t w) { values[i] = static_cast<double>(y(i, set, w)); });
  return values;
}

std::vector<double> Definition::dx() const {
  std::vector<double> values(x_.size());
  index_.for_each(0, index_.rows(), [&](size_t i, size_t set, size_t w) {
    values[i] = static_cast<double>(scaled_dx(i, set, w) * rstd_[set]);
  });
  return values;
}

}  // namespace norma::lab::audit
