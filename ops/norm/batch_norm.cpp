#include "base/lists.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>

// The norms that take statistics over a batch and keep running ones.

namespace norma {

using namespace norm_detail;

namespace {

void check_options(std::string_view op, const BatchNormOptions& options, const Tensor& x) {
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, op, "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  if (const Tensor& batches = options.num_batches_tracked; batches.defined()) {
    check(batches.dtype() == DType::int64 && batches.numel() == 1, op,
          "num_batches_tracked: expected one int64, got {}", describe(batches));
    check_device(op, "num_batches_tracked", batches, x.device());
  }
}

/// Statistics of each channel of x (N, C, …).
NormSpec batch_norm_spec(const Tensor& x, const BatchNormOptions& options) {
  return {
      .reduce = axes_from(0, x.rank()).without(1), .affine = {1}, .statistics = options.statistics, .eps = options.eps};
}

/// The norm in evaluation, by running statistics.
Tensor with_running_statistics(std::string_view op, const Tensor& x, const Tensor& running_mean,
                               const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                               const BatchNormOptions& options, const ActOptions& then) {
  check_affine(op, weight, bias, x);
  const Tensor stats = fixed_stats_of(op, running_mean, running_var, options.eps, compute_dtype(x.dtype()));
  return record_norm(op, x, batch_norm_spec(x, options), weight, bias,
                     {.fixed_stats = stats, .running_mean = running_mean, .running_var = running_var, .then = then});
}

/// The number of elements that share statistics. Throws Error for one.
int64_t checked_count(std::string_view op, const Tensor& x, const BatchNormOptions& options) {
  const int64_t count = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
  check(count != 1, op, "input: expected more than 1 value per channel {}, got sizes {}",
        options.training ? "when training" : "without running statistics", x.sizes());
  return count;
}

/// n / (n - 1) for the unbiased variance, 1 for the biased one.
double variance_factor(int64_t count, const BatchNormOptions& options) {
  const auto n = static_cast<double>(count);
  return options.biased_running_var ? 1 : n / (n - 1);
}

/// The count of batches that grows with this call, or undefined.
Tensor batches_of(const BatchNormOptions& options) {
  return options.training ? options.num_batches_tracked : Tensor{};
}

/// Joins parts of x's images, with the strides of a norm's output. Never a view: nobody else has the result's memory.
Tensor joined(std::string_view op, const Tensor& x, const Tensors& parts) {
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  Tensor y;
  if (parts.size() == 1 && same_places(x.sizes(), parts[0].strides(), strides)) {
    y = Tensor(parts[0].storage(), x.sizes(), strides, parts[0].offset(), x.dtype());
  } else {
    y = empty_strided(x.sizes(), strides, {.dtype = x.dtype(), .device = x.device()});
    int64_t first = 0;
    for (const Tensor& part : parts) {
      copy_into(part, alias(y, part.sizes(), strides, first * strides[0]));
      first += part.size(0);
    }
  }
  const std::vector<int64_t> counts = mapped(parts, [](const Tensor& part) { return part.size(0); });
  return Op(op).record(parts, y, {}, [counts](const Tensor& dy, const BackwardContext& c) {
    Tensors gradients;
    int64_t first = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      gradients.push_back(c.needs_grad(i) ? narrow(dy, 0, first, counts[i]) : Tensor());
      first += counts[i];
    }
    return gradients;
  });
}

// --- a batch that several processes share ---------------------------------------------------------------------------

/// Mean and biased variance (C) of each channel over all parts, and the number of values in each, all in float64.
struct BatchMoments {
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
  const auto row = [&](int64_t which) { return in_float64(stats_row(stats, which)); };
  const auto count = static_cast<double>(layout.shape().set_size());
  copy_into(add(row(kernels::kMeanRow), row(kernels::kMeanLowRow)), narrow(part, 0, 0, channels));
  copy_into(mul(in_float64(var), count), narrow(part, 0, channels, channels));
  fill_(narrow(part, 0, 2 * channels, 1), count);
  return part;
}

/// Chan, Golub and LeVeque's formula (1979) for several parts at once, in their order:
///   n = Σ n_r,  mean = Σ n_r mean_r / n,  var = (Σ M2_r + Σ n_r (mean_r - mean)²) / n
BatchMoments merged(const Tensor& parts, int64_t channels) {
  const Tensor means = narrow(parts, 1, 0, channels);
  const Tensor counts = narrow(parts, 1, 2 * channels, 1);
  BatchMoments all;
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
Tensor stats_of(std::string_view op, const BatchMoments& moments, double eps, DType dtype) {
  const Tensor stats = fixed_stats_of(op, moments.mean, moments.var, eps, dtype);
  copy_into(sub(moments.mean, in_float64(stats_row(stats, kernels::kMeanRow))), stats_row(stats, kernels::kMeanLowRow));
  return stats;
}

/// norm_backward() for stats of all parts, which were taken over `count` values of each channel. With dx' = rstd * g,
/// the gradient for constant statistics, and S1 = Σ dz, S2 = Σ dz * xhat over all parts:
//   dx = dx' - rstd * weight * (S1 + xhat * S2) / n
// which is a norm with the same statistics, -rstd * weight * S2 / n as its weight, -rstd * weight * S1 / n as its bias,
// and dx' as its residual.
Tensors backward_of_parts(const PartsOfBatch& parts, double count, const NormNode& node, const Tensor& dy,
                          NeededGradients needs) {
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
  const Tensor sums = sum(parts.all_gather(own), {0});
  if (needs.x && x.numel() > 0) {
    Tensor factor = mul(in_float64(stats_row(node.stats, kernels::kRstdRow)), -1 / count);
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

/// batch_norm() in training with BatchNormOptions::parts.
Tensor batch_norm_of_parts(std::string_view op, const Tensor& input, const NormSpec& spec, const Tensor& running_mean,
                           const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                           const BatchNormOptions& options, ActOptions then) {
  const Op frame(op);
  const Tensor x = frame.input("input", input);
  then.residual = frame.like(x, then.residual);
  BatchMoments moments;
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
                     {.fixed_stats = stats,
                      .then = then,
                      .backward = [parts = options.parts, count = moments.count](const NormNode& node, const Tensor& dy,
                                                                                 NeededGradients needs) {
                        return backward_of_parts(*parts, count, node, dy, needs);
                      }});
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, const BatchNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"batch_norm">;
  check_input(op, x, 2, 5);
  check_options(op, options, x);
  const bool tracked = check_running_statistics(op, running_mean, running_var, x);
  if (!options.training && tracked) {
    return with_running_statistics(op, x, running_mean, running_var, weight, bias, options, then);
  }
  const NormSpec spec = checked_spec(op, x, batch_norm_spec(x, options));
  check_affine(op, weight, bias, x);
  if (options.training && options.parts != nullptr) {
    return batch_norm_of_parts(op, x, spec, running_mean, running_var, weight, bias, options, then);
  }
  const int64_t count = checked_count(op, x, options);
  if (!tracked || count == 0) {
    Tensor y = record_norm(op, x, spec, weight, bias, {.then = then});
    count_batch(batches_of(options));
    return y;
  }
  const RunningUpdate running{.mean = running_mean,
                              .var = running_var,
                              .momentum = options.momentum,
                              .var_factor = variance_factor(count, options),
                              .batches = batches_of(options)};
  return record_norm(op, x, spec, weight, bias, {.running = &running, .then = then});
}

Tensor ghost_batch_norm(const Tensor& input, int64_t sub_batch, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                        const ActOptions& options_then) {
  const Op op(named<"ghost_batch_norm">);
  const Tensor x = op.input("input", input);
  const ActOptions then{options_then.activation, op.like(x, options_then.residual)};
  check_input(op, x, 2, 5);
  check_options(op, options, x);
  check(sub_batch >= 1, op, "sub_batch: expected at least 1, got {}", sub_batch);
  const bool tracked = check_running_statistics(op, running_mean, running_var, x);
  if (!options.training && tracked) {
    return with_running_statistics(op, x, running_mean, running_var, weight, bias, options, then);
  }
  if (x.numel() == 0) {
    Tensor y = norm_act(x, batch_norm_spec(x, options), weight, bias, then, nullptr, op);
    count_batch(batches_of(options));
    return y;
  }
  const int64_t size = std::min(sub_batch, x.size(0));
  const int64_t whole = x.size(0) / size;
  const int64_t left = x.size(0) - whole * size;
  // The gradients of several parts are added before they are rounded to 16 bits.
  const auto in_compute_dtype = [&](const Tensor& parameter) {
    return parameter.defined() && left > 0 ? to(parameter, compute_dtype(parameter.dtype())) : parameter;
  };
  const Tensor wide_weight = in_compute_dtype(weight);
  const Tensor wide_bias = in_compute_dtype(bias);
  Tensors parts;
  std::vector<NormStatistics> statistics;
  std::vector<int64_t> counts;
  // One norm over `batches` sub-batches of `images` each, from image `first` on. Several sub-batches become an axis. (A
  // new axis of size 1 would hide the memory format.)
  const auto norm = [&](int64_t first, int64_t batches, int64_t images) {
    const Tensor part = left == 0 ? x : narrow(x, 0, first, batches * images);
    Sizes sizes = part.sizes();
    NormSpec spec = batch_norm_spec(x, options);
    if (batches > 1) {
      sizes[0] = images;
      sizes.insert(0, batches);
      for (int64_t& axis : spec.reduce) {
        ++axis;
      }
      spec.affine = {2};
    }
    const int64_t count = checked_count(op, images == part.size(0) ? part : narrow(part, 0, 0, images), options);
    ActOptions part_then = then;
    if (then.residual.defined()) {
      check_sizes(op, "residual", then.residual, x.sizes());
      part_then.residual =
          reshape(left == 0 ? then.residual : narrow(then.residual, 0, first, batches * images), sizes);
    }
    const bool update = tracked && count > 0;
    NormStatistics of_part;
    const Tensor y =
        norm_act(reshape(part, sizes), spec, wide_weight, wide_bias, part_then, update ? &of_part : nullptr, op);
    parts.push_back(reshape(y, part.sizes()));
    if (update) {
      statistics.push_back(of_part);
      counts.push_back(count);
    }
  };
  norm(0, whole, size);
  if (left > 0) {
    norm(whole * size, 1, left);
  }
  if (!statistics.empty()) {
    // The plain average over the sub-batches: one or two tensors of (sub-batches, C) or (C).
    const NoGradGuard guard;
    const auto sub_batches = static_cast<double>(whole + (left > 0 ? 1 : 0));
    const auto average = [&](const Tensor NormStatistics::*field, bool variance) {
      Tensor total;
      for (size_t i = 0; i < statistics.size(); ++i) {
        const Tensor& batches = statistics[i].*field;
        const Tensor of_part = batches.rank() == 1 ? batches : sum(batches, {0});
        const Tensor scaled = mul(of_part, (variance ? variance_factor(counts[i], options) : 1) / sub_batches);
        total = total.defined() ? add(total, scaled) : scaled;
      }
      return total;
    };
    update_running(op, running_mean, average(&NormStatistics::mean, false), options.momentum, 1);
    update_running(op, running_var, average(&NormStatistics::var, true), options.momentum, 1);
  }
  count_batch(batches_of(options));
  return joined(op, x, parts);
}

Tensor batch_renorm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                    const Tensor& bias, const BatchRenormOptions& options, const ActOptions& options_then) {
  const Op op(named<"batch_renorm">);
  const Tensor x = op.input("input", input);
  const ActOptions then{options_then.activation, op.like(x, options_then.residual)};
  check_input(op, x, 2, 5);
  check(check_running_statistics(op, running_mean, running_var, x), op,
        "running_mean: expected running statistics, got none");
  check(options.r_max >= 1, op, "r_max: expected a value >= 1, got {}", options.r_max);
  check(options.d_max >= 0, op, "d_max: expected a value >= 0, got {}", options.d_max);
  const BatchNormOptions& batch = options.batch_norm;
  check_options(op, batch, x);
  if (!batch.training) {
    return with_running_statistics(op, x, running_mean, running_var, weight, bias, batch, then);
  }
  check_affine(op, weight, bias, x);
  const int64_t count = checked_count(op, x, batch);
  const NormSpec spec = batch_norm_spec(x, batch);
  if (count == 0) {
    Tensor y = norm_act(x, spec, weight, bias, then, nullptr, op);
    count_batch(batches_of(batch));
    return y;
  }
  const NormStatistics statistics = norm_statistics(x, spec, op);
  const DType dtype = statistics.mean.dtype();
  const int64_t channels = x.size(1);
  const Tensor r = empty({channels}, {.dtype = dtype, .device = x.device()});
  const Tensor d = empty({channels}, {.dtype = dtype, .device = x.device()});
  const Tensor wide_running_mean = in_float64(running_mean);
  const Tensor wide_running_var = in_float64(running_var);
  const Tensor wide_batch_mean = in_float64(statistics.mean);
  const Tensor wide_batch_var = in_float64(statistics.var);
  kernels::norm_kernels.at(op, x.device())
      ->renorm(dtype, channels,
               {.running_mean = wide_running_mean.device_pointer<double>(),
                .running_var = wide_running_var.device_pointer<double>(),
                .batch_mean = wide_batch_mean.device_pointer<double>(),
                .batch_var = wide_batch_var.device_pointer<double>(),
                .eps = batch.eps,
                .r_max = options.r_max,
                .d_max = options.d_max,
                .r = r.device_pointer(),
                .d = d.device_pointer()});
  // (xhat * r + d) * weight + bias = xhat * (r * weight) + (d * weight + bias)
  const Tensor wide_weight = weight.defined() ? to(weight, dtype) : weight;  // once, so that its gradient rounds once
  const Tensor scale = weight.defined() ? mul(wide_weight, r) : r;
  Tensor shift = weight.defined() ? mul(wide_weight, d) : d;
  if (bias.defined()) {
    shift = add(shift, to(bias, dtype));
  }
  Tensor y = norm_act(x, spec, scale, shift, then, nullptr, op);
  update_running(op, running_mean, statistics.mean, batch.momentum, 1);
  update_running(op, running_var, statistics.var, batch.momentum, variance_factor(count, batch));
  count_batch(batches_of(batch));
  return y;
}

Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, const TrackedInstanceNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"instance_norm">;
  check_input(op, x, 3, 5);
  check(check_running_statistics(op, running_mean, running_var, x), op,
        "running_mean: expected running statistics, got none");
  const BatchNormOptions batch{
      .training = options.training, .momentum = options.momentum, .eps = options.eps, .statistics = options.statistics};
  check_options(op, batch, x);
  if (!options.training) {
    return with_running_statistics(op, x, running_mean, running_var, weight, bias, batch, then);
  }
  const int64_t maps = x.size(0) * x.size(1);
  const int64_t count = maps == 0 ? 0 : x.numel() / maps;
  check(maps == 0 || count != 1, op, "input: expected more than 1 spatial element when training, got sizes {}",
        x.sizes());
  NormStatistics statistics;
  Tensor y = norm_act(
      x, {.reduce = axes_from(2, x.rank()), .affine = {1}, .statistics = options.statistics, .eps = options.eps},
      weight, bias, then, count > 0 ? &statistics : nullptr, op);
  if (count > 0) {
    const NoGradGuard guard;
    update_running(op, running_mean, mean(statistics.mean, {0}), options.momentum, 1);
    update_running(op, running_var, mean(statistics.var, {0}), options.momentum, variance_factor(count, batch));
  }
  return y;
}

}  // namespace norma
