#include "models/convnext.h"

#include "core/autocast.h"
#include "core/factory.h"
#include "nn/conv.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/module_scope.h"
#include "nn/norm/map_norms.h"
#include "nn/sequential.h"
#include "ops/conv/conv.h"
#include "ops/matmul/matmul.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace norma::models {
namespace {

using nn::make_norm;
using nn::NormPlacement;
using ModulePointer = std::shared_ptr<nn::Module>;

// The name of a block's norm; peri has norm_out, too. Each placement has a name of its own, so that no network reads
// weights that were trained under another one.
std::string norm_name(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::pre: return "norm_pre";
    case NormPlacement::post: return "norm_post";
    case NormPlacement::peri: return "norm_in";
    default: return "norm";
  }
}

constexpr int64_t kMlpRatio = 4;
constexpr double kInitDeviation = 0.02;

// The settings that all parts of one network share.
struct Build {
  nn::NormChoice norm;
  std::string conv_layer;
  Generator& generator;
  bool conv_mlp;
  bool grn;
  double layer_scale;
  bool initialize;
  NormPlacement placement;
  bool grad_checkpointing;

  void fill(const Tensor& weight) const {
    if (initialize) {
      nn::trunc_normal_(weight, kInitDeviation, generator);
    }
  }
};

// A convolution whose kernel is its stride, or a 7x7 depthwise one, with ConvNeXt's start values.
ModulePointer convolution(int64_t in, int64_t out, int64_t kernel, nn::Conv2dOptions options, const Build& build) {
  options.initialize = false;
  auto conv = nn::make_conv(build.conv_layer, in, out, kernel, options);
  build.fill(conv->weight());
  return conv;
}

// A linear layer over the channels at each pixel of (N, in, H, W): a 1x1 convolution.
class Pointwise : public nn::Module {
 public:
  Pointwise(int64_t in, int64_t out, const Build& build) {
    weight_ = register_parameter("weight", zeros(build.conv_mlp ? Sizes{out, in, 1, 1} : Sizes{out, in}));
    bias_ = register_parameter("bias", zeros({out}));
    build.fill(weight_);
  }

  Tensor forward(const Tensor& x) override { return forward_act(x, {}); }

  // activation(scale · (W x + b) + residual), with a scale (out).
  Tensor forward_act(const Tensor& x, const LinearActOptions& then) {
    nn::ModuleScope scope(*this, x);
    return scope.leave(product_act(x, then));
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("Pointwise({}, {})", weight_.size(1), weight_.size(0));
  }

 private:
  Tensor product_act(const Tensor& x, const LinearActOptions& then) {
    // channels_last pixels are the rows of a matrix; in contiguous ones a convolution keeps the format.
    if (x.suggest_memory_format() == MemoryFormat::channels_last) {
      const Tensor matrix = weight_.rank() == 4 ? view(weight_, {weight_.size(0), weight_.size(1)}) : weight_;
      const Tensor residual = then.residual.defined() ? permute(then.residual, kToLast) : Tensor();
      return permute(linear_act(permute(x, kToLast), matrix, bias_,
                                {.scale = then.scale, .activation = then.activation, .residual = residual}),
                     {0, 3, 1, 2});
    }
    Tensor weight = weight_.rank() == 2 ? view(weight_, {weight_.size(0), weight_.size(1), 1, 1}) : weight_;
    Tensor bias = bias_;
    if (then.scale.defined()) {  // scale · (W x + b) = (scale · W) x + scale · b
      weight = mul(weight, view(then.scale, {-1, 1, 1, 1}));
      bias = mul(bias, then.scale);
    }
    return conv2d_act(x, weight, bias, {}, {.activation = then.activation, .residual = then.residual});
  }

  static inline const Axes kToLast{0, 2, 3, 1};

  Tensor weight_;
  Tensor bias_;
};

// x with each channel multiplied by scale (channels), or x itself where that is undefined.
Tensor scaled(const Tensor& x, const Tensor& scale) {
  return scale.defined() ? mul(x, view(scale, {-1, 1, 1})) : x;
}

// True iff an mlp computes x in channels_last and turns its result back. For contiguous images cuDNN transposes x and
// the result of each 1x1 convolution, in forward and in both gradients. With the two convolutions of an mlp, that makes
// 60 passes over x. Turning x and the result takes 8.
bool is_turned(const Tensor& x) {
  return conv2d_transposes_contiguous(x.device()) && !x.is_contiguous(MemoryFormat::channels_last);
}

// f(x) in the format of x.
template <class F>
Tensor turned(const Tensor& x, F&& f) {
  return is_turned(x) ? contiguous(f(contiguous(x, MemoryFormat::channels_last))) : f(x);
}

// fc1, GELU, a global response norm in V2, fc2.
class Mlp : public nn::Module {
 public:
  Mlp(int64_t channels, const Build& build) {
    fc1_ = register_module("fc1", std::make_shared<Pointwise>(channels, kMlpRatio * channels, build));
    act_ = register_module("act", std::make_shared<nn::GELU>());
    if (build.grn) {
      grn_ = register_module("grn", std::make_shared<nn::GlobalResponseNorm>(kMlpRatio * channels));
    }
    fc2_ = register_module("fc2", std::make_shared<Pointwise>(kMlpRatio * channels, channels, build));
  }
  Tensor forward(const Tensor& x) override {
    return turned(x, [&](const Tensor& y) { return (*fc2_)(hidden(y)); });
  }
  // scale · mlp(x) + residual; scale and residual may be undefined. Only the hooks of its parts run.
  Tensor forward_act(const Tensor& x, const Tensor& scale, const Tensor& residual) {
    const bool hooked = fc2_->has_forward_hooks();
    if (!hooked && !is_turned(x)) {
      return fc2_->forward_act(hidden(x), {.scale = scale, .residual = residual});
    }
    const Tensor branch = turned(x, [&](const Tensor& y) {
      return hooked ? scaled((*fc2_)(hidden(y)), scale) : fc2_->forward_act(hidden(y), {.scale = scale});
    });
    return residual.defined() ? add(residual, branch) : branch;
  }
  [[nodiscard]] std::string name() const override { return "Mlp"; }

 private:
  Tensor hidden(const Tensor& x) {
    const bool seen_between = fc1_->has_forward_hooks() || act_->has_forward_hooks();
    const Tensor y = seen_between ? (*act_)((*fc1_)(x)) : fc1_->forward_act(x, {.activation = Activation::gelu});
    return grn_ ? (*grn_)(y) : y;
  }

  std::shared_ptr<Pointwise> fc1_;
  ModulePointer act_, grn_;
  std::shared_ptr<Pointwise> fc2_;
};

// x + drop_path(gamma · mlp(norm(depthwise(x)))), or with the norm in another place (models/convnext.h).
class ConvNextBlock : public nn::Module {
 public:
  ConvNextBlock(int64_t channels, double drop_path, const Build& build) : placement_(build.placement) {
    if (build.layer_scale != 0) {
      gamma_ = register_parameter("gamma", full({channels}, build.layer_scale));
    }
    conv_dw_ =
        register_module("conv_dw", convolution(channels, channels, 7, {.padding = 3, .groups = channels}, build));
    norm_ = register_slot(norm_name(placement_), make_norm(build.norm, channels));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(channels, build));
    if (placement_ == NormPlacement::peri) {
      norm_out_ = register_slot("norm_out", make_norm(build.norm, channels));
    }
    if (drop_path > 0) {
      drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(drop_path));
    }
  }

  Tensor forward(const Tensor& x) override {
    switch (placement_) {
      case NormPlacement::inside: return plus_mlp(x, (*norm_)((*conv_dw_)(x)));
      case NormPlacement::pre: return plus_mlp(x, (*conv_dw_)((*norm_)(x)));
      case NormPlacement::post: return (*norm_)(plus_mlp(x, (*conv_dw_)(x)));
      case NormPlacement::peri: return plus(x, scaled((*norm_out_)((*mlp_)((*conv_dw_)((*norm_)(x)))), gamma_));
    }
    return {};
  }

  [[nodiscard]] std::string name() const override { return "ConvNeXtBlock"; }

 private:
  // x + drop_path(branch)
  Tensor plus(const Tensor& x, const Tensor& branch) const {
    return add(x, drop_path_ ? (*drop_path_)(branch) : branch);
  }
  // x + drop_path(gamma · mlp(y))
  Tensor plus_mlp(const Tensor& x, const Tensor& y) const {
    return adds_in_product() ? mlp_->forward_act(y, gamma_, x) : plus(x, scaled_mlp(y));
  }
  // The last product of the mlp also scales and adds x, without another pass over memory, where nothing stands between.
  // Under autocast x has another dtype than the product.
  [[nodiscard]] bool adds_in_product() const {
    const bool drops = drop_path_ && (drop_path_->is_training() || drop_path_->has_forward_hooks());
    return !drops && !mlp_->has_forward_hooks() && !autocast_enabled();
  }
  // gamma · mlp(y), in one product unless a hook wants to see mlp(y).
  Tensor scaled_mlp(const Tensor& y) const {
    return mlp_->has_forward_hooks() ? scaled((*mlp_)(y), gamma_) : mlp_->forward_act(y, gamma_, {});
  }

  Tensor gamma_;
  ModulePointer conv_dw_, drop_path_;
  nn::ChildSlot norm_, norm_out_;
  std::shared_ptr<Mlp> mlp_;
  NormPlacement placement_;
};

// Halves the image (in all stages but the first), then runs its blocks.
class Stage : public nn::Module {
 public:
  Stage(int64_t in, int64_t out, int64_t depth, const std::vector<double>& drop_path, bool halve, const Build& build) {
    if (halve) {
      downsample_ =
          register_module("downsample", std::make_shared<nn::Sequential>(std::initializer_list<ModulePointer>{
                                            make_norm(build.norm, in), convolution(in, out, 2, {.stride = 2}, build)}));
    }
    blocks_ = register_module("blocks", std::make_shared<nn::Sequential>());
    blocks_->set_grad_checkpointing(build.grad_checkpointing);
    for (int64_t i = 0; i < depth; ++i) {
      blocks_->push_back(std::make_shared<ConvNextBlock>(out, drop_path[static_cast<size_t>(i)], build));
    }
  }
  Tensor forward(const Tensor& x) override { return (*blocks_)(downsample_ ? (*downsample_)(x) : x); }
  [[nodiscard]] std::string name() const override { return "ConvNeXtStage"; }

 private:
  ModulePointer downsample_;
  std::shared_ptr<nn::Sequential> blocks_;
};

// Global average pooling, norm, linear layer.
class Head : public nn::Module {
 public:
  Head(int64_t channels, int64_t num_classes, const Build& build) {
    pool_ = register_module("global_pool", std::make_shared<nn::AdaptiveAvgPool2d>(1));
    const bool one_pixel_is_enough = !nn::norm_definition(build.norm.name).needs_pixels;
    norm_ = register_slot("norm", make_norm(one_pixel_is_enough ? build.norm : nn::parse_norm("layer2d"), channels),
                          {.one_pixel = true});
    auto fc = std::make_shared<nn::Linear>(channels, num_classes, nn::LinearOptions{.initialize = false});
    build.fill(fc->weight());
    fc_ = register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override { return (*fc_)(flatten((*norm_)((*pool_)(x)), 1)); }
  [[nodiscard]] std::string name() const override { return "Head"; }

 private:
  ModulePointer pool_, fc_;
  nn::ChildSlot norm_;
};

}  // namespace

ConvNeXt::ConvNeXt(const std::string& name, const ConvNeXtConfig& config, const ModelOptions& options) : name_(name) {
  check(!options.small_stem, "model", "small_stem: {} has no such stem; patch_size makes its stem fit small images",
        name);
  check(!options.zero_init_last, "model",
        "zero_init_last: {} has no such option; layer_scale makes its blocks start near the identity", name);
  const int64_t patch = options.patch_size.value_or(4);
  check(patch > 0, "model", "patch_size: expected a positive number, got {}", patch);
  const double layer_scale = options.layer_scale.value_or(config.grn ? 0 : 1e-6);
  check(std::isfinite(layer_scale) && layer_scale >= 0, "model", "layer_scale: expected a number >= 0, got {}",
        layer_scale);
  Generator generator(options.seed);
  const nn::NormChoice norm = nn::parse_norm(options.norm.empty() ? std::string(kConvNeXtNorm) : options.norm);
  const Build build{.norm = nn::with_default(norm, "eps", std::string(kConvNeXtEps)),
                    .conv_layer = options.conv_layer,
                    .generator = generator,
                    .conv_mlp = config.conv_mlp,
                    .grn = config.grn,
                    .layer_scale = layer_scale,
                    .initialize = options.initialize,
                    .placement = options.norm_policy.placement.value_or(NormPlacement::inside),
                    .grad_checkpointing = options.grad_checkpointing};

  stem_ =
      register_module("stem", std::make_shared<nn::Sequential>(std::initializer_list<ModulePointer>{
                                  convolution(options.in_channels, config.widths[0], patch, {.stride = patch}, build),
                                  make_norm(build.norm, config.widths[0])}));
  int64_t blocks = 0;
  for (const int64_t depth : config.depths) {
    blocks += depth;
  }
  auto stages = std::make_shared<nn::Sequential>();
  int64_t done = 0;
  for (size_t stage = 0; stage < config.depths.size(); ++stage) {
    std::vector<double> rates;
    for (int64_t i = 0; i < config.depths[stage]; ++i, ++done) {
      rates.push_back(options.drop_path * static_cast<double>(done) / static_cast<double>(blocks - 1));
    }
    const int64_t in = config.widths[stage == 0 ? 0 : stage - 1];
    stages->push_back(std::make_shared<Stage>(in, config.widths[stage], config.depths[stage], rates,
                                              /* halve= */ stage > 0, build));
  }
  stages_ = register_module("stages", stages);
  head_ = register_module("head", std::make_shared<Head>(config.widths[3], options.num_classes, build));
}

Tensor ConvNeXt::forward(const Tensor& x) {
  return (*head_)((*stages_)((*stem_)(x)));
}

std::optional<NormPlacement> recognize_norm_placement(const nn::NamedTensors& tensors) {
  for (const NormPlacement placement : nn::kNormPlacements) {
    const std::string part = fmt::format(".{}.", norm_name(placement));
    if (std::ranges::any_of(tensors, [&](const auto& tensor) {
          return tensor.first.starts_with("stages.") && tensor.first.find(part) != std::string::npos;
        })) {
      return placement;
    }
  }
  return std::nullopt;
}

}  // namespace norma::models
