#include "nn/norm/batch_norm.h"

#include "core/factory.h"
#include "core/op.h"
#include "nn/norm/options.h"
#include "ops/shape/view.h"

namespace norma::nn {

namespace {

/// The image of a norm's output (1, C, …). Not a view: nobody else has its memory, so it can be changed in place.
Tensor only_image(std::string_view op, const Tensor& y) {
  Sizes sizes;
  Strides strides;
  for (int64_t axis = 1; axis < y.rank(); ++axis) {
    sizes.push_back(y.size(axis));
    strides.push_back(y.stride(axis));
  }
  const Tensor image(y.storage(), sizes, strides, y.offset(), y.dtype());
  return Op(op).record({y}, image, {},
                       [](const Tensor& dy, const BackwardContext&) { return Tensors{unsqueeze(dy, 0)}; });
}

}  // namespace

StatisticsNorm::StatisticsNorm(std::string_view layer, int64_t channels, double eps) : channels_(channels) {
  check(channels > 0, layer, "channels: expected a positive number, got {}", channels);
  check_eps(layer, eps);
}

void StatisticsNorm::register_tensors(bool with_weight, bool with_bias, bool with_statistics) {
  weight_ = register_parameter("weight", with_weight ? ones({channels_}) : Tensor());
  bias_ = register_parameter("bias", with_weight && with_bias ? zeros({channels_}) : Tensor());
  if (with_statistics) {
    running_mean_ = register_buffer("running_mean", zeros({channels_}));
    running_var_ = register_buffer("running_var", ones({channels_}));
    num_batches_tracked_ = register_buffer("num_batches_tracked", zeros({}, {.dtype = DType::int64}));
  }
}

Invariance StatisticsNorm::invariance() const {
  return is_training() || !running_mean_.defined() ? Invariance::scale_and_shift : Invariance::none;
}

BatchNorm::BatchNorm(std::string layer, int64_t channels, int64_t low, int64_t high,
                     const BatchNormLayerOptions& options)
    : StatisticsNorm(layer, channels, options.eps),
      layer_(std::move(layer)),
      low_(low),
      high_(high),
      options_(options) {
  check_momentum(layer_, options.momentum);
  register_tensors(options.affine, options.bias, options.track_running_stats);
}

Tensor BatchNorm::forward_act(const Tensor& x, const ActOptions& then) {
  check_norm_input("batch_norm", x, channels_, low_, high_);
  double momentum = options_.momentum.value_or(0);
  if (is_training() && num_batches_tracked_.defined() && !options_.momentum) {  // the average of all batches so far
    momentum = 1.0 / static_cast<double>(num_batches_tracked() + 1);
  }
  return apply(x,
               {.training = is_training(),
                .momentum = momentum,
                .eps = options_.eps,
                .statistics = options_.statistics,
                .biased_running_var = options_.biased_running_var,
                .num_batches_tracked = num_batches_tracked_,
                .parts = parts_},
               then);
}

Tensor BatchNorm::apply(const Tensor& x, const norma::BatchNormOptions& options, const ActOptions& then) {
  return batch_norm(x, running_mean_, running_var_, weight_, bias_, options, then);
}

std::optional<StatisticSets> BatchNorm::sets() const {
  return running_mean_.defined() ? std::optional(StatisticSets{.channels = 1, .eps = options_.eps}) : std::nullopt;
}

std::optional<BatchEvaluation> BatchNorm::evaluation() const {
  return BatchEvaluation{running_mean_, running_var_, weight_, bias_, options_.eps};
}

int64_t BatchNorm::num_batches_tracked() const {
  return num_batches_tracked_.defined() ? num_batches_tracked_.item<int64_t>() : 0;
}

std::string BatchNorm::name() const {
  const std::string momentum = options_.momentum ? fmt::format("{}", *options_.momentum) : "none";
  return fmt::format("{}({}{}, eps={}, momentum={}{}{}{})", layer_, channels_, own_options(), options_.eps, momentum,
                     norm_option_text(options_.affine, options_.statistics, options_.bias),
                     options_.track_running_stats ? "" : ", track_running_stats=false",
                     options_.biased_running_var ? ", biased_running_var=true" : "");
}

GhostBatchNorm2d::GhostBatchNorm2d(int64_t channels, int64_t sub_batch, const BatchNormLayerOptions& options)
    : BatchNorm("GhostBatchNorm2d", channels, 4, 4, options), sub_batch_(sub_batch) {
  check(sub_batch >= 1, "GhostBatchNorm2d", "sub_batch: expected a positive number, got {}", sub_batch);
}

Tensor GhostBatchNorm2d::apply(const Tensor& x, const norma::BatchNormOptions& options, const ActOptions& then) {
  return ghost_batch_norm(x, sub_batch_, running_mean(), running_var(), weight(), bias(), options, then);
}

void GhostBatchNorm2d::set_parts(std::shared_ptr<const PartsOfBatch> /* parts */) {
  fail("GhostBatchNorm2d", "parts: expected batch norm to share statistics between processes, got ghost batch norm");
}

std::string GhostBatchNorm2d::own_options() const {
  return fmt::format(", sub_batch={}", sub_batch_);
}

BatchRenorm2d::BatchRenorm2d(int64_t channels, double r_max, double d_max, const BatchNormLayerOptions& options,
                             const BatchRenormSchedule& schedule)
    : BatchNorm("BatchRenorm2d", channels, 4, 4, options), schedule_(schedule) {
  check(options.track_running_stats, "BatchRenorm2d", "track_running_stats: expected true, got false");
  for (const auto& [name, steps] : {std::pair("warmup_steps", schedule.warmup_steps),
                                    {"r_ramp_steps", schedule.r_ramp_steps},
                                    {"d_ramp_steps", schedule.d_ramp_steps}}) {
    check(steps >= 0, "BatchRenorm2d", "{}: expected a number >= 0, got {}", name, steps);
  }
  set_bounds(r_max, d_max);
}

void BatchRenorm2d::set_parts(std::shared_ptr<const PartsOfBatch> /* parts */) {
  fail("BatchRenorm2d", "parts: expected batch norm to share statistics between processes, got batch renorm");
}

void BatchRenorm2d::set_bounds(double r_max, double d_max) {
  check(r_max >= 1, "BatchRenorm2d", "r_max: expected a value >= 1, got {}", r_max);
  check(d_max >= 0, "BatchRenorm2d", "d_max: expected a value >= 0, got {}", d_max);
  r_max_ = r_max;
  d_max_ = d_max;
}

Tensor BatchRenorm2d::apply(const Tensor& x, const norma::BatchNormOptions& options, const ActOptions& then) {
  const bool grows = schedule_.warmup_steps + schedule_.r_ramp_steps + schedule_.d_ramp_steps > 0;
  const int64_t before = grows ? num_batches_tracked() : 0;  // without a schedule nobody waits for the count
  const auto grown = [&](int64_t ramp_steps) {
    const int64_t steps = before - schedule_.warmup_steps;
    return steps < 0 ? 0.0 : steps >= ramp_steps ? 1.0 : static_cast<double>(steps) / static_cast<double>(ramp_steps);
  };
  return batch_renorm(x, running_mean(), running_var(), weight(), bias(),
                      {.batch_norm = options,
                       .r_max = 1 + (r_max_ - 1) * grown(schedule_.r_ramp_steps),
                       .d_max = d_max_ * grown(schedule_.d_ramp_steps)},
                      then);
}

std::string BatchRenorm2d::own_options() const {
  std::string text = fmt::format(", r_max={}, d_max={}", r_max_, d_max_);
  for (const auto& [name, steps] : {std::pair("warmup_steps", schedule_.warmup_steps),
                                    {"r_ramp_steps", schedule_.r_ramp_steps},
                                    {"d_ramp_steps", schedule_.d_ramp_steps}}) {
    text += steps == 0 ? "" : fmt::format(", {}={}", name, steps);
  }
  return text;
}

FrozenBatchNorm2d::FrozenBatchNorm2d(int64_t channels, double eps)
    : StatisticsNorm("FrozenBatchNorm2d", channels, eps), eps_(eps) {
  weight_ = register_buffer("weight", ones({channels}));
  bias_ = register_buffer("bias", zeros({channels}));
  running_mean_ = register_buffer("running_mean", zeros({channels}));
  running_var_ = register_buffer("running_var", ones({channels}));
}

Tensor FrozenBatchNorm2d::forward_act(const Tensor& x, const ActOptions& then) {
  check_norm_input("batch_norm", x, channels_, 4, 4);
  return batch_norm(x, running_mean_, running_var_, weight_, bias_, {.training = false, .eps = eps_}, then);
}

std::string FrozenBatchNorm2d::name() const {
  return fmt::format("FrozenBatchNorm2d({}, eps={})", channels_, eps_);
}

InstanceNorm::InstanceNorm(int64_t axes, int64_t channels, const InstanceNormLayerOptions& options)
    : StatisticsNorm(fmt::format("InstanceNorm{}d", axes), channels, options.eps), axes_(axes), options_(options) {
  check_momentum(fmt::format("InstanceNorm{}d", axes), options.momentum);
  register_tensors(options.affine, options.bias, options.track_running_stats);
}

Tensor InstanceNorm::forward_act(const Tensor& x, const ActOptions& then) {
  constexpr std::string_view op = "instance_norm";
  check_defined(op, "x", x);
  if (x.rank() == axes_ + 1) {  // one image: errors name its sizes, not those of a batch of one
    check(x.size(0) == channels_, op, "x: expected {} channels, got {} (sizes {})", channels_, x.size(0), x.sizes());
    const bool tracked = options_.track_running_stats;
    check(x.numel() != channels_ || (tracked && !is_training()), op,
          "input: expected more than 1 spatial element{}, got sizes {}", tracked ? " when training" : "", x.sizes());
    ActOptions batched = then;
    if (then.residual.defined()) {
      check_sizes(op, "residual", then.residual, x.sizes());
      batched.residual = unsqueeze(then.residual, 0);
    }
    return only_image(op, forward_act(unsqueeze(x, 0), batched));
  }
  check_norm_input(op, x, channels_, axes_ + 1, axes_ + 2);
  if (!options_.track_running_stats) {
    return instance_norm(x, weight_, bias_, {.eps = options_.eps, .statistics = options_.statistics}, then);
  }
  return instance_norm(x, running_mean_, running_var_, weight_, bias_,
                       {.training = is_training(),
                        .momentum = options_.momentum,
                        .eps = options_.eps,
                        .statistics = options_.statistics},
                       then);
}

std::string InstanceNorm::name() const {
  return fmt::format(
      "InstanceNorm{}d({}, eps={}{}{})", axes_, channels_, options_.eps,
      norm_option_text(options_.affine, options_.statistics, options_.bias),
      options_.track_running_stats ? fmt::format(", track_running_stats=true, momentum={}", options_.momentum) : "");
}

}  // namespace norma::nn
