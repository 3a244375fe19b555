#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/judge/subject.h"
#include "nn/norm/factory.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace norma::lab {

namespace {

/// The buffer of this name with a number for each channel; undefined if there is none.
Tensor buffer_of(const nn::Module& layer, const std::string& wanted, int64_t channels) {
  for (const auto& [name, buffer] : layer.named_buffers()) {
    if (name == wanted && buffer.sizes() == Sizes{channels}) {
      return buffer;
    }
  }
  return {};
}

/// Throws Error unless a buffer has moved from `old` to old + share · (batch - old).
void check_moved(const std::string& name, const std::vector<double>& old, const std::vector<double>& now,
                 const std::vector<double>& batch, double share) {
  for (size_t c = 0; c < old.size(); ++c) {
    const double expected = old[c] + share * (batch[c] - old[c]);
    check(std::abs(now[c] - expected) <= 1e-4 * (std::abs(expected) + std::abs(batch[c]) + 1), name,
          "channel {}: expected {:.4g} = {:.4g} + {:.3g} · ({:.4g} of the batch - {:.4g}), got {:.4g}", c, expected,
          old[c], share, batch[c], old[c], now[c]);
  }
}

/// "running_ms: evaluation comes within 2 % of training", or "" where training moves no buffer. Throws Error where
/// evaluation gives something else than training and comes no nearer, however often the norm sees one batch.
std::string check_that_evaluation_follows(const Subject& subject, const Tensor& x) {
  const auto layer = subject.make(x);
  const nn::NamedTensors buffers = layer->named_buffers();
  std::vector<Tensor> at_first;
  for (const auto& [name, buffer] : buffers) {
    at_first.push_back(copy_of(buffer));
  }
  const auto distance_after = [&](int passes) {
    Tensor in_training;
    layer->train();
    for (; passes > 0; --passes) {
      in_training = (*layer)(x);
    }
    layer->eval();
    return largest_difference((*layer)(x), in_training) / std::max(1e-30, largest(in_training));
  };
  constexpr int kPasses = 300;
  const double first = distance_after(1);
  const double last = distance_after(kPasses);
  std::string moved;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& [name, buffer] = buffers[i];
    if (is_floating(buffer.dtype()) && largest_difference(buffer, at_first[i]) > 0) {
      moved += (moved.empty() ? "" : ", ") + name;
    }
  }
  check(!moved.empty() || first <= 1e-3, "evaluation",
        "expected the output of training, or buffers that training moves; got an output that is {:.0f} % of the "
        "largest number away, and no buffer moves",
        100 * first);
  check(last <= 0.1 || last < first, "evaluation",
        "expected to come nearer to training's output while the norm sees one batch, got {:.0f} % of the largest "
        "number away after one pass and {:.0f} % after {} (training moves {})",
        100 * first, 100 * last, kPasses + 1, moved);
  return moved.empty() ? "" : fmt::format("{}: evaluation comes within {:.0f} % of training", moved, 100 * last);
}

}  // namespace

Finding check_running_statistics(const Subject& subject) {
  // A few images with other statistics in each channel: biased and unbiased variance differ by 1/23.
  const Sizes sizes{2, subject.channels, 4, 3};
  const NoGradGuard guard;
  const Tensor spread = view(to(arange(subject.channels), DType::float32), {subject.channels, 1, 1});
  const Tensor x = random_input(sizes) * (spread * 0.1 + 1) + (spread + 2);
  const std::string moved = check_that_evaluation_follows(subject, x);
  if (!buffer_of(*subject.make(x), "running_mean", subject.channels).defined()) {
    return moved.empty() ? Finding{CheckOutcome::noted, "there are none"} : Finding{CheckOutcome::passed, moved};
  }
  const std::vector<std::string>& options = nn::norm_definition(subject.choice.name).options;
  const bool takes_momentum = std::find(options.begin(), options.end(), "momentum") != options.end();
  constexpr double kMomentum = 0.2;
  Subject tried = subject;
  if (takes_momentum) {
    tried.choice.options["momentum"] = fmt::format("{}", kMomentum);
  }
  const auto layer = tried.make(x);
  const Tensor mean = buffer_of(*layer, "running_mean", subject.channels);
  const Tensor var = buffer_of(*layer, "running_var", subject.channels);
  check(mean.defined() && var.defined(), "running_var", "expected one beside running_mean, got none");
  (*layer)(random_input(sizes));  // the first batch may count more than others
  const std::vector<double> old_mean = mean.to_vector<double>();
  const std::vector<double> old_var = var.to_vector<double>();
  (*layer)(x);
  const std::vector<double> now_mean = mean.to_vector<double>();
  const std::vector<double> now_var = var.to_vector<double>();
  if (now_mean == old_mean && now_var == old_var) {
    return {CheckOutcome::noted, "training does not change them"};
  }

  const std::vector<double> of_batch = norma::mean(x, {0, 2, 3}).to_vector<double>();
  const double share = (now_mean[0] - old_mean[0]) / (of_batch[0] - old_mean[0]);
  check(!takes_momentum || std::abs(share - kMomentum) < 1e-3, "running_mean",
        "with momentum {}, expected a new batch to have this share, got {:.3g}", kMomentum, share);
  check_moved("running_mean", old_mean, now_mean, of_batch, share);
  const std::vector<double> biased = norma::var(x, {0, 2, 3}, {.correction = 0}).to_vector<double>();
  try {
    check_moved("running_var", old_var, now_var, biased, share);
    return {CheckOutcome::noted,
            "running_var has the biased variance, as in Keras and Flax; PyTorch and Norma keep the unbiased one"};
  } catch (const Error&) {
    check_moved("running_var", old_var, now_var, norma::var(x, {0, 2, 3}).to_vector<double>(), share);
  }
  if (share > 0.5) {
    return {CheckOutcome::noted,
            fmt::format("a new batch has share {:.3g}: evaluation goes by the last batches", share)};
  }
  return {};
}

}  // namespace norma::lab
