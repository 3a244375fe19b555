#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/checks.h"
#include "ops/norm/node.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

// Batch norm of a batch that several processes share.

namespace norma::norm_detail {

namespace {

/// Mean and biased variance (C) of each channel over all parts, and the number of values in each, all in float64.
struct Moments {
  Tensor mean;
  Tensor var;
  double count = 0;
};

/// This part's mean, sum of squared distances from it, and count, of each channel: (2 C + 1) in float64.
Tensor moments_of_part(std::string_view op, const Tensor& x, const NormSpec& spec) {
  const int64_t channels = x.size(1);
  const Tensor part = zeros({2 * channels + 1}, {.dtype = DType::float64, .device = x.device()});
  if (x.numel() == 0) {
    return part;
  }
  const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, /* affine= */ false);
  Tensor var;
  const Tensor stats = compute_stats(op, layout, x, spec, &var);
  const auto row = [&](int64_t which) { return in_float64(alias(stats, {channels}, {1}, which * channels)); };
  const auto count = static_cast<double>(layout.shape().set_size());
  copy_into(add(row(kernels::kMeanRow), row(kernels::kMeanLowRow)), narrow(part, 0, 0, channels));
  copy_into(mul(in_float64(var), count), narrow(part, 0, channels, channels));
  fill_(narrow(part, 0, 2 * channels, 1), count);
  return part;
}

/// Chan, Golub and LeVeque's formula (1979) for several parts at once, in their order:
///   n = Σ n_r,  mean = Σ n_r mean_r / n,  var = (Σ M2_r + Σ n_r (mean_r - mean)²) / n
Moments merged(const Tensor& parts, int64_t channels) {
  const Tensor means = narrow(parts, 1, 0, channels);
  const Tensor counts = narrow(parts, 1, 2 * channels, 1);
  Moments all;
  for (const double count : counts.to_vector<double>()) {
    all.count += count;
  }
  all.mean = div(sum(mul(means, counts), {0}), all.count);
  const Tensor distance = sub(means, all.mean);
  const Tensor between = sum(mul(mul(distance, distance), counts), {0});
  all.var = div(add(sum(narrow(parts, 1, channels, channels), {0}), between), all.count);
  return all;
}

/// The stats (kernels.h) with both parts of the mean.
Tensor stats_of(std::string_view op, const Moments& moments, double eps, DType dtype) {
  const Tensor stats = fixed_stats_of(op, moments.mean, moments.var, eps, dtype);
  const int64_t channels = moments.mean.numel();
  const auto row = [&](int64_t which) { return alias(stats, {channels}, {1}, which * channels); };
  copy_into(sub(moments.mean, in_float64(row(kernels::kMeanRow))), row(kernels::kMeanLowRow));
  return stats;
}

}  // namespace

Tensor batch_norm_of_parts(std::string_view op, const Tensor& input, const NormSpec& spec, const Tensor& running_mean,
                           const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                           const BatchNormOptions& options, const ActOptions& then) {
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
  Moments moments;
  Tensor stats;
  {
    const NoGradGuard no_grad;
    moments = merged(options.parts->all_gather(moments_of_part(op, x, spec)), x.size(1));
    check(moments.count != 1, op,
          "input: expected more than 1 value per channel when training, got 1 in all processes");
    if (moments.count > 0) {
      stats = stats_of(op, moments, options.eps, compute_dtype(x.dtype()));
    }
    if (running_mean.defined() && moments.count > 0) {
      const double factor = options.biased_running_var ? 1 : moments.count / (moments.count - 1);
      update_running(op, running_mean, moments.mean, options.momentum, 1);
      update_running(op, running_var, moments.var, options.momentum, factor);
    }
    count_batch(options.num_batches_tracked);
  }
  return record_norm(op, x, spec, weight, bias,
                     {.fixed_stats = stats, .then = then, .parts = options.parts, .count_of_parts = moments.count});
}

// With dx' = rstd * g, the gradient for constant statistics, and S1 = Σ dz, S2 = Σ dz * xhat over all parts:
//   dx = dx' - rstd * weight * (S1 + xhat * S2) / n
// which is a norm with the same statistics, -rstd * weight * S2 / n as its weight, -rstd * weight * S1 / n as its bias,
// and dx' as its residual.
Tensors norm_backward_of_parts(const NormNode& node, const Tensor& dy, NeededGradients needs) {
  const Tensor& x = node.x;
  const int64_t channels = x.size(1);
  const DType dtype = compute_dtype(x.dtype());
  NormNode constant = node;
  constant.affine = true;  // its gradients are the sums
  constant.weight = node.weight.defined() ? converted(node.weight, dtype) : Tensor();
  constant.bias_dtype = dtype;
  Tensors gradients = norm_backward(constant, dy, {needs.x, true, true, needs.residual});
  const Tensor own = empty({2 * channels}, {.dtype = DType::float64, .device = x.device()});
  copy_into(gradients[1], narrow(own, 0, 0, channels));
  copy_into(gradients[2], narrow(own, 0, channels, channels));
  const Tensor sums = sum(node.parts->all_gather(own), {0});
  if (needs.x && x.numel() > 0) {
    Tensor factor =
        mul(in_float64(alias(node.stats, {channels}, {1}, kernels::kRstdRow * channels)), -1 / node.count_of_parts);
    if (node.weight.defined()) {
      factor = mul(factor, in_float64(node.weight));
    }
    const auto of_channels = [&](int64_t first) {
      const Tensor result = empty({channels}, {.dtype = dtype, .device = x.device()});
      copy_into(mul(factor, narrow(sums, 0, first, channels)), result);
      return result;
    };
    gradients[0] = record_norm(node.op, x, node.spec, of_channels(0), of_channels(channels),
                               {.fixed_stats = node.stats, .then = {.residual = gradients[0]}});
  }
  gradients[1] = !needs.weight           ? Tensor()
                 : node.weight.defined() ? converted(gradients[1], node.weight.dtype())
                                         : gradients[1];
  gradients[2] = needs.bias ? converted(gradients[2], node.bias_dtype) : Tensor();
  return gradients;
}

}  // namespace norma::norm_detail
