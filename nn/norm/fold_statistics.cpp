#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/norm/calibrate.h"
#include "nn/norm/changed_norms.h"
#include "nn/norm/norm.h"

#include <cmath>
#include <optional>

namespace norma::nn {
namespace {

constexpr std::string_view kOp = "fold_statistics";

/// Mean and variance of each channel of the inputs.
struct Inputs {
  std::vector<double> mean;
  std::vector<double> var;
};

/// As Norm's functions; none for another module.
std::optional<StatisticSets> sets_of(const Module& module) {
  const auto* norm = dynamic_cast<const Norm*>(&module);
  return norm == nullptr ? std::nullopt : norm->sets();
}
std::optional<BatchEvaluation> evaluation_of(const Module& module) {
  const auto* norm = dynamic_cast<const Norm*>(&module);
  return norm == nullptr ? std::nullopt : norm->evaluation();
}

/// Mean and deviation of v, the norm's value before weight and bias.
MeanAndDeviation values_in_sets(const StatisticSets& sets, const Inputs& x) {
  MeanAndDeviation v{.mean = x.mean, .deviation = x.mean};
  const auto size = static_cast<size_t>(sets.channels);
  for (size_t first = 0; first < x.mean.size(); first += size) {
    double mean = 0;
    double squares = 0;
    for (size_t c = first; c < first + size; ++c) {
      mean += x.mean[c] / static_cast<double>(size);
      squares += (x.var[c] + x.mean[c] * x.mean[c]) / static_cast<double>(size);
    }
    const double var = sets.has_variance ? squares - mean * mean : squares;
    const double scale = 1 / std::sqrt(var + sets.eps);
    for (size_t c = first; c < first + size; ++c) {
      v.mean[c] = (x.mean[c] - (sets.subtracts_mean ? mean : 0)) * scale;
      v.deviation[c] = std::sqrt(x.var[c]) * scale;
    }
  }
  return v;
}

/// The same for a norm of single elements, by a sum over normal inputs: one image whose pixels are points of the normal
/// distribution, with their shares.
MeanAndDeviation values_of_normal(const ChangedNorm& changed, const WeightAndBias& parameters, const Inputs& x) {
  constexpr int64_t kPoints = 401;
  constexpr double kEnd = 8;  // deviations
  std::vector<double> shares(kPoints);
  std::vector<double> points(kPoints);
  double sum = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    points[i] = kEnd * (2 * static_cast<double>(i) / (kPoints - 1) - 1);
    shares[i] = std::exp(-points[i] * points[i] / 2);
    sum += shares[i];
  }
  std::vector<double> image;
  for (size_t c = 0; c < x.mean.size(); ++c) {
    for (const double point : points) {
      image.push_back(x.mean[c] + std::sqrt(x.var[c]) * point);
    }
  }
  double squares = 0;
  for (size_t c = 0; c < x.mean.size(); ++c) {
    squares += x.var[c] + x.mean[c] * x.mean[c];
  }
  scale_alpha(changed, std::sqrt(squares / static_cast<double>(x.mean.size())));
  parameters.set(1, 0);
  const Tensor& weight = parameters.weight;
  const Tensor input = to_device(from_vector(image, {1, static_cast<int64_t>(x.mean.size()), 1, kPoints},
                                             {.dtype = DType::float64, .device = kCpu}),
                                 weight.device());
  const std::vector<double> values = changed.after->forward(converted(input, weight.dtype())).to_vector<double>();
  MeanAndDeviation v;
  for (size_t c = 0; c < x.mean.size(); ++c) {
    double mean = 0;
    double second = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      mean += values[c * kPoints + i] * shares[i] / sum;
    }
    for (size_t i = 0; i < shares.size(); ++i) {
      const double difference = values[c * kPoints + i] - mean;
      second += difference * difference * shares[i] / sum;
    }
    v.mean.push_back(mean);
    v.deviation.push_back(std::sqrt(second));
  }
  return v;
}

void fold(const ChangedNorm& changed) {
  const BatchEvaluation old = *evaluation_of(*changed.before);
  Module& norm = *changed.after;
  const WeightAndBias parameters(kOp, changed.path, norm);
  const int64_t channels = parameters.weight.numel();
  const Inputs x{.mean = old.mean.to_vector<double>(), .var = old.var.to_vector<double>()};
  for (const char* name : {"running_mean", "running_var"}) {
    if (const Tensor statistic = tensor_of(norm, name); statistic.defined()) {
      write(values_of(*changed.before, name, channels, 0), statistic);
    }
  }
  MeanAndDeviation output{.mean = values_of(*changed.before, "bias", channels, 0),
                          .deviation = values_of(*changed.before, "weight", channels, 1)};
  for (size_t c = 0; c < x.var.size(); ++c) {
    output.deviation[c] = std::abs(output.deviation[c]) * std::sqrt(x.var[c] / (x.var[c] + old.eps));
  }
  const std::optional<StatisticSets> sets = sets_of(norm);
  const MeanAndDeviation v = sets ? values_in_sets(*sets, x) : values_of_normal(changed, parameters, x);
  parameters.match(output, v, old_weights(changed, channels));
}

}  // namespace

int64_t fold_statistics(Module& model, Module& old) {
  const std::vector<ChangedNorm> changed = changed_norms(kOp, model, old);
  for (const ChangedNorm& norm : changed) {  // all of them before the first change
    const auto statistics = evaluation_of(*norm.before);
    check(statistics && statistics->mean.defined() && statistics->var.defined(), kOp,
          "'{}': expected running statistics to fold, got {}", norm.path, norm.before->name());
    check(sets_of(*norm.after) || has_alpha(*norm.after), kOp,
          "'{}': expected batch, group, layer2d, instance, simple2d, rms2d, dyt or derf, got {}", norm.path,
          norm.after->name());
    // What a norm of a user's own says of itself may not fit its channels.
    const int64_t channels = WeightAndBias(kOp, norm.path, *norm.after).weight.numel();
    check(statistics->mean.numel() == channels && statistics->var.numel() == channels, kOp,
          "'{}': expected running mean and variance of {} channels, got {} and {}", norm.path, channels,
          statistics->mean.numel(), statistics->var.numel());
    const int64_t of_set = sets_of(*norm.after).value_or(StatisticSets{}).channels;
    check(of_set > 0 && channels % of_set == 0, kOp, "'{}': sets(): expected channels that divide {}, got {}",
          norm.path, channels, of_set);
  }
  const NoGradGuard no_grad;
  const Modes modes(model);
  model.eval();
  for (const ChangedNorm& norm : changed) {
    fold(norm);
  }
  return static_cast<int64_t>(changed.size());
}

}  // namespace norma::nn
