#include "models/registry.h"

#include "base/lists.h"
#include "base/nearest_name.h"
#include "models/convnext.h"
#include "models/resnet.h"
#include "models/vit.h"
#include "nn/conv.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

namespace norma::models {
namespace {

constexpr const char* kNormPlacement = "norm_placement";

enum class Family : uint8_t { resnet, convnext, vit };

/// The features that tell networks apart in their state dicts.
struct Outline {
  Family family = Family::resnet;
  bool variant = false;               // ResNet: bottlenecks; ConvNeXt: global response norms; ViT: norm_pre
  std::array<int64_t, 4> blocks{};    // of each stage; a ViT has one
  std::array<int64_t, 4> channels{};  // ConvNeXt and ViT: of each stage
  bool operator==(const Outline&) const = default;
};

struct Entry {
  std::string name;
  Outline outline;
  std::function<std::shared_ptr<nn::Module>(const std::string& name, const ModelOptions& options)> make;
  nn::NormDefaults norm_defaults;
  std::string own_norm;
  std::vector<std::string> options;  // as ModelDefinition::options
  std::optional<int64_t> usual_patch = {};
  bool registered = false;
};

/// Images with fewer pixels along an axis get smaller patches where none are asked for: the usual ones would leave
/// nothing of them.
constexpr int64_t kSmallImage = 64;

Entry entry(const std::string& name, const ResNetConfig& config) {
  return {name,
          {.variant = config.bottleneck, .blocks = config.layers},
          [config](const std::string& own_name, const ModelOptions& options) {
            return std::make_shared<ResNet>(own_name, config, options);
          },
          {},
          std::string(kResNetNorm),
          {"conv_layer", "small_stem", "zero_init_last", "drop_path", "grad_checkpointing"}};
}

Entry entry(const std::string& name, const ConvNeXtConfig& config) {
  return {name,
          {.family = Family::convnext, .variant = config.grn, .blocks = config.depths, .channels = config.widths},
          [config](const std::string& own_name, const ModelOptions& options) {
            return std::make_shared<ConvNeXt>(own_name, config, options);
          },
          {{"eps", std::string(kConvNeXtEps)}},
          std::string(kConvNeXtNorm),
          {"conv_layer", "patch_size", "layer_scale", "drop_path", "grad_checkpointing", kNormPlacement},
          4};
}

Entry entry(const std::string& name, const VitConfig& config) {
  return {name,
          {.family = Family::vit, .variant = config.pre_norm, .blocks = {config.depth}, .channels = {config.width}},
          [config](const std::string& own_name, const ModelOptions& options) {
            return std::make_shared<VisionTransformer>(own_name, config, options);
          },
          {{"eps", config.eps()}},
          std::string(kVitNorm),
          {"conv_layer", "patch_size", "layer_scale", "drop_path", "grad_checkpointing", "global_pool", "qk_norm",
           "qkv_bias", "pos_drop", kNormPlacement},
          16};
}

ConvNeXtConfig version_2(const std::array<int64_t, 4>& depths, const std::array<int64_t, 4>& widths,
                         bool conv_mlp = false) {
  return {.depths = depths, .widths = widths, .conv_mlp = conv_mlp, .grn = true};
}

std::deque<Entry>& entries() {
  static std::deque<Entry> all = {
      entry("resnet18", ResNetConfig{.bottleneck = false, .layers = {2, 2, 2, 2}}),
      entry("resnet34", ResNetConfig{.bottleneck = false, .layers = {3, 4, 6, 3}}),
      entry("resnet50", ResNetConfig{.bottleneck = true, .layers = {3, 4, 6, 3}}),
      entry("resnet101", ResNetConfig{.bottleneck = true, .layers = {3, 4, 23, 3}}),
      entry("resnet152", ResNetConfig{.bottleneck = true, .layers = {3, 8, 36, 3}}),
      entry("convnext_atto", ConvNeXtConfig{{2, 2, 6, 2}, {40, 80, 160, 320}, /* conv_mlp= */ true}),
      entry("convnext_femto", ConvNeXtConfig{{2, 2, 6, 2}, {48, 96, 192, 384}, /* conv_mlp= */ true}),
      entry("convnext_pico", ConvNeXtConfig{{2, 2, 6, 2}, {64, 128, 256, 512}, /* conv_mlp= */ true}),
      entry("convnext_nano", ConvNeXtConfig{{2, 2, 8, 2}, {80, 160, 320, 640}, /* conv_mlp= */ true}),
      entry("convnext_tiny", ConvNeXtConfig{{3, 3, 9, 3}, {96, 192, 384, 768}}),
      entry("convnext_small", ConvNeXtConfig{{3, 3, 27, 3}, {96, 192, 384, 768}}),
      entry("convnext_base", ConvNeXtConfig{{3, 3, 27, 3}, {128, 256, 512, 1024}}),
      entry("convnext_large", ConvNeXtConfig{{3, 3, 27, 3}, {192, 384, 768, 1536}}),
      entry("convnext_xlarge", ConvNeXtConfig{{3, 3, 27, 3}, {256, 512, 1024, 2048}}),
      entry("convnextv2_atto", version_2({2, 2, 6, 2}, {40, 80, 160, 320}, /* conv_mlp= */ true)),
      entry("convnextv2_femto", version_2({2, 2, 6, 2}, {48, 96, 192, 384}, /* conv_mlp= */ true)),
      entry("convnextv2_pico", version_2({2, 2, 6, 2}, {64, 128, 256, 512}, /* conv_mlp= */ true)),
      entry("convnextv2_nano", version_2({2, 2, 8, 2}, {80, 160, 320, 640}, /* conv_mlp= */ true)),
      entry("convnextv2_tiny", version_2({3, 3, 9, 3}, {96, 192, 384, 768})),
      entry("convnextv2_small", version_2({3, 3, 27, 3}, {96, 192, 384, 768})),
      entry("convnextv2_base", version_2({3, 3, 27, 3}, {128, 256, 512, 1024})),
      entry("convnextv2_large", version_2({3, 3, 27, 3}, {192, 384, 768, 1536})),
      entry("convnextv2_huge", version_2({3, 3, 27, 3}, {352, 704, 1408, 2816})),
      entry("vit_tiny", VitConfig{.width = 192, .heads = 3}),
      entry("vit_small", VitConfig{.width = 384, .heads = 6}),
      entry("vit_base", VitConfig{.width = 768, .heads = 12}),
      entry("vit_base_clip", VitConfig{.width = 768, .heads = 12, .pre_norm = true}),
  };
  return all;
}

/// timm's name of a ViT, "vit_tiny_patch16_224".
struct TimmName {
  std::string network;
  int64_t patch = 0;
  int64_t image = 0;
};

std::optional<TimmName> timm_name(const std::string& name) {
  for (const std::string pattern :
       {"vit_%5[a-z]_patch%4d_%4d%n", "deit_%5[a-z]_patch%4d_%4d%n", "vit_%5[a-z]_patch%4d_clip_%4d%n"}) {
    std::array<char, 6> size{};
    int patch = 0;
    int image = 0;
    int length = 0;
    if (std::sscanf(name.c_str(), pattern.c_str(), size.data(), &patch, &image, &length) == 3 &&
        static_cast<size_t>(length) == name.size() && patch > 0 && image > 0) {
      const char* const clip = pattern.find("clip") != std::string::npos ? "_clip" : "";
      TimmName found{.network = fmt::format("vit_{}{}", size.data(), clip), .patch = patch, .image = image};
      return is_in(entries(), found.network, &Entry::name) ? std::optional(found) : std::nullopt;
    }
  }
  return {};
}

const Entry& find(const std::string& name) {
  const std::string network = network_of(name);
  for (const Entry& known : entries()) {
    if (known.name == network) {
      return known;
    }
  }
  fail("model", "{}", unknown_name("model", name, model_names()));
}

bool takes(const Entry& entry, std::string_view option) {
  return is_in(entry.options, option);
}

/// Throws Error for a set option that the network does not have.
void check_options(const Entry& entry, const ModelOptions& options) {
  const ModelOptions none;
  for (const auto& [name, set] : {std::pair<const char*, bool>{"conv_layer", options.conv_layer != none.conv_layer},
                                  {"small_stem", options.small_stem},
                                  {"patch_size", options.patch_size.has_value()},
                                  {"zero_init_last", options.zero_init_last},
                                  {"layer_scale", options.layer_scale.has_value()},
                                  {"drop_path", options.drop_path > 0},
                                  {"grad_checkpointing", options.grad_checkpointing},
                                  {"global_pool", !options.global_pool.empty()},
                                  {"qk_norm", !options.qk_norm.empty() && options.qk_norm != "none"},
                                  {"qkv_bias", !options.qkv_bias},
                                  {"pos_drop", options.pos_drop > 0}}) {
    check(!set || takes(entry, name), "model", "{} has no option {}", entry.name, name);
  }
}

/// Throws Error for a placement of norms, even the usual one, in a network that has no choice.
void check_placement(const Entry& entry, const nn::NormPolicy& policy) {
  check(takes(entry, kNormPlacement) || !policy.placement, "norm policy",
        "{}placement: expected a network that can place its norms, such as convnext_tiny, got {}",
        policy.source.empty() ? "" : fmt::format("{}:{}: ", policy.source, policy.placement_line), entry.name);
}

}  // namespace

void register_model(const std::string& name, ModelDefinition definition) {
  check(!name.empty(), "register_model", "name: expected a text, got an empty one");
  check(!is_in(entries(), name, &Entry::name), "register_model", "name: '{}' is taken", name);
  check(definition.make != nullptr, "register_model", "make: expected a function, got none");
  nn::parse_norm(definition.own_norm);
  std::vector<std::string> known;  // what some network of ours takes
  for (const Entry& entry : entries()) {
    known.insert(known.end(), entry.options.begin(), entry.options.end());
  }
  for (const std::string& option : definition.options) {
    check(is_in(known, option), "register_model", "options: {}", unknown_name("option", option, known));
  }
  const auto make = [make = std::move(definition.make), norm = definition.own_norm](const std::string& /*name*/,
                                                                                    const ModelOptions& given) {
    ModelOptions options = given;
    options.norm = given.norm.empty() ? norm : given.norm;
    std::shared_ptr<nn::Module> model = make(options);
    check(model != nullptr, "model", "make: expected a network, got none");
    return model;
  };
  entries().push_back({.name = name,
                       .outline = {},
                       .make = make,
                       .norm_defaults = {},
                       .own_norm = std::move(definition.own_norm),
                       .options = std::move(definition.options),
                       .registered = true});
}

std::string network_of(const std::string& name) {
  const std::optional<TimmName> of_timm = timm_name(name);
  return of_timm ? of_timm->network : name;
}

std::optional<int64_t> image_size_in(const std::string& name) {
  const std::optional<TimmName> of_timm = timm_name(name);
  return of_timm ? std::optional(of_timm->image) : std::nullopt;
}

bool is_built_in(const std::string& name) {
  return std::ranges::any_of(entries(),
                             [&](const Entry& known) { return known.name == network_of(name) && !known.registered; });
}

bool model_takes(const std::string& name, std::string_view option) {
  return takes(find(name), option);
}

std::shared_ptr<nn::Module> create_model(const std::string& name, const ModelOptions& given) {
  ModelOptions options = given;
  if (const std::optional<TimmName> of_timm = timm_name(name)) {
    options.patch_size = given.patch_size.value_or(of_timm->patch);
    options.image_size = given.image_size.value_or(of_timm->image);
  }
  check(options.num_classes > 0, "model", "num_classes: expected a positive number, got {}", options.num_classes);
  check(options.in_channels > 0, "model", "in_channels: expected a positive number, got {}", options.in_channels);
  check(options.drop_path >= 0 && options.drop_path < 1, "model", "drop_path: expected a value in [0, 1), got {}",
        options.drop_path);
  check(options.pos_drop >= 0 && options.pos_drop < 1, "model", "pos_drop: expected a value in [0, 1), got {}",
        options.pos_drop);
  nn::check_conv_layer(options.conv_layer);
  const Entry& entry = find(name);
  if (entry.registered) {
    check_options(entry, options);
  }
  check_placement(entry, options.norm_policy);
  const std::shared_ptr<nn::Module> model = entry.make(name, options);
  check_options(entry, options);  // after the constructor, whose texts say more
  if (!options.norm_policy.rules.empty()) {
    nn::apply_norm_policy(*model, options.norm_policy, entry.norm_defaults);
  }
  return model;
}

std::string recognize_model(const nn::NamedTensors& tensors) {
  Outline outline;
  bool has_norm_pre = false;  // of a ViT; timm's ConvNeXts may have one, too
  for (const auto& [name, x] : tensors) {
    has_norm_pre = has_norm_pre || name.starts_with("norm_pre.");
    size_t stage = 0;
    size_t block = 0;
    int length = 0;  // of the matched text
    if (std::sscanf(name.c_str(), "layer%1zu.%3zu.%n", &stage, &block, &length) == 2 && length > 0 && stage >= 1 &&
        stage <= outline.blocks.size()) {
      --stage;
      outline.variant = outline.variant || name.find(".conv3.") != std::string::npos;
    } else if (std::sscanf(name.c_str(), "stages.%1zu.blocks.%3zu.%n", &stage, &block, &length) == 2 && length > 0 &&
               stage < outline.blocks.size()) {
      outline.family = Family::convnext;
      outline.variant = outline.variant || name.find(".grn.") != std::string::npos;
      if (name.ends_with(".conv_dw.weight") && x.numel() > 0 && x.rank() > 0) {
        outline.channels[stage] = x.size(0);
      }
    } else if (std::sscanf(name.c_str(), "blocks.%3zu.%n", &block, &length) == 1 && length > 0) {
      outline.family = Family::vit;
      stage = 0;
      if (name.ends_with(".attn.proj.weight") && x.numel() > 0 && x.rank() > 0) {
        outline.channels[stage] = x.size(0);
      }
    } else {
      continue;
    }
    outline.blocks[stage] = std::max(outline.blocks[stage], static_cast<int64_t>(block) + 1);
  }
  outline.variant = outline.variant || (outline.family == Family::vit && has_norm_pre);
  for (const Entry& known : entries()) {
    if (!known.registered && known.outline == outline) {
      return known.name;
    }
  }
  return "";
}

std::optional<int64_t> default_patch_size(const std::string& name, int64_t image_size) {
  if (const std::optional<TimmName> of_timm = timm_name(name)) {
    return of_timm->patch;
  }
  const Entry& known = find(name);
  if (takes(known, "patch_size") && image_size < kSmallImage) {
    return known.outline.family == Family::vit ? 4 : 2;
  }
  return known.usual_patch;
}

void check_image_size(std::string_view op, const std::string& name, int64_t image_size, int64_t patch_size) {
  const Entry& entry = find(name);
  if (!entry.usual_patch) {
    return;
  }
  if (entry.outline.family == Family::vit) {
    check(image_size % patch_size == 0, op, "img-size: expected a multiple of the patch-size {} of {}, got {}",
          patch_size, name, image_size);
    return;
  }
  constexpr int64_t kHalvings = 3;  // one before each stage but the first
  const int64_t least = patch_size << kHalvings;
  check(image_size >= least, op, "img-size: expected at least {} for {} with a patch-size of {}, got {}", least, name,
        patch_size, image_size);
}

std::optional<nn::NormPlacement> recognize_norm_placement(const nn::NamedTensors& tensors) {
  for (const nn::NormPlacement placement : nn::kNormPlacements) {
    const std::string convnext = fmt::format(".{}.", convnext_norm_name(placement));
    const std::string vit = fmt::format(".{}.", vit_norm_name(1, placement));
    const bool is_vit = placement != nn::NormPlacement::inside;
    if (std::ranges::any_of(tensors, [&](const auto& tensor) {
          const std::string& name = tensor.first;
          return (name.starts_with("stages.") && name.find(convnext) != std::string::npos) ||
                 (is_vit && name.starts_with("blocks.") && name.find(vit) != std::string::npos);
        })) {
      return placement;
    }
  }
  return std::nullopt;
}

nn::NormChoice complete_norm(const std::string& name, const std::string& spec) {
  const Entry& entry = find(name);
  nn::NormChoice choice = nn::parse_norm(spec.empty() ? entry.own_norm : spec);
  for (const auto& [option, value] : entry.norm_defaults) {
    choice = nn::with_default(std::move(choice), option, value);
  }
  return nn::complete_choice(choice);
}

std::string own_norm(const std::string& name) {
  return find(name).own_norm;
}

std::vector<std::string> model_names() {
  return mapped(entries(), &Entry::name);
}

}  // namespace norma::models
