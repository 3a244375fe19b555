#include "export/torch.h"

#include "base/error.h"
#include "base/lists.h"
#include "core/version.h"
#include "models/state_dict_names.h"
#include "models/vit.h"
#include "nn/norm/factory.h"
#include "ops/shape/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <regex>
#include <set>

namespace norma {

namespace {

constexpr const char* kOp = "export_torch";

using nn::NormChoice;

constexpr const char* kDynamicTanh = R"(class DynamicTanh(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha, self.weight, self.bias = (nn.Parameter(torch.ones(size)) for size in (1, channels, channels))

    def forward(self, x):
        return torch.tanh(self.alpha * x) * self.weight[:, None, None] + self.bias[:, None, None]
)";

constexpr const char* kDynamicErf = R"(class DynamicErf(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return torch.erf(self.alpha * x + self.shift) * self.weight[:, None, None] + self.bias[:, None, None]
)";

constexpr const char* kSeedNorm = R"(class SeedNorm(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.eps = eps
        self.weight, self.alpha, self.beta = (nn.Parameter(torch.ones(channels)) for _ in range(3))

    def forward(self, x):
        weight, alpha, beta = (p[:, None, None] for p in (self.weight, self.alpha, self.beta))
        scale = weight + torch.tanh((x * beta).sum(1, keepdim=True)) * alpha
        return scale * x * torch.rsqrt(x.square().mean(1, keepdim=True) + self.eps)
)";

/// ", name=value" unless the value is `otherwise`, PyTorch's.
std::string argument(const NormChoice& norm, const std::string& name, const std::string& otherwise) {
  const auto found = norm.options.find(name == "elementwise_affine" ? "affine" : name);
  if (found == norm.options.end() || found->second.empty() || found->second == otherwise) {
    return "";
  }
  const std::string& value = found->second;
  const std::string text = value == "true" ? "True" : value == "false" ? "False" : value == "none" ? "None" : value;
  return fmt::format(", {}={}", name, text);
}

std::string groups(const NormChoice& norm) {
  return norm.groups               ? fmt::format("{}", *norm.groups)
         : norm.channels_per_group ? fmt::format("channels // {}", *norm.channels_per_group)
                                   : "max(n for n in range(1, 33) if channels % n == 0)";
}

/// The layer of a norm in Python.
struct PythonNorm {
  const char* name;
  const char* call;             ///< makes it for `channels`; {name} is an option, {name=X} an argument unless it is X
  const char* import = "";      ///< a line that imports what `call` names
  const char* definition = "";  ///< of a class that `call` names
};

constexpr const char* kBatchNorm =
    "nn.BatchNorm2d(channels{eps=}{momentum=0.1}{affine=true}{track_running_stats=true})";
// add_token_norm() makes the classes of these fit tokens, too.
constexpr PythonNorm kDyt{"dyt", "DynamicTanh(channels)", "", kDynamicTanh};
constexpr PythonNorm kDerf{"derf", "DynamicErf(channels)", "", kDynamicErf};
constexpr PythonNorm kSeed{"seednorm", "SeedNorm(channels{eps=})", "", kSeedNorm};
constexpr PythonNorm kNone{"none", "nn.Identity()"};

constexpr std::array kPythonNorms = {
    PythonNorm{"batch", kBatchNorm},
    PythonNorm{"sync_batch", kBatchNorm},
    PythonNorm{"ghost_batch", kBatchNorm},
    PythonNorm{"batch_renorm", kBatchNorm},
    PythonNorm{"frozen_batch", "FrozenBatchNorm2d(channels{eps=})", "from torchvision.ops import FrozenBatchNorm2d"},
    PythonNorm{"instance", "nn.InstanceNorm2d(channels{eps=}{momentum=0.1}{affine=false}{track_running_stats=false})"},
    PythonNorm{"group", "nn.GroupNorm({groups}, channels{eps=}{affine=true})"},
    PythonNorm{"layer2d", "LayerNorm2d(channels{eps=}{affine=true})", "from timm.layers import LayerNorm2d"},
    PythonNorm{"rms2d", "RmsNorm2d(channels{eps=}{affine=true})", "from timm.layers import RmsNorm2d"},
    PythonNorm{"simple2d", "SimpleNorm2d(channels{eps=}{affine=true})", "from timm.layers import SimpleNorm2d"},
    PythonNorm{"evonorm_b0", "EvoNorm2dB0(channels{eps=}{momentum=0.1})", "from timm.layers import EvoNorm2dB0"},
    PythonNorm{"evonorm_s0", "EvoNorm2dS0(channels, groups={groups}{eps=})", "from timm.layers import EvoNorm2dS0"},
    PythonNorm{"frn", "FilterResponseNormTlu2d(channels{eps=})", "from timm.layers import FilterResponseNormTlu2d"},
    PythonNorm{"grn", "GlobalResponseNorm(channels{eps=}, channels_last=False)",
               "from timm.layers.grn import GlobalResponseNorm"},
    PythonNorm{"local_response", "nn.LocalResponseNorm({size}{alpha=}{beta=}{k=})"},
    kDyt,
    kDerf,
    kSeed,
    kNone};

/// The layers for tokens, (N, L, C), normalize over C.
constexpr std::array kTokenNorms = {
    PythonNorm{"layer2d", "nn.LayerNorm(channels{eps=}{elementwise_affine=true})"},
    PythonNorm{"rms2d", "nn.RMSNorm(channels{eps=}{elementwise_affine=true})"},
    PythonNorm{"simple2d", "SimpleNorm(channels{eps=}{affine=true})", "from timm.layers import SimpleNorm"},
    kDyt,
    kDerf,
    kSeed,
    kNone};

std::string call_of(const PythonNorm& layer, const NormChoice& norm) {
  static const std::regex slot(R"(\{(\w+)(=?)([^}]*)\})");
  std::string call = layer.call;
  for (std::smatch found; std::regex_search(call, found, slot);) {
    const std::string name = found[1];
    const std::string value = found[2].length() > 0 ? argument(norm, name, found[3])
                              : name == "groups"    ? groups(norm)
                                                    : norm.options.at(name);
    call.replace(static_cast<size_t>(found.position()), static_cast<size_t>(found.length()), value);
  }
  return call;
}

/// What the program is made of.
struct Parts {
  std::set<std::string> imports = {"import torch", "from safetensors.torch import load_file"};
  std::vector<std::string> definitions = {};
  std::vector<std::string> arguments = {};   // of the function that builds the network
  std::vector<std::string> statements = {};  // on the built network
  std::string notes = {};                    // of the program's documentation
};

bool is_resnet(const std::string& name) {
  return name.starts_with("resnet");
}

bool is_vit(const std::string& name) {
  return models::network_of(name).starts_with("vit_");
}

bool torchvision_has(const std::string& name) {
  static const std::set<std::string> convnexts = {"convnext_tiny", "convnext_small", "convnext_base", "convnext_large"};
  return is_resnet(name) || convnexts.contains(name);
}

Tensor tensor_of(const nn::NamedTensors& state, const std::string& name) {
  const auto found = std::ranges::find_if(state, [&](const auto& entry) { return entry.first == name; });
  return found == state.end() ? Tensor() : found->second;
}

/// Neither library has a zero-centred weight, or RMS norms of groups.
bool has_plain_weight(const NormChoice& norm) {
  return !norm.flag("offset", false) && norm.count("groups", 1) == 1;
}

/// A function `name` of Python that makes a norm whose choice has all options (models::complete_norm()), with what it
/// needs: its class is `definition`, unless that is empty.
void add_layer(Parts& parts, const std::string& name, const NormChoice& norm, const PythonNorm& layer,
               const std::string& definition) {
  const std::string call = call_of(layer, norm);
  if (*layer.import != '\0') {
    parts.imports.insert(layer.import);
  }
  if (call.starts_with("nn.") || !definition.empty()) {
    parts.imports.insert("from torch import nn");
  }
  if (!definition.empty()) {
    add_once(parts.definitions, definition);
  }
  if (layer.call == kBatchNorm && norm.name != "batch") {
    parts.notes = fmt::format(
        "\n\nIt evaluates as in Norma. In training, {} is another norm than PyTorch's batch norm.\n", norm.name);
  }
  const bool drops_bias = norm.flag("affine", true) && !norm.flag("bias", true);
  parts.definitions.push_back(
      drops_bias
          ? fmt::format("def {}(channels, **_):\n    layer = {}\n    layer.bias = None\n    return layer\n", name, call)
          : fmt::format("def {}(channels, **_):\n    return {}\n", name, call));
}

/// add_layer() for images. Throws Error for a norm that neither PyTorch, torchvision nor timm has.
void add_norm(Parts& parts, const std::string& name, const NormChoice& norm) {
  const auto* const layer = std::ranges::find(kPythonNorms, norm.name, &PythonNorm::name);
  check(layer != kPythonNorms.end(), kOp, "norm: expected one that PyTorch, torchvision or timm has, got {}",
        norm.name);
  check(has_plain_weight(norm), kOp, "norm: {}: expected offset=false and one group, as in timm's layer, got {}",
        norm.name, to_string(norm));
  check(norm.name != "ghost_batch" || norm.flag("track_running_stats", true), kOp,
        "norm: ghost_batch: expected running statistics, since PyTorch has no ghost batches, got none");
  add_layer(parts, name, norm, *layer, layer->definition);
}

/// add_layer() for tokens. Throws Error, with the norm's place in the network, for a norm that neither PyTorch nor timm
/// has for them.
void add_token_norm(Parts& parts, const std::string& name, const NormChoice& norm, std::string_view place) {
  const auto* const layer = std::ranges::find(kTokenNorms, norm.name, &PythonNorm::name);
  check(
      layer != kTokenNorms.end(), kOp,
      "{}: expected layer2d, rms2d, simple2d, dyt, derf, seednorm or none, as PyTorch and timm have no other layer for "
      "tokens, got {}",
      place, to_string(norm));
  check(has_plain_weight(norm), kOp,
        "{}: {}: expected offset=false and one group, as in PyTorch's and timm's layers, got {}", place, norm.name,
        to_string(norm));
  std::string definition = std::regex_replace(layer->definition, std::regex(R"(\[:, None, None\])"), "");
  definition = std::regex_replace(definition, std::regex(R"(\(1, keepdim)"), "(-1, keepdim");
  add_layer(parts, name, norm, *layer, definition);
}

/// Throws Error for what no argument of either library can say.
void check_expressible(const std::string& name, const models::ModelOptions& options, const nn::NamedTensors& state,
                       TorchLibrary library) {
  const bool is_known = is_resnet(name) || is_vit(name) || name.starts_with("convnext");
  check(is_known && models::recognize_model(state) == models::network_of(name), kOp,
        "model: expected a network of {}, got {}", to_string(library), name);
  check(options.conv_layer == "conv", kOp,
        "conv_layer: expected conv, as neither timm nor torchvision has a choice, got {}", options.conv_layer);
  for (const nn::NormRule& rule : options.norm_policy.rules) {
    check(is_vit(name), kOp, "norm_policy: expected none, as timm and torchvision have one norm for all layers");
    check(rule.pattern == models::kPatchNorm, kOp,
          "norm_policy: expected no norm but that of {}, as timm has one for all other layers, got \"{}\" = \"{}\"",
          models::kPatchNorm, rule.pattern, rule.norm);
  }
  const nn::NormPlacement usual = is_vit(name) ? nn::NormPlacement::pre : nn::NormPlacement::inside;
  const nn::NormPlacement placement = options.norm_policy.placement.value_or(usual);
  check(placement == usual, kOp, "norm_policy: placement: expected {}, as timm and torchvision have no other, got {}",
        nn::to_string(usual), nn::to_string(placement));
  if (library == TorchLibrary::torchvision) {
    check(torchvision_has(name), kOp, "model: expected a network of torchvision, got {}; timm has it", name);
    check(options.in_channels == 3, kOp,
          "in_channels: expected 3, as torchvision's networks have, got {}; timm takes others", options.in_channels);
  }
}

void write_resnet(Parts& parts, const models::ModelOptions& options, bool own_norm, const nn::NormChoice& norm) {
  if (!own_norm) {
    add_norm(parts, "norm", norm);
    parts.arguments.emplace_back("norm_layer=norm");
  }
  if (options.small_stem) {
    parts.imports.insert("from torch import nn");
    parts.statements.push_back(
        fmt::format("model.conv1 = nn.Conv2d({}, 64, 3, padding=1, bias=False)", options.in_channels));
    parts.statements.emplace_back("model.maxpool = nn.Identity()");
  }
}

/// Patches of another size than 4. With timm's patch_size=2, stage 0 would halve the image, too.
void write_stem(Parts& parts, const nn::NamedTensors& state, const std::string& place) {
  const Tensor stem = tensor_of(state, "stem.0.weight");
  if (stem.size(2) != 4) {
    parts.imports.insert("from torch import nn");
    parts.statements.push_back(
        fmt::format("{} = nn.Conv2d({}, {}, {}, {})", place, stem.size(1), stem.size(0), stem.size(2), stem.size(2)));
  }
}

/// timm's ConvNeXt takes a norm of NCHW only with convolutions in its MLPs, whose weights have two axes more.
nn::NamedTensors with_conv_mlp(const nn::NamedTensors& state) {
  nn::NamedTensors result;
  for (const auto& [name, x] : state) {
    const bool is_product = (name.ends_with(".mlp.fc1.weight") || name.ends_with(".mlp.fc2.weight")) && x.rank() == 2;
    result.emplace_back(name, is_product ? reshape(x, {x.size(0), x.size(1), 1, 1}) : x);
  }
  return result;
}

void write_timm_convnext(Parts& parts, const nn::NamedTensors& state, const std::string& name, bool own_norm,
                         const nn::NormChoice& norm) {
  write_stem(parts, state, "model.stem[0]");
  const bool scaled = tensor_of(state, "stages.0.blocks.0.gamma").defined();
  if (scaled && name.starts_with("convnextv2")) {
    parts.arguments.emplace_back("ls_init_value=1e-6");
  } else if (!scaled && !name.starts_with("convnextv2")) {  // create_model() drops arguments that are None
    parts.statements.emplace_back(
        "for stage in model.stages:\n        for block in stage.blocks:\n            block.gamma = None");
  }
  if (own_norm) {
    return;
  }
  add_norm(parts, "norm", norm);
  parts.arguments.emplace_back("norm_layer=norm");
  parts.arguments.emplace_back("conv_mlp=True");
  if (nn::norm_definition(norm.name).needs_pixels) {  // one pixel leaves nothing to normalize
    const nn::NormChoice head = nn::complete_choice(nn::parse_norm("layer2d"));
    add_norm(parts, "head_norm", head);
    parts.statements.push_back(
        fmt::format("model.head.norm = head_norm({})", tensor_of(state, "head.fc.weight").size(1)));
  }
}

void write_timm_vit(Parts& parts, const std::string& name, const models::ModelOptions& options,
                    const nn::NamedTensors& state, bool own_norm, const nn::NormChoice& norm) {
  if (!own_norm) {
    add_token_norm(parts, "norm", norm, "norm: blocks.*.norm1");
    parts.arguments.emplace_back("norm_layer=norm");
  }
  if (const std::vector<nn::NormRule>& rules = options.norm_policy.rules; !rules.empty()) {
    add_token_norm(parts, "patch_norm", models::complete_norm(name, rules.back().norm),
                   fmt::format("norm_policy: {}", models::kPatchNorm));
    parts.arguments.emplace_back("embed_norm_layer=patch_norm");
  }
  const int64_t patch = tensor_of(state, "patch_embed.proj.weight").size(2);
  const auto patches = static_cast<double>(tensor_of(state, "pos_embed").size(1) - 1);
  parts.arguments.push_back(fmt::format("img_size={}", patch * std::lround(std::sqrt(patches))));
  parts.arguments.push_back(fmt::format("patch_size={}", patch));
  if (options.global_pool == "avg" || tensor_of(state, "fc_norm.weight").defined()) {  // a norm may have no weight
    parts.arguments.emplace_back("global_pool=\"avg\"");
  }
  if (tensor_of(state, "blocks.0.ls1.gamma").defined()) {
    parts.arguments.emplace_back("init_values=1e-5");
  }
  if (!tensor_of(state, "blocks.0.attn.qkv.bias").defined()) {
    parts.arguments.emplace_back("qkv_bias=False");
  }
  if (options.qk_norm.empty() ? !tensor_of(state, "blocks.0.attn.q_norm.weight").defined()
                              : options.qk_norm == "none") {
    return;
  }
  const bool has_bias = tensor_of(state, "blocks.0.attn.q_norm.bias").defined();  // options may leave the norm open
  const std::string qk_norm = !options.qk_norm.empty() ? options.qk_norm : has_bias ? "layer2d" : "rms2d";
  const NormChoice qk = models::complete_norm(name, qk_norm);
  if (qk == norm) {
    parts.arguments.emplace_back("qk_norm=True");
    return;
  }
  add_token_norm(parts, "qk_norm", qk, "qk_norm: blocks.*.attn.q_norm");
  parts.statements.emplace_back(
      "for block in model.blocks:\n        for key in (\"q_norm\", \"k_norm\"):\n            "
      "setattr(block.attn, key, qk_norm(block.attn.head_dim))");
  if (options.qk_norm.empty()) {
    parts.notes += "\n\nThe weights alone do not say which norm without a bias their q_norm is: here it is RMS norm.\n";
  }
}

nn::NamedTensors write_torchvision_convnext(Parts& parts, const nn::NamedTensors& state, bool own_norm,
                                            const nn::NormChoice& norm) {
  check(own_norm, kOp,
        "norm: expected layer2d, which torchvision's ConvNeXt has in its blocks, got {}; timm takes others",
        nn::to_string(norm));
  check(tensor_of(state, "stages.0.blocks.0.gamma").defined(), kOp,
        "layer_scale: expected one, which torchvision's ConvNeXt has, got none; timm leaves it out");
  write_stem(parts, state, "model.features[0][0]");
  return models::renamed(state, models::Dialect::torchvision);
}

std::string program_of(const Parts& parts, const std::string& title, const std::string& call, double limit) {
  std::string text = fmt::format("\"\"\"{}.{}\"\"\"\n\nimport pathlib\n\n", title, parts.notes);
  text += fmt::format("{}\n\nFOLDER = pathlib.Path(__file__).parent\n\n\n", fmt::join(parts.imports, "\n"));
  for (const std::string& definition : parts.definitions) {
    text += definition + "\n\n";
  }
  text += fmt::format("def network():\n    model = {}\n", call);
  for (const std::string& statement : parts.statements) {
    text += fmt::format("    {}\n", statement);
  }
  text += fmt::format(R"(    model.load_state_dict(load_file(FOLDER / "weights.safetensors"), strict=True)
    return model.eval()


if __name__ == "__main__":
    example = load_file(FOLDER / "example.safetensors")
    with torch.no_grad():
        difference = network()(example["input"]) - example["output"]
    error = (difference.square().mean() / example["output"].square().mean()).sqrt().item()
    assert error <= {0:.2g}, f"expected an error of at most {0:.2g}, got {{error:.2g}}"
    print(f"PyTorch {{torch.__version__}} computes what Norma does: error {{error:.2g}}")
)",
                      limit);
  return text;
}

}  // namespace

const char* to_string(TorchLibrary library) {
  return library == TorchLibrary::timm ? "timm" : "torchvision";
}

TorchNetwork export_torch(const std::string& name, const models::ModelOptions& options, const nn::NamedTensors& state,
                          TorchLibrary library, double limit, const std::map<std::string, std::string>& about) {
  check_expressible(name, options, state, library);
  const nn::NormChoice norm = models::complete_norm(name, options.norm);
  const bool own_norm = norm == models::complete_norm(name, "");
  const bool timm = library == TorchLibrary::timm;
  Parts parts;
  std::string constants;
  for (const auto& [key, json] : about) {
    std::string constant = key;
    std::ranges::transform(key, constant.begin(), [](unsigned char c) { return std::toupper(c); });
    constants += fmt::format("{} = {}\n", constant, json);
  }
  if (!constants.empty()) {
    parts.definitions.push_back(constants);
  }
  parts.imports.insert(timm ? "import timm" : "import torchvision");
  nn::NamedTensors weights = state;
  const Tensor head = tensor_of(state, is_resnet(name) ? "fc.weight" : is_vit(name) ? "head.weight" : "head.fc.weight");
  parts.arguments.push_back(fmt::format("num_classes={}", head.size(0)));
  if (options.in_channels != 3) {
    parts.arguments.push_back(fmt::format("in_chans={}", options.in_channels));
  }
  if (is_resnet(name)) {
    write_resnet(parts, options, own_norm, norm);
  } else if (is_vit(name)) {
    write_timm_vit(parts, name, options, state, own_norm, norm);
  } else if (timm) {
    write_timm_convnext(parts, state, name, own_norm, norm);
    weights = own_norm ? state : with_conv_mlp(state);
  } else {
    weights = write_torchvision_convnext(parts, state, own_norm, norm);
  }
  const std::string arguments = fmt::format("{}", fmt::join(parts.arguments, ", "));
  const std::string network = models::network_of(name);
  const std::string timm_name = network == "vit_base_clip" ? "vit_base_patch16_clip_224"
                                : is_vit(name)             ? network + "_patch16_224"
                                                           : name;
  const std::string call = timm ? fmt::format("timm.create_model(\"{}\", {})", timm_name, arguments)
                                : fmt::format("torchvision.models.{}({})", name, arguments);
  const std::string title = fmt::format("{}{} by Norma {} for {}", name, own_norm ? "" : " with norm " + options.norm,
                                        version(), to_string(library));
  return {.weights = weights, .program = program_of(parts, title, call, limit)};
}

}  // namespace norma
