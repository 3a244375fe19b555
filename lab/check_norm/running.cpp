#include "core/error.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/check_norm/subject.h"
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

}  // namespace

Finding check_running_statistics(const Subject& subject) {
  // A few images with other statistics in each channel: biased and unbiased variance differ by 1/23.
  const Sizes sizes{2, subject.channels, 4, 3};
  const NoGradGuard guard;
  const Tensor spread = view(to(arange(subject.channels), DType::float32), {subject.channels, 1, 1});
  const Tensor x = random_input(sizes) * (spread * 0.1 + 1) + (spread + 2);
  if (!buffer_of(*subject.make(x), "running_mean", subject.channels).defined()) {
    return {CheckOutcome::noted, "there are none"};
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
