#include "nn/norm/norm.h"

#include "core/autocast.h"
#include "core/factory.h"
#include "nn/conv.h"
#include "nn/module_scope.h"
#include "nn/norm/options.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

namespace norma::nn {
namespace {

const Sizes& checked_shape(std::string_view layer, const Sizes& shape) {
  check(!shape.empty(), layer, "normalized_shape: expected at least 1 size, got []");
  return shape;
}

std::string layer_name(const std::string& text) {
  return text.substr(0, text.find('('));
}

Sizes of_channels(const std::string& layer, int64_t channels) {
  check(channels > 0, layer_name(layer), "channels: expected a positive number, got {}", channels);
  return {channels};
}

}  // namespace

Tensor gain_of(const Tensor& weight, bool offset) {
  // In the dtype of the computation, since 16 bits hold a small weight, but not 1 more than it.
  return weight.defined() && offset ? add(to(weight, compute_dtype(weight.dtype())), 1) : weight;
}

Tensor forward_act(Module& norm, const Tensor& x, const ActOptions& then) {
  ModuleScope scope(norm, x);  // an observer sees what follows any norm
  if (auto* layer = dynamic_cast<Norm*>(&norm)) {
    Tensor y = scope.leave(layer->forward_act(x, then));
    layer->run_forward_hooks(x, y);
    return y;
  }
  return scope.leave(activate(norm(x), then));
}

Tensor conv_norm_act(Module& conv, Module& norm, const Tensor& x, const ActOptions& then) {
  const auto* layer = dynamic_cast<const Conv2d*>(&conv);
  const bool folded = dynamic_cast<const FoldedNorm*>(&norm) != nullptr;
  if (layer != nullptr && folded && !conv.has_forward_hooks() && !norm.has_forward_hooks()) {
    return layer->forward_act(x, then);
  }
  return forward_act(norm, conv(x), then);
}

bool weight_is_factor(const Module& norm) {
  const auto* layer = dynamic_cast<const Norm*>(&norm);
  return layer == nullptr || layer->weight_is_factor();
}

double weight_offset(const Module& norm) {
  const auto* layer = dynamic_cast<const Norm*>(&norm);
  return layer == nullptr ? 0 : layer->weight_offset();
}

NoNorm::NoNorm(int64_t channels) : channels_(channels) {
  check(channels > 0, "NoNorm", "channels: expected a positive number, got {}", channels);
}

Tensor NoNorm::forward_act(const Tensor& x, const ActOptions& then) {
  return activate(x, then);
}

AffineNorm::AffineNorm(std::string text, const Sizes& sizes, const NormOptions& options, bool with_bias)
    : text_(std::move(text)), options_(options) {
  check_eps(layer_name(text_), options.eps);
  check_offset(layer_name(text_), options.affine, options.offset);
  if (options.affine) {
    weight_ = register_parameter("weight", options.offset ? zeros(sizes) : ones(sizes));
    bias_ = register_parameter("bias", options.bias && with_bias ? zeros(sizes) : Tensor());
  }
}

std::string AffineNorm::name() const {
  return text_ + norm_option_text(options_.affine, options_.statistics, options_.bias, options_.offset) + ")";
}

std::vector<std::string> AffineNorm::decaying() const {
  return options_.offset ? std::vector<std::string>{"weight"} : std::vector<std::string>();
}

Tensor AffineNorm::gain() const {
  return gain_of(weight_, options_.offset);
}

LayerNorm::LayerNorm(const Sizes& normalized_shape, const NormOptions& options)
    : AffineNorm(fmt::format("LayerNorm({}, eps={}", to_string(normalized_shape), options.eps),
                 checked_shape("LayerNorm", normalized_shape), options),
      shape_(normalized_shape) {}

Tensor LayerNorm::forward_act(const Tensor& x, const ActOptions& then) {
  return layer_norm(x, shape_, gain(), bias(), {.eps = options().eps, .statistics = options().statistics}, then);
}

RMSNorm::RMSNorm(const Sizes& normalized_shape, const RmsNormLayerOptions& options)
    : AffineNorm(fmt::format("RMSNorm({}, eps={}", to_string(normalized_shape),
                             options.eps ? fmt::format("{}", *options.eps) : "none"),
                 checked_shape("RMSNorm", normalized_shape), {.eps = options.eps.value_or(0), .affine = options.affine},
                 /* with_bias= */ false),
      shape_(normalized_shape),
      eps_(options.eps) {}

Tensor RMSNorm::forward_act(const Tensor& x, const ActOptions& then) {
  return rms_norm(x, shape_, weight(), {.eps = eps_}, then);
}

SimpleNorm::SimpleNorm(const Sizes& normalized_shape, const SimpleNormLayerOptions& options)
    : AffineNorm(fmt::format("SimpleNorm({}, eps={}", to_string(normalized_shape), options.eps),
                 checked_shape("SimpleNorm", normalized_shape),
                 {.eps = options.eps, .affine = options.affine, .statistics = options.statistics},
                 /* with_bias= */ false),
      shape_(normalized_shape) {}

Tensor SimpleNorm::forward_act(const Tensor& x, const ActOptions& then) {
  return simple_norm(x, shape_, weight(), {.eps = options().eps, .statistics = options().statistics}, then);
}

ChannelNorm::ChannelNorm(const std::string& layer, int64_t channels, const NormOptions& options, bool with_bias)
    : AffineNorm(fmt::format("{}{}{}, eps={}", layer, layer.find('(') == std::string::npos ? "(" : ", ", channels,
                             options.eps),
                 of_channels(layer, channels), options, with_bias),
      channels_(channels) {}

void ChannelNorm::check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high) const {
  check_norm_input(op, x, channels_, low, high);
}

LayerNorm2d::LayerNorm2d(int64_t channels, const LayerNorm2dLayerOptions& options)
    : ChannelNorm("LayerNorm2d", channels,
                  {.eps = options.eps,
                   .affine = options.affine,
                   .bias = options.bias,
                   .statistics = options.statistics,
                   .offset = options.offset}) {}

Tensor LayerNorm2d::forward_act(const Tensor& x, const ActOptions& then) {
  check_input("layer_norm_2d", x, 4, 4);
  return layer_norm_2d(x, gain(), bias(), {.eps = options().eps, .statistics = options().statistics}, then);
}

RMSNorm2d::RMSNorm2d(int64_t channels, const RmsNorm2dLayerOptions& options)
    : ChannelNorm(options.groups == 1 ? "RMSNorm2d" : fmt::format("RMSNorm2d(groups={}", options.groups), channels,
                  {.eps = options.eps, .affine = options.affine, .offset = options.offset}, /* with_bias= */ false),
      groups_(options.groups) {
  check(groups_ > 0 && channels % groups_ == 0, "rms_norm_2d",
        "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", channels, groups_);
}

Tensor RMSNorm2d::forward_act(const Tensor& x, const ActOptions& then) {
  check_input("rms_norm_2d", x, 4, 4);
  return rms_norm_2d(x, gain(), {.eps = options().eps, .num_groups = groups_}, then);
}

SimpleNorm2d::SimpleNorm2d(int64_t channels, const SimpleNormLayerOptions& options)
    : ChannelNorm("SimpleNorm2d", channels,
                  {.eps = options.eps, .affine = options.affine, .statistics = options.statistics},
                  /* with_bias= */ false) {}

Tensor SimpleNorm2d::forward_act(const Tensor& x, const ActOptions& then) {
  check_input("simple_norm_2d", x, 4, 4);
  return simple_norm_2d(x, weight(), {.eps = options().eps, .statistics = options().statistics}, then);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const NormOptions& options)
    : ChannelNorm(fmt::format("GroupNorm({}", groups), channels, options), groups_(groups) {
  check(groups > 0 && channels % groups == 0, "group_norm",
        "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", channels, groups);
}

Tensor GroupNorm::forward_act(const Tensor& x, const ActOptions& then) {
  check_input("group_norm", x, 2, 5);
  return group_norm(x, groups_, gain(), bias(), {.eps = options().eps, .statistics = options().statistics}, then);
}

}  // namespace norma::nn
