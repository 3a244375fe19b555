#include "nn/norm/calibrate.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/tape.h"
#include "nn/hooks.h"
#include "nn/norm/changed_norms.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace norma::nn {
namespace {

constexpr std::string_view kOp = "calibrate_norms";

/// Thrown by a hook to end a forward pass at its layer.
struct Reached {};

/// Calls f(x) with the input of a layer in each batch. Layers behind it do not run.
void run_up_to(Module& model, Module& layer, const ImageBatches& batches, const std::function<void(const Tensor&)>& f) {
  Hooks hooks;
  hooks.add(layer, [&f](const Module&, const Tensor& x, const Tensor&) {
    f(x);
    throw Reached();
  });
  for (int64_t i = 0; i < batches.count; ++i) {
    try {
      model(batches.at(i));
    } catch (const Reached&) {
    }
  }
}

/// The old network's part of a calibration: for each norm the output to come near to.
struct Target {
  ChangedNorm norm;
  ChannelMoments input;
  ChannelMoments output;
};

/// The targets in the order in which the old network runs the norms.
std::vector<Target> targets_of(Module& old, const std::vector<ChangedNorm>& changed, const ImageBatches& batches) {
  std::map<const Module*, size_t> places;
  std::vector<Target> targets;
  targets.reserve(changed.size());
  Hooks hooks;
  for (const ChangedNorm& norm : changed) {
    hooks.add(*norm.before, [&](const Module& module, const Tensor& x, const Tensor&) {
      const auto [place, is_new] = places.emplace(&module, targets.size());
      if (is_new) {
        targets.push_back({norm, {}, {}});
      }
      Target& target = targets[place->second];
      target.input.add(x);
      target.output.add(norm.before->forward(x));  // what the hook gets may have a residual and an activation
    });
  }
  for (int64_t i = 0; i < batches.count; ++i) {
    old(batches.at(i));
  }
  check(targets.size() == changed.size(), kOp, "old: expected a network that runs all its norms, got {} of {}",
        targets.size(), changed.size());
  return targets;
}

/// Throws Error unless norm(x) is weight · v + bias, where v = norm(x) with weight 1 and bias 0.
void check_is_affine(const ChangedNorm& changed, const WeightAndBias& parameters, const Tensor& x, const Tensor& v) {
  parameters.set(2, 3);
  const Tensor expected = add(mul(v, 2.0), parameters.bias.defined() ? 3.0 : 0.0);
  const Tensor got = changed.after->forward(x);
  parameters.set(1, 0);
  const double difference = to(norma::max(abs(sub(got, expected))), DType::float64).item<double>();
  const double largest = to(norma::max(abs(expected)), DType::float64).item<double>();
  check(difference <= 1e-3 * largest, kOp, "'{}': expected a norm whose output is weight · v + bias, got {}",
        changed.path, changed.after->name());
}

/// Gives a norm the statistics of its inputs, if it has running statistics.
void set_running_statistics(Module& model, Module& norm, const ImageBatches& batches) {
  const Tensor mean = tensor_of(norm, "running_mean");
  const Tensor var = tensor_of(norm, "running_var");
  if (!var.defined()) {
    return;
  }
  ChannelMoments moments;
  run_up_to(model, norm, batches, [&](const Tensor& x) { moments.add(x); });
  write(moments.var(/* correction= */ 1), var);
  if (mean.defined()) {
    write(moments.mean(), mean);
  }
}

void calibrate(Module& model, const Target& target, const ImageBatches& batches) {
  Module& norm = *target.norm.after;
  const WeightAndBias parameters(kOp, target.norm.path, norm);
  set_running_statistics(model, norm, batches);
  scale_alpha(target.norm, target.input.root_mean_square());
  parameters.set(1, 0);
  ChannelMoments value;
  bool is_checked = false;
  run_up_to(model, norm, batches, [&](const Tensor& x) {
    const Tensor v = norm.forward(x);
    if (!is_checked) {
      check_is_affine(target.norm, parameters, x, v);
      is_checked = true;
    }
    value.add(v);
  });
  parameters.match(target.output.result(), value.result(), old_weights(target.norm, parameters.weight.numel()));
}

/// The sum over all elements, in float64.
double total(const Tensor& x) {
  return norma::sum(in_float64(x)).item<double>();
}

}  // namespace

int64_t calibrate_norms(Module& model, Module& old, const ImageBatches& batches) {
  check(batches.count >= 1, kOp, "batches: expected at least one, got {}", batches.count);
  const std::vector<ChangedNorm> changed = changed_norms(kOp, model, old);
  if (changed.empty()) {
    return 0;
  }
  const NoGradGuard no_grad;
  const Modes modes(model);
  const Modes old_modes(old);
  model.eval();
  old.eval();
  for (const Target& target : targets_of(old, changed, batches)) {
    calibrate(model, target, batches);
  }
  return static_cast<int64_t>(changed.size());
}

std::vector<NormMatch> compare_norms(Module& model, Module& old, const ImageBatches& batches) {
  constexpr int64_t kImages = 16;  // at a time, since the outputs of all old norms are kept
  struct Pair {
    Tensor output;  ///< of the old norm, for the images at hand
    ChannelMoments before;
    ChannelMoments after;
    double squares = 0;  ///< of differences
    int64_t count = 0;
  };
  constexpr std::string_view op = "compare_norms";
  check(batches.count >= 1, op, "batches: expected at least one, got {}", batches.count);
  const std::vector<ChangedNorm> changed = changed_norms(op, model, old);
  const NoGradGuard no_grad;
  const Modes modes(model);
  const Modes old_modes(old);
  model.eval();
  old.eval();
  std::map<std::string, Pair> pairs;
  Hooks hooks;
  for (const ChangedNorm& norm : changed) {
    Pair& pair = pairs[norm.path];
    hooks.add(*norm.before, [&norm, &pair](const Module&, const Tensor& x, const Tensor&) {
      pair.output = norm.before->forward(x);
      pair.before.add(pair.output);
    });
    hooks.add(*norm.after, [&norm, &pair](const Module&, const Tensor& x, const Tensor&) {
      const Tensor output = norm.after->forward(x);
      pair.after.add(output);
      const Tensor difference = sub(output, pair.output);
      pair.squares += total(mul(difference, difference));
      pair.count += output.numel();
    });
  }
  for (int64_t i = 0; i < batches.count; ++i) {
    const Tensor images = batches.at(i);
    for (int64_t first = 0; first < images.size(0); first += kImages) {
      const Tensor some = narrow(images, 0, first, std::min(kImages, images.size(0) - first));
      old(some);
      model(some);
    }
  }

  std::vector<NormMatch> matches;
  for (const ChangedNorm& norm : changed) {
    const Pair& pair = pairs[norm.path];
    const MeanAndDeviation before = pair.before.result();
    const MeanAndDeviation after = pair.after.result();
    double squares = 0;
    double largest = 1;
    NormMatch match{.path = norm.path, .before = norm.before->name(), .after = norm.after->name()};
    for (size_t c = 0; c < before.mean.size(); ++c) {
      squares += before.deviation[c] * before.deviation[c];
      largest = std::max(largest, std::abs(before.mean[c]));
      match.mean = std::max(match.mean, std::abs(after.mean[c] - before.mean[c]));
      match.deviation = std::max(match.deviation, std::abs(after.deviation[c] - before.deviation[c]));
    }
    double whole = std::sqrt(squares / static_cast<double>(before.mean.size()));
    match.is_constant = whole <= 1e-9 * largest;  // what rounding leaves
    whole = match.is_constant ? 1 : whole;
    match.mean /= whole;
    match.deviation /= whole;
    match.output = std::sqrt(pair.squares / static_cast<double>(pair.count)) / whole;
    matches.push_back(match);
  }
  return matches;
}

}  // namespace norma::nn
