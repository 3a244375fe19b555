#include "models/vit.h"

#include "core/factory.h"
#include "models/residual.h"
#include "nn/conv.h"
#include "nn/init.h"
#include "nn/sequential.h"
#include "ops/attention/attention.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace norma::models {
namespace {

using nn::make_norm;
using nn::NormPlacement;
using ModulePointer = std::shared_ptr<nn::Module>;

constexpr double kClassTokenDeviation = 1e-6;

// The settings that all blocks of one network share.
struct Build {
  nn::NormChoice norm;
  std::optional<nn::NormChoice> qk_norm;
  int64_t heads;
  double layer_scale;
  bool qkv_bias;
  NormPlacement placement;
  PointwiseOptions layers;
};

// Patches of the image by a convolution whose kernel is its stride: (N, C, H, W) → (N, width, H / patch, W / patch).
class PatchEmbed : public nn::Module {
 public:
  PatchEmbed(const VitConfig& config, int64_t patch, const ModelOptions& options, const nn::NormChoice& norm,
             Generator& generator) {
    const auto proj = nn::make_conv(options.conv_layer, options.in_channels, config.width, patch,
                                    {.stride = patch, .bias = !config.pre_norm, .initialize = false});
    if (options.initialize) {
      nn::default_init_(proj->weight(), proj->bias(), generator);
    }
    proj_ = register_module("proj", ModulePointer(proj));
    const std::vector<nn::NormRule>& rules = options.norm_policy.rules;  // which replace this norm
    if (std::ranges::find(rules, std::string(kPatchNorm), &nn::NormRule::pattern) != rules.end()) {
      norm_ = register_slot("norm", make_norm(norm, config.width));
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = (*proj_)(x);
    return norm_ ? (*norm_)(y) : y;
  }
  [[nodiscard]] std::string name() const override { return "PatchEmbed"; }

 private:
  ModulePointer proj_;
  nn::ChildSlot norm_;
};

// (N, C, 1, L) → (N, L, heads, C / heads), a view.
Tensor split_heads(const Tensor& x, int64_t heads) {
  return view(channels_to_last(x), {x.size(0), x.size(3), heads, x.size(1) / heads});
}

// Self-attention of several heads, and a product.
class Attention : public Branch {
 public:
  Attention(int64_t width, const Build& build) : heads_(build.heads) {
    PointwiseOptions of_qkv = build.layers;
    of_qkv.bias = build.qkv_bias;
    qkv_ = register_module("qkv", std::make_shared<Pointwise>(width, 3 * width, of_qkv));
    if (build.qk_norm) {
      q_norm_ = register_slot("q_norm", make_norm(*build.qk_norm, width / heads_));
      k_norm_ = register_slot("k_norm", make_norm(*build.qk_norm, width / heads_));
    }
    register_last("proj", std::make_shared<Pointwise>(width, width, build.layers));
  }
  [[nodiscard]] std::string name() const override { return fmt::format("Attention({} heads)", heads_); }

 protected:
  Tensor hidden(const Tensor& x) override {
    // Three products: the gradients of q, k and v then need no common tensor, into which they would be copied.
    const int64_t width = x.size(1);
    const Tensor seen = qkv_->has_forward_hooks() ? (*qkv_)(x) : Tensor();
    std::array<Tensor, 3> qkv;
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor part = seen.defined() ? narrow(seen, 1, i * width, width) : qkv_->part(x, i * width, width);
      qkv[static_cast<size_t>(i)] = split_heads(part, heads_);
    }
    const auto normed = [](const nn::ChildSlot& norm, const Tensor& y) {
      return norm ? channels_to_last((*norm)(channels_to_second(y))) : y;
    };
    const Tensor y = scaled_dot_product_attention(transpose(normed(q_norm_, qkv[0]), 1, 2),
                                                  transpose(normed(k_norm_, qkv[1]), 1, 2), transpose(qkv[2], 1, 2));
    return channels_to_second(view(transpose(y, 1, 2), {x.size(0), 1, x.size(3), width}));
  }

 private:
  int64_t heads_;
  std::shared_ptr<Pointwise> qkv_;
  nn::ChildSlot q_norm_, k_norm_;
};

// A number for each channel. A block multiplies by it in the product before it, so that its hooks never run.
class LayerScale : public nn::Module {
 public:
  LayerScale(int64_t width, double value) { gamma_ = register_parameter("gamma", full({width}, value)); }
  Tensor forward(const Tensor& x) override { return scaled(x, gamma_); }
  [[nodiscard]] const Tensor& gamma() const { return gamma_; }
  [[nodiscard]] std::string name() const override { return "LayerScale"; }

 private:
  Tensor gamma_;
};

// Attention, then an MLP, each in a residual branch with its norms (models/vit.h).
class TransformerBlock : public nn::Module {
 public:
  TransformerBlock(int64_t width, double drop_path, const Build& build) : placement_(build.placement) {
    add_branch(1, "attn", std::make_shared<Attention>(width, build), width, drop_path, build);
    add_branch(2, "mlp", std::make_shared<Mlp>(width, MlpOptions{.layers = build.layers}), width, drop_path, build);
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const Part& part : parts_) {
      y = with_branch(y, part);
    }
    return y;
  }

  [[nodiscard]] std::string name() const override { return "Block"; }

 private:
  struct Part {
    nn::ChildSlot norm, norm_out;
    std::shared_ptr<Branch> branch;
    ResidualSum sum;
  };

  void add_branch(int number, const std::string& name, std::shared_ptr<Branch> branch, int64_t width, double drop_path,
                  const Build& build) {
    Part& part = parts_[static_cast<size_t>(number - 1)];
    part.norm = register_slot(vit_norm_name(number, placement_), make_norm(build.norm, width));
    part.branch = register_module(name, std::move(branch));
    if (placement_ == NormPlacement::peri) {
      part.norm_out = register_slot(fmt::format("norm{}_out", number), make_norm(build.norm, width));
    }
    if (build.layer_scale != 0) {
      part.sum.scale =
          register_module(fmt::format("ls{}", number), std::make_shared<LayerScale>(width, build.layer_scale))->gamma();
    }
    if (drop_path > 0) {
      part.sum.drop_path =
          register_module(fmt::format("drop_path{}", number), std::make_shared<nn::DropPath>(drop_path)).get();
    }
  }

  [[nodiscard]] Tensor with_branch(const Tensor& x, const Part& part) const {
    switch (placement_) {
      case NormPlacement::post: return (*part.norm)(part.sum.plus(x, *part.branch, x));
      case NormPlacement::peri: return part.sum.plus(x, (*part.norm_out)((*part.branch)((*part.norm)(x))));
      default: return part.sum.plus(x, *part.branch, (*part.norm)(x));
    }
  }

  NormPlacement placement_;
  std::array<Part, 2> parts_;
};

void check_options(const std::string& name, const VitConfig& config, const ModelOptions& options, int64_t image_size,
                   int64_t patch) {
  check(!options.small_stem, "model", "small_stem: {} has no such stem; patch_size makes it fit small images", name);
  check(!options.zero_init_last, "model",
        "zero_init_last: {} has no such option; layer_scale makes its blocks start near the identity", name);
  check(config.heads > 0 && config.width % config.heads == 0, "model",
        "heads: expected a divisor of the width {}, got {}", config.width, config.heads);
  check(image_size > 0, "model", "image_size: expected a positive number, got {}", image_size);
  check(patch > 0 && image_size % patch == 0, "model", "patch_size: expected a divisor of the image size {}, got {}",
        image_size, patch);
  check(options.global_pool.empty() || options.global_pool == "token" || options.global_pool == "avg", "model",
        "global_pool: expected token or avg, got '{}'", options.global_pool);
  const double layer_scale = options.layer_scale.value_or(0);
  check(std::isfinite(layer_scale) && layer_scale >= 0, "model", "layer_scale: expected a number >= 0, got {}",
        layer_scale);
  check(options.norm_policy.placement != NormPlacement::inside, "norm policy",
        "placement: expected pre, post or peri for {}, got inside", name);
}

}  // namespace

std::string vit_norm_name(int branch, NormPlacement placement) {
  switch (placement) {
    case NormPlacement::post: return fmt::format("norm{}_post", branch);
    case NormPlacement::peri: return fmt::format("norm{}_in", branch);
    default: return fmt::format("norm{}", branch);
  }
}

VisionTransformer::VisionTransformer(const std::string& name, const VitConfig& config, const ModelOptions& options)
    : name_(name), image_size_(options.image_size.value_or(224)), pools_tokens_(options.global_pool == "avg") {
  const int64_t patch = options.patch_size.value_or(16);
  check_options(name, config, options, image_size_, patch);
  Generator generator(options.seed);
  Generator* const start_values = options.initialize ? &generator : nullptr;
  const auto norm_of = [&](const std::string& spec) {
    return nn::with_default(nn::parse_norm(spec), "eps", config.eps());
  };
  const Build build{.norm = norm_of(options.norm.empty() ? std::string(kVitNorm) : options.norm),
                    .qk_norm = options.qk_norm.empty() || options.qk_norm == "none"
                                   ? std::nullopt
                                   : std::optional(norm_of(options.qk_norm)),
                    .heads = config.heads,
                    .layer_scale = options.layer_scale.value_or(0),
                    .qkv_bias = options.qkv_bias,
                    .placement = options.norm_policy.placement.value_or(NormPlacement::pre),
                    .layers = {.generator = start_values}};

  const int64_t side = image_size_ / patch;
  cls_token_ = register_parameter("cls_token", zeros({1, 1, config.width}));
  pos_embed_ = register_parameter("pos_embed", zeros({1, 1 + side * side, config.width}));
  if (options.initialize) {
    normal_(cls_token_.detach(), /* mean= */ 0, kClassTokenDeviation, generator);
    nn::trunc_normal_(pos_embed_, kInitDeviation, generator);
  }
  patch_embed_ =
      register_module("patch_embed", std::make_shared<PatchEmbed>(config, patch, options, build.norm, generator));
  if (options.pos_drop > 0) {
    pos_drop_ = register_module("pos_drop", std::make_shared<nn::Dropout>(options.pos_drop));
  }
  if (config.pre_norm) {
    norm_pre_ = register_slot("norm_pre", make_norm(build.norm, config.width));
  }
  const auto blocks = register_module("blocks", std::make_shared<nn::Sequential>());
  blocks->set_grad_checkpointing(options.grad_checkpointing);
  for (int64_t i = 0; i < config.depth; ++i) {
    blocks->push_back(
        std::make_shared<TransformerBlock>(config.width, drop_path_rate(options.drop_path, i, config.depth), build));
  }
  blocks_ = blocks;
  const bool one_pixel_is_enough = !nn::norm_definition(build.norm.name).needs_pixels;
  norm_ =
      pools_tokens_
          ? register_slot("fc_norm",
                          make_norm(one_pixel_is_enough ? build.norm : norm_of(std::string(kVitNorm)), config.width),
                          {.one_pixel = true})
          : register_slot("norm", make_norm(build.norm, config.width));
  head_ = register_module(
      "head", std::make_shared<nn::Linear>(config.width, options.num_classes, nn::LinearOptions{.initialize = false}));
  if (options.initialize) {
    nn::trunc_normal_(head_->weight(), kInitDeviation, generator);
  }
}

Tensor VisionTransformer::forward(const Tensor& x) {
  check(x.rank() == 4 && x.size(2) == image_size_ && x.size(3) == image_size_, "model",
        "x: expected images of {0} x {0} pixels, as image_size of {1} says, got sizes {2}", image_size_, name_,
        x.sizes());
  const Tensor patches = channels_to_last(norma::to((*patch_embed_)(x), cls_token_.dtype()));  // autocast gives another
  // Zeros in the place of the class token, and its values among the positions: no op knows the number of images.
  const Tensor tokens = pad(view(patches, {x.size(0), -1, patches.size(3)}), {0, 1, 0}, {0, 0, 0});
  const Tensor positions = add(pos_embed_, pad(cls_token_, {0, 0, 0}, {0, pos_embed_.size(1) - 1, 0}));
  const Tensor placed = add(tokens, positions);
  Tensor y = channels_to_second(unsqueeze(pos_drop_ ? (*pos_drop_)(placed) : placed, 1));
  y = (*blocks_)(norm_pre_ ? (*norm_pre_)(y) : y);
  if (pools_tokens_) {
    y = (*norm_)(mean(narrow(y, 3, 1, y.size(3) - 1), {3}, {.keepdim = true}));
  } else {
    y = select((*norm_)(y), 3, 0);
  }
  return (*head_)(flatten(y, 1));
}

}  // namespace norma::models
