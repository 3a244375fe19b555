#include "models/convnext.h"

#include "core/factory.h"
#include "models/residual.h"
#include "nn/conv.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sequential.h"

#include <cmath>

namespace norma::models {
namespace {

using nn::make_norm;
using nn::NormPlacement;
using ModulePointer = std::shared_ptr<nn::Module>;

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
  [[nodiscard]] MlpOptions mlp() const {
    return {.grn = grn, .layers = {.conv = conv_mlp, .generator = initialize ? &generator : nullptr}};
  }
};

// A convolution whose kernel is its stride, or a 7x7 depthwise one, with ConvNeXt's start values.
ModulePointer convolution(int64_t in, int64_t out, int64_t kernel, nn::Conv2dOptions options, const Build& build) {
  options.initialize = false;
  auto conv = nn::make_conv(build.conv_layer, in, out, kernel, options);
  build.fill(conv->weight());
  return conv;
}

// x + drop_path(gamma · mlp(norm(depthwise(x)))), or with the norm in another place (models/convnext.h).
class ConvNextBlock : public nn::Module {
 public:
  ConvNextBlock(int64_t channels, double drop_path, const Build& build) : placement_(build.placement) {
    if (build.layer_scale != 0) {
      gamma_ = register_parameter("gamma", full({channels}, build.layer_scale));
    }
    conv_dw_ =
        register_module("conv_dw", convolution(channels, channels, 7, {.padding = 3, .groups = channels}, build));
    norm_ = register_slot(convnext_norm_name(placement_), make_norm(build.norm, channels));
    mlp_ = register_module("mlp", std::make_shared<Mlp>(channels, build.mlp()));
    if (placement_ == NormPlacement::peri) {
      norm_out_ = register_slot("norm_out", make_norm(build.norm, channels));
    }
    if (drop_path > 0) {
      drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(drop_path));
    }
  }

  Tensor forward(const Tensor& x) override {
    const ResidualSum to{.scale = gamma_, .drop_path = drop_path_.get()};
    switch (placement_) {
      case NormPlacement::inside: return to.plus(x, *mlp_, (*norm_)((*conv_dw_)(x)));
      case NormPlacement::pre: return to.plus(x, *mlp_, (*conv_dw_)((*norm_)(x)));
      case NormPlacement::post: return (*norm_)(to.plus(x, *mlp_, (*conv_dw_)(x)));
      case NormPlacement::peri: return to.plus(x, (*norm_out_)((*mlp_)((*conv_dw_)((*norm_)(x)))));
    }
    return {};
  }

  [[nodiscard]] std::string name() const override { return "ConvNeXtBlock"; }

 private:
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

std::string convnext_norm_name(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::pre: return "norm_pre";
    case NormPlacement::post: return "norm_post";
    case NormPlacement::peri: return "norm_in";
    default: return "norm";
  }
}

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
      rates.push_back(drop_path_rate(options.drop_path, done, blocks));
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

}  // namespace norma::models
