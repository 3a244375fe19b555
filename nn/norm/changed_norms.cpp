#include "nn/norm/changed_norms.h"

#include "base/error.h"
#include "base/lists.h"
#include "core/copy.h"
#include "core/factory.h"
#include "nn/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace norma::nn {

std::vector<ChangedNorm> changed_norms(std::string_view op, Module& model, Module& old) {
  std::map<std::string, Module*> before;
  for (const auto& [path, module] : old.named_modules()) {
    before.emplace(path, module);
  }
  std::vector<ChangedNorm> changed;
  for (const auto& [path, module] : model.named_modules()) {
    const auto found = before.find(path);
    const bool is_norm = dynamic_cast<const Norm*>(module) != nullptr ||
                         (found != before.end() && dynamic_cast<const Norm*>(found->second) != nullptr);
    if (is_norm) {
      check(found != before.end(), op, "old: expected a layer '{}' as in model, got none", path);
      if (module->name() != found->second->name()) {
        changed.push_back({path, module, found->second});
      }
    }
  }
  return changed;
}

void ChannelMoments::add(const Tensor& x) {
  check(x.rank() >= 2, "ChannelMoments", "x: expected (N, channels, …), got sizes {}", x.sizes());
  if (x.numel() == 0) {
    return;
  }
  const Axes axes = axes_from(0, x.rank()).without(1);
  const Tensor wide = in_float64(x);
  const std::vector<double> mean = norma::mean(wide, axes).to_vector<double>();
  const std::vector<double> var = norma::var(wide, axes, {.correction = 0}).to_vector<double>();
  mean_.resize(mean.size(), 0);
  squares_.resize(mean.size(), 0);
  const auto before = static_cast<double>(count_);
  const int64_t count = x.numel() / x.size(1);
  const auto added = static_cast<double>(count);
  for (size_t c = 0; c < mean.size(); ++c) {
    const double step = mean[c] - mean_[c];
    mean_[c] += step * added / (before + added);
    squares_[c] += var[c] * added + step * step * before * added / (before + added);
  }
  count_ += count;
}

MeanAndDeviation ChannelMoments::result() const {
  return {.mean = mean_,
          .deviation = mapped(squares_, [&](double sum) { return std::sqrt(sum / static_cast<double>(count_)); })};
}

std::vector<double> ChannelMoments::var(int64_t correction) const {
  const auto count = static_cast<double>(std::max<int64_t>(count_ - correction, 1));
  return mapped(squares_, [&](double sum) { return sum / count; });
}

double ChannelMoments::root_mean_square() const {
  double sum = 0;
  for (size_t c = 0; c < mean_.size(); ++c) {
    sum += mean_[c] * mean_[c] + squares_[c] / static_cast<double>(count_);
  }
  return std::sqrt(sum / static_cast<double>(mean_.size()));
}

Tensor tensor_of(const Module& module, const std::string& name) {
  for (const auto& [own, x] : module.state_dict()) {
    if (own == name) {
      return x.detach();
    }
  }
  return {};
}

void write(const std::vector<double>& values, const Tensor& to) {
  copy_into(from_vector(values, to.sizes(), {.dtype = DType::float64, .device = kCpu}), to);
}

std::vector<double> values_of(const Module& module, const std::string& name, int64_t channels, double otherwise) {
  const Tensor x = tensor_of(module, name);
  if (!x.defined() || x.numel() != channels) {
    return std::vector<double>(static_cast<size_t>(channels), otherwise);
  }
  const double offset = name == "weight" ? weight_offset(module) : 0;
  return add(in_float64(x), offset).to_vector<double>();
}

bool has_alpha(const Module& norm) {
  const auto* layer = dynamic_cast<const Norm*>(&norm);
  const std::optional<Bend> bend = layer == nullptr ? std::nullopt : layer->bend();
  const Tensor alpha = tensor_of(norm, "alpha");
  return bend && alpha.defined() && alpha.numel() == 1 && alpha.to_vector<double>().front() == bend->scale;
}

std::vector<double> old_weights(const ChangedNorm& changed, int64_t channels) {
  std::vector<double> weights = weight_is_factor(*changed.before)
                                    ? values_of(*changed.before, "weight", channels, 1)
                                    : std::vector<double>(static_cast<size_t>(channels), 1);
  for (const Module* norm : {changed.before, changed.after}) {  // tanh falls where alpha is negative
    if (has_alpha(*norm) && tensor_of(*norm, "alpha").to_vector<double>().front() < 0) {
      for (double& weight : weights) {
        weight = -weight;
      }
    }
  }
  return weights;
}

void scale_alpha(const ChangedNorm& changed, double root_mean_square) {
  if (!has_alpha(*changed.after) || has_alpha(*changed.before) || !(root_mean_square > 0)) {
    return;
  }
  const Tensor alpha = tensor_of(*changed.after, "alpha");
  write({alpha.to_vector<double>().front() / root_mean_square}, alpha);
}

WeightAndBias::WeightAndBias(std::string_view op, const std::string& path, const Module& norm)
    : weight(tensor_of(norm, "weight")), bias(tensor_of(norm, "bias")), offset(weight_offset(norm)) {
  check(weight.defined() && weight.rank() == 1, op, "'{}': expected a norm with a weight for each channel, got {}",
        path, norm.name());
}

void WeightAndBias::set(double scale, double shift) const {
  const auto fill = [](const Tensor& x, double value) {
    write(std::vector<double>(static_cast<size_t>(x.numel()), value), x);
  };
  fill(weight, scale - offset);
  if (bias.defined()) {
    fill(bias, shift);
  }
}

void WeightAndBias::match(const MeanAndDeviation& output, const MeanAndDeviation& v,
                          const std::vector<double>& old_weight) const {
  constexpr double kFlat = 1e-6;
  std::vector<double> scale = old_weight;
  std::vector<double> shift(scale.size());
  for (size_t c = 0; c < scale.size(); ++c) {
    const double v_mean = v.mean[c];
    const double v_deviation = v.deviation[c];
    if (v_deviation > kFlat * (1 + std::abs(v_mean))) {
      const double deviation = std::copysign(output.deviation[c], old_weight[c]);
      scale[c] = deviation / v_deviation;
      if (!bias.defined()) {
        const double nearest =
            (v_mean * output.mean[c] + v_deviation * deviation) / (v_mean * v_mean + v_deviation * v_deviation);
        scale[c] = std::signbit(nearest) == std::signbit(deviation) ? nearest : 0;
      }
    }
    shift[c] = output.mean[c] - scale[c] * v_mean;
  }
  for (double& one : scale) {
    one -= offset;
  }
  write(scale, weight);
  if (bias.defined()) {
    write(shift, bias);
  }
}

}  // namespace norma::nn
