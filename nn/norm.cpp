#include "nn/norm.h"

#include "core/factory.h"
#include "ops/norm/norm.h"

namespace norma::nn {
namespace {

void check_channels(std::string_view op, int64_t channels) {
  check(channels > 0, op, "channels: expected a positive number, got {}", channels);
}

// The input of a layer made for (N, channels, H, W).
void check_image(std::string_view op, const Tensor& x, int64_t channels) {
  check_defined(op, "x", x);
  check_rank(op, "x", x, 4);
  check(x.size(1) == channels, op, "x: expected {} channels, got {} (sizes {})", channels, x.size(1),
        to_string(x.sizes()));
}

Tensor weight_of(const Sizes& sizes, bool affine) {
  return affine ? ones(sizes) : Tensor();
}
Tensor bias_of(const Sizes& sizes, bool affine) {
  return affine ? zeros(sizes) : Tensor();
}

// ", statistics=sum_of_squares" and ", affine=false" where they are not the default.
std::string option_text(bool affine, Statistics statistics) {
  std::string text = affine ? "" : ", affine=false";
  if (statistics != Statistics::stable) {
    text += fmt::format(", statistics={}", to_string(statistics));
  }
  return text;
}

}  // namespace

BatchNorm2d::BatchNorm2d(int64_t channels, const BatchNorm2dOptions& options) : channels_(channels), options_(options) {
  check_channels("BatchNorm2d", channels);
  weight_ = register_parameter("weight", weight_of({channels}, options.affine));
  bias_ = register_parameter("bias", bias_of({channels}, options.affine));
  if (options.track_running_stats) {
    running_mean_ = register_buffer("running_mean", zeros({channels}));
    running_var_ = register_buffer("running_var", ones({channels}));
    num_batches_tracked_ = register_buffer("num_batches_tracked", zeros({}, {.dtype = DType::int64}));
  }
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  check_image("batch_norm", x, channels_);
  double momentum = options_.momentum.value_or(0);
  if (is_training() && num_batches_tracked_.defined()) {
    const int64_t count = ++*num_batches_tracked_.data<int64_t>();
    num_batches_tracked_.bump_version();
    if (!options_.momentum) {  // the average of all batches so far
      momentum = 1.0 / static_cast<double>(count);
    }
  }
  return batch_norm(
      x, running_mean_, running_var_, weight_, bias_,
      {.training = is_training(), .momentum = momentum, .eps = options_.eps, .statistics = options_.statistics});
}

std::string BatchNorm2d::name() const {
  const std::string momentum = options_.momentum ? fmt::format("{}", *options_.momentum) : "none";
  return fmt::format("BatchNorm2d({}, eps={}, momentum={}{}{})", channels_, options_.eps, momentum,
                     option_text(options_.affine, options_.statistics),
                     options_.track_running_stats ? "" : ", track_running_stats=false");
}

LayerNorm::LayerNorm(const Sizes& normalized_shape, const NormOptions& options)
    : shape_(normalized_shape), options_(options) {
  check(!shape_.empty(), "LayerNorm", "normalized_shape: expected one size or more, got none");
  weight_ = register_parameter("weight", weight_of(shape_, options.affine));
  bias_ = register_parameter("bias", bias_of(shape_, options.affine));
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, shape_, weight_, bias_, {.eps = options_.eps, .statistics = options_.statistics});
}

std::string LayerNorm::name() const {
  return fmt::format("LayerNorm({}, eps={}{})", to_string(shape_), options_.eps,
                     option_text(options_.affine, options_.statistics));
}

LayerNorm2d::LayerNorm2d(int64_t channels, const NormOptions& options) : channels_(channels), options_(options) {
  check_channels("LayerNorm2d", channels);
  weight_ = register_parameter("weight", weight_of({channels}, options.affine));
  bias_ = register_parameter("bias", bias_of({channels}, options.affine));
}

Tensor LayerNorm2d::forward(const Tensor& x) {
  check_image("layer_norm_2d", x, channels_);
  return layer_norm_2d(x, weight_, bias_, {.eps = options_.eps, .statistics = options_.statistics});
}

std::string LayerNorm2d::name() const {
  return fmt::format("LayerNorm2d({}, eps={}{})", channels_, options_.eps,
                     option_text(options_.affine, options_.statistics));
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const NormOptions& options)
    : groups_(groups), channels_(channels), options_(options) {
  check_channels("GroupNorm", channels);
  check(groups > 0 && channels % groups == 0, "group_norm",
        "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", channels, groups);
  weight_ = register_parameter("weight", weight_of({channels}, options.affine));
  bias_ = register_parameter("bias", bias_of({channels}, options.affine));
}

Tensor GroupNorm::forward(const Tensor& x) {
  check_image("group_norm", x, channels_);
  return group_norm(x, groups_, weight_, bias_, {.eps = options_.eps, .statistics = options_.statistics});
}

std::string GroupNorm::name() const {
  return fmt::format("GroupNorm({}, {}, eps={}{})", groups_, channels_, options_.eps,
                     option_text(options_.affine, options_.statistics));
}

InstanceNorm2d::InstanceNorm2d(int64_t channels, const NormOptions& options) : channels_(channels), options_(options) {
  check_channels("InstanceNorm2d", channels);
  weight_ = register_parameter("weight", weight_of({channels}, options.affine));
  bias_ = register_parameter("bias", bias_of({channels}, options.affine));
}

Tensor InstanceNorm2d::forward(const Tensor& x) {
  check_image("instance_norm", x, channels_);
  return instance_norm(x, weight_, bias_, {.eps = options_.eps, .statistics = options_.statistics});
}

std::string InstanceNorm2d::name() const {
  return fmt::format("InstanceNorm2d({}, eps={}{})", channels_, options_.eps,
                     option_text(options_.affine, options_.statistics));
}

}  // namespace norma::nn
