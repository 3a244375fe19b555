#include "models/vit.h"
#include "core/tape.h"
#include "error_text.h"
#include "models/parameter_depths.h"
#include "models/registry.h"
#include "models/state_dict_names.h"
#include "nn/norm/policy.h"
#include "nn/optim/optimizer.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace norma;
using namespace norma::models;
using norma::test::error_of;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

constexpr VitConfig kSmall{.width = 12, .heads = 3, .depth = 2};
constexpr VitConfig kSmallClip{.width = 12, .heads = 3, .depth = 2, .pre_norm = true};

ModelOptions small_options() {
  return {.num_classes = 3, .in_channels = 2, .patch_size = 4, .image_size = 8, .seed = 1};
}

ModelOptions placed(const std::string& placement) {
  ModelOptions options = small_options();
  options.norm_policy = nn::parse_norm_policy("placement = \"" + placement + "\"\n", "p.toml");
  return options;
}

std::shared_ptr<VisionTransformer> small_vit(const ModelOptions& options, const VitConfig& config = kSmall) {
  const auto model = std::make_shared<VisionTransformer>("vit", config, options);
  model->to(DType::float64);
  return model;
}

// sin(0.7 i + k) for element i in row-major order.
Tensor waves(const Sizes& sizes, double k) {
  std::vector<double> values(static_cast<size_t>(sizes.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(0.7 * static_cast<double>(i) + k);
  }
  return from_vector<double>(values, sizes);
}

void fill_with_waves(nn::Module& model) {
  int k = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const bool of_norm =
        name.ends_with("norm.weight") || name.ends_with("norm1.weight") || name.ends_with("norm2.weight");
    copy_into(add(mul(waves(parameter.sizes(), k++), 0.3), of_norm ? 1.0 : 0.0).detach(), parameter);
  }
}

double product(const Tensor& a, const Tensor& b) {
  return sum(mul(a, b)).item<double>();
}

// A block's tensors by name.
using Parts = std::map<std::string, Tensor>;

// Tokens (N, L, C) normalized over C, in plain ops.
Tensor norm(const Tensor& x, const Parts& parts, const std::string& name) {
  const Tensor centred = sub(x, mean(x, {-1}, {.keepdim = true}));
  const Tensor variance = mean(mul(centred, centred), {-1}, {.keepdim = true});
  return add(mul(mul(centred, rsqrt(add(variance, 1e-6))), parts.at(name + ".weight")), parts.at(name + ".bias"));
}

Tensor product(const Tensor& x, const Parts& parts, const std::string& name) {
  return add(matmul(x, transpose(parts.at(name + ".weight"), 0, 1)), parts.at(name + ".bias"));
}

Tensor attention(const Tensor& x, const Parts& parts) {
  const int64_t head = x.size(2) / kSmall.heads;
  const Tensor qkv =
      permute(reshape(product(x, parts, "attn.qkv"), {x.size(0), x.size(1), 3, kSmall.heads, head}), {2, 0, 3, 1, 4});
  Tensor q = select(qkv, 0, 0);
  Tensor k = select(qkv, 0, 1);
  if (parts.contains("attn.q_norm.weight")) {
    q = norm(q, parts, "attn.q_norm");
    k = norm(k, parts, "attn.k_norm");
  }
  const Tensor shares = softmax(mul(matmul(q, transpose(k, 2, 3)), 1 / std::sqrt(static_cast<double>(head))), -1);
  const Tensor y = reshape(transpose(matmul(shares, select(qkv, 0, 2)), 1, 2), x.sizes());
  return product(y, parts, "attn.proj");
}

Tensor mlp(const Tensor& x, const Parts& parts) {
  return product(gelu(product(x, parts, "mlp.fc1")), parts, "mlp.fc2");
}

template <class F>
Tensor with_branch(const std::string& placement, const Tensor& x, const Parts& parts, int number, F branch) {
  const auto name = [&](const char* suffix) { return fmt::format("norm{}{}", number, suffix); };
  const std::string scale = fmt::format("ls{}.gamma", number);
  const auto scaled = [&](const Tensor& y) { return parts.contains(scale) ? mul(y, parts.at(scale)) : y; };
  if (placement == "pre") {
    return add(x, scaled(branch(norm(x, parts, name("")), parts)));
  }
  if (placement == "post") {
    return norm(add(x, scaled(branch(x, parts))), parts, name("_post"));
  }
  return add(x, scaled(norm(branch(norm(x, parts, name("_in")), parts), parts, name("_out"))));
}

nn::Module& module_at(nn::Module& model, const std::string& path) {
  for (const auto& [name, module] : model.named_modules()) {
    if (name == path) {
      return *module;
    }
  }
  throw std::runtime_error("no module " + path);
}

// (N, L, C) as the image of one row that stands between layers.
Tensor as_image(const Tensor& tokens) {
  return permute(unsqueeze(tokens, 1), {0, 3, 1, 2});
}

}  // namespace

TEST_CASE("vit: outputs and gradients are timm's") {
  // import torch
  // from timm.models.vision_transformer import VisionTransformer  # 1.0.31
  // def fill(x, k):
  //     return torch.sin(0.7 * torch.arange(x.numel(), dtype=torch.float64) + k).reshape(x.shape)
  // m = VisionTransformer(img_size=8, patch_size=4, in_chans=2, num_classes=3, embed_dim=12, depth=2, num_heads=3,
  //                       **more).double()   # more: global_pool="avg", qk_norm=True, init_values=0.1, or
  //                       # pre_norm=True, norm_layer=partial(timm.layers.LayerNorm, eps=1e-5)
  // with torch.no_grad():
  //     for k, (n, p) in enumerate(m.named_parameters()):
  //         p.copy_(0.3 * fill(p, k) + (1 if n.endswith(("norm.weight", "norm1.weight", "norm2.weight")) else 0))
  // x = fill(torch.zeros(2, 2, 8, 8), 100).requires_grad_()
  // y = m(x)
  // y.backward(fill(y, 50))
  // print(y, sum((p.grad * fill(p, 7)).sum() for p in m.parameters()), (x.grad * fill(x, 7)).sum())
  struct Expected {
    std::string pool;
    std::string qk_norm;
    double layer_scale;
    std::vector<double> output;
    double of_parameters;  ///< sum of the gradients times waves
    double of_input;
    VitConfig config = kSmall;
  };
  const std::vector<Expected> all = {
      {"",
       "",
       0,
       {-0.841373807329499, 0.100290739570606, 0.953154721383604, -0.842200473159601, 0.100636482425129,
        0.953622306530513},
       3.65336684068518,
       -0.00732862995614937},
      {"avg",
       "",
       0,
       {-0.268301053614432, -0.670092648211357, 1.18018467285883, -0.249219883756229, -0.668549183479975,
        1.15950049555455},
       3.70028593434134,
       0.0504876785978579},
      {"token",
       "layer2d",
       0.1,
       {-1.45430662321441, 0.967891689101649, 0.234449777741197, -1.464384236921, 0.972329600101445, 0.239918277787436},
       1.9745889268968,
       -0.00125207515120753},
      {"avg",
       "layer2d",
       0.1,
       {0.218555482139327, -1.97672229354328, 1.61979693626917, 0.171479989942319, -1.9066551270268, 1.59410225926996},
       4.55550573856826,
       -0.0131331041832107},
      {"token",
       "",
       0,
       {0.00034774719956257, -0.671564763375754, 1.43614853870463, 0.000887615227431998, -0.671900409576486,
        1.43595726520444},
       2.83395341932723,
       -0.000443403525522285,
       kSmallClip}};
  for (const Expected& expected : all) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      CAPTURE(expected.pool);
      CAPTURE(expected.qk_norm);
      CAPTURE(to_string(format));
      ModelOptions options = small_options();
      options.global_pool = expected.pool;
      options.qk_norm = expected.qk_norm;
      options.layer_scale = expected.layer_scale;
      const auto model = small_vit(options, expected.config);
      fill_with_waves(*model);
      model->to(format);
      const Tensor x = copy_of(waves({2, 2, 8, 8}, 100), format).set_requires_grad();
      const Tensor y = (*model)(x);
      CHECK(max_difference(y, from_vector<double>(expected.output, {2, 3})) <= 1e-13);
      y.backward(waves({2, 3}, 50));
      double of_parameters = 0;
      for (const Tensor& parameter : model->parameters()) {
        of_parameters += product(parameter.grad(), waves(parameter.sizes(), 7));
      }
      CHECK(std::abs(of_parameters - expected.of_parameters) <= 1e-12);
      CHECK(std::abs(product(x.grad(), waves(x.sizes(), 7)) - expected.of_input) <= 1e-13);
    }
  }
}

TEST_CASE("vit: each placement of norms is that of plain ops, with and without norms of queries and keys") {
  for (const std::string placement : {"pre", "post", "peri"}) {
    for (const bool rich : {false, true}) {
      CAPTURE(placement);
      CAPTURE(rich);
      ModelOptions options = placed(placement);
      options.qk_norm = rich ? "layer2d" : "";
      options.layer_scale = rich ? 0.5 : 0;
      const auto model = small_vit(options);
      uint64_t seed = 20;
      for (const Tensor& parameter : model->parameters()) {
        copy_into(add(mul(random_tensor(parameter.sizes(), ++seed), 0.3), 0.2).detach(), parameter);
      }
      nn::Module& block = module_at(*model, "blocks.1");
      Parts parts;
      for (const auto& [name, parameter] : block.named_parameters()) {
        parts[name] = clone(parameter.detach()).set_requires_grad();
      }
      const Tensor tokens = random_tensor({2, 5, kSmall.width}, 3).set_requires_grad();
      const Tensor own = as_image(clone(tokens.detach())).detach().set_requires_grad();
      const Tensor y = block(own);
      Tensor expected = with_branch(placement, tokens, parts, 1, attention);
      expected = with_branch(placement, expected, parts, 2, mlp);
      CHECK(max_difference(y, as_image(expected)) <= 1e-12);
      CHECK(largest_number(y) > 0.1);
      const Tensor dy = random_tensor(expected.sizes(), 9);
      expected.backward(dy);
      y.backward(as_image(dy));
      CHECK(max_difference(own.grad(), as_image(tokens.grad())) <= 1e-11);
      for (const auto& [name, parameter] : block.named_parameters()) {
        CAPTURE(name);
        CHECK(max_difference(parameter.grad(), parts.at(name).grad()) <= 1e-11);
      }
      CHECK(recognize_norm_placement(model->state_dict()) == options.norm_policy.placement);
    }
  }
}

TEST_CASE("vit: every norm at every place has the gradients of finite differences") {
  const auto check_one = [](const ModelOptions& options) {
    const auto model = small_vit(options);
    const Tensor x = random_tensor({3, 2, 8, 8}, 2).set_requires_grad();
    const Tensor weights = random_tensor({3, 3}, 4);
    const auto value = [&] { return product((*model)(x), weights); };
    Tensors inputs = {x};
    for (const Tensor& parameter : model->parameters()) {
      inputs.push_back(parameter);
    }
    sum(mul((*model)(x), weights)).backward();
    double slope = 0;
    Tensors steps;
    uint64_t seed = 40;
    for (const Tensor& input : inputs) {
      REQUIRE(input.grad().defined());
      steps.push_back(random_tensor(input.sizes(), ++seed));
      slope += product(input.grad(), steps.back());
    }
    const auto move = [&](double length) {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < inputs.size(); ++i) {
        copy_into(add(inputs[i].detach(), mul(steps[i], length)), inputs[i].detach());
      }
    };
    constexpr double kStep = 1e-6;
    move(kStep);
    const double above = value();
    move(-2 * kStep);
    const double below = value();
    const double measured = (above - below) / (2 * kStep);
    CHECK(std::abs(slope - measured) <= 2e-5 * (1 + std::abs(slope)));
    CHECK(std::abs(slope) > 1e-8);
  };
  for (const auto& [name, definition] : nn::built_in_norms()) {
    if (name == "batch_renorm") {
      continue;  // its gradients hold r and d fixed, which an input moves
    }
    CAPTURE(name);
    for (const std::string pool : {"token", "avg"}) {
      CAPTURE(pool);
      ModelOptions options = small_options();
      options.norm = name;
      options.global_pool = pool;
      check_one(options);
    }
    ModelOptions options = placed("peri");
    options.qk_norm = name;
    check_one(options);
  }
}

TEST_CASE("vit: norms and blocks get tokens without gaps, whatever the format of the images") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const std::string norm : {"layer2d", "batch", "group:4", "instance", "grn", "dyt"}) {
      ModelOptions options = small_options();
      options.norm = norm;
      options.qk_norm = norm == "group:4" ? "group:2" : norm;
      const auto model = small_vit(options);
      model->to(format);
      std::set<std::string> wrong;
      int seen = 0;
      for (const auto& [path, module] : model->named_modules()) {
        if (path.starts_with("blocks.") && path.find("ls") == std::string::npos &&
            path.find("qkv") == std::string::npos) {
          module->register_forward_hook(
              [&, name = path](const nn::Module& /*module*/, const Tensor& in, const Tensor& out) {
                const bool of_head = name.ends_with("q_norm") || name.ends_with("k_norm");
                for (const Tensor& x : {in, out}) {
                  ++seen;
                  if (x.rank() != 4 || !x.is_contiguous(MemoryFormat::channels_last) ||
                      (of_head ? x.size(3) != kSmall.heads : x.size(2) != 1 || x.size(3) != 5)) {
                    wrong.insert(name + " " + describe(x));
                  }
                }
              });
        }
      }
      (*model)(copy_of(random_tensor({2, 2, 8, 8}, 1), format));
      CAPTURE(norm);
      CHECK_MESSAGE(wrong.empty(), *wrong.begin());
      CHECK(seen > 40);
    }
  }
}

TEST_CASE("vit: the same with hooks, which see every part, as without, where parts are one op") {
  ModelOptions options = small_options();
  options.qk_norm = "layer2d";
  options.layer_scale = 0.5;
  options.drop_path = 0.5;
  const auto model = small_vit(options);
  fill_with_waves(*model);
  model->eval();
  const Tensor x = random_tensor({2, 2, 8, 8}, 1);
  const Tensor expected = (*model)(x);
  for (const std::string part : {"attn", "attn.qkv", "attn.proj", "attn.q_norm", "mlp", "mlp.fc1", "mlp.act", "mlp.fc2",
                                 "norm1", "drop_path2"}) {
    CAPTURE(part);
    int seen = 0;
    std::vector<std::pair<nn::Module*, int64_t>> hooks;
    for (const auto& [path, module] : model->named_modules()) {
      if (path.starts_with("blocks.") && path.ends_with("." + part)) {
        hooks.emplace_back(
            module, module->register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor&) { ++seen; }));
      }
    }
    CHECK(max_difference((*model)(x), expected) <= 1e-12);
    CHECK(seen == static_cast<int>(hooks.size()));
    CHECK(seen >= (part == "drop_path2" ? 1 : 2));  // the first block drops nothing
    for (const auto& [module, number] : hooks) {
      module->remove_forward_hook(number);
    }
  }
}

TEST_CASE("vit: start values are timm's in distribution, and zeros where they are to be loaded") {
  const auto model = create_model("vit_tiny", {.image_size = 32});
  const auto deviation = [&](const std::string& wanted) {
    for (const auto& [name, x] : model->named_parameters()) {
      if (name == wanted) {
        const double average = mean(x.detach()).item<float>();
        return std::sqrt(mean(mul(x.detach(), x.detach())).item<float>() - average * average);
      }
    }
    return std::nan("");
  };
  CHECK(std::abs(deviation("pos_embed") - 0.02) < 2e-3);
  CHECK(std::abs(deviation("blocks.3.attn.qkv.weight") - 0.02) < 3e-4);
  CHECK(std::abs(deviation("blocks.3.attn.proj.weight") - 0.02) < 3e-4);
  CHECK(std::abs(deviation("blocks.11.mlp.fc2.weight") - 0.02) < 3e-4);
  CHECK(std::abs(deviation("head.weight") - 0.02) < 3e-4);
  CHECK(std::abs(deviation("cls_token") - 1e-6) < 3e-7);
  // uniform in ±1 / sqrt(3 · 16²): PyTorch's convolution
  CHECK(std::abs(deviation("patch_embed.proj.weight") - 1 / std::sqrt(3.0 * 768)) < 3e-4);
  CHECK(deviation("blocks.3.attn.qkv.bias") == 0);
  CHECK(deviation("head.bias") == 0);
  const auto empty = create_model("vit_tiny", {.image_size = 32, .initialize = false});
  for (const auto& [name, x] : empty->named_parameters()) {
    CAPTURE(name);
    CHECK((largest_number(x.detach()) == 0) == (name.find("norm") == std::string::npos || name.ends_with("bias")));
  }
}

TEST_CASE("vit: timm's names are those of the same networks") {
  CHECK(network_of("vit_small_patch32_224") == "vit_small");
  CHECK(network_of("deit_tiny_patch16_224") == "vit_tiny");
  CHECK(network_of("vit_huge_patch14_224") == "vit_huge_patch14_224");
  CHECK(network_of("vit_tiny_patch16_224.augreg") == "vit_tiny_patch16_224.augreg");
  CHECK(network_of("vit_tiny_patch0_224") == "vit_tiny_patch0_224");
  CHECK(network_of("vit_base_patch32_clip_224") == "vit_base_clip");
  CHECK(network_of("vit_tiny_patch16_clip_224") == "vit_tiny_patch16_clip_224");
  CHECK(network_of("vit_base_patch16_clip_quickgelu_224") == "vit_base_patch16_clip_quickgelu_224");
  CHECK(image_size_in("vit_base_patch16_clip_384") == 384);
  const auto model = create_model("vit_tiny_patch16_384", {.initialize = false});
  const nn::NamedTensors state = model->state_dict();
  CHECK(state[1].second.sizes() == Sizes{1, 577, 192});
  CHECK(state[2].second.sizes() == Sizes{192, 3, 16, 16});
  CHECK(recognize_model(state) == "vit_tiny");
  CHECK(is_built_in("deit_base_patch16_224"));
  CHECK(default_patch_size("deit_base_patch16_224", 32) == 16);
  CHECK(default_patch_size("vit_base", 32) == 4);
  CHECK(default_patch_size("vit_base", 64) == 16);
  const auto other = create_model("vit_tiny_patch16_224", {.patch_size = 8, .image_size = 32, .initialize = false});
  CHECK(other->state_dict()[1].second.sizes() == Sizes{1, 17, 192});
}

TEST_CASE("vit: parameters by depth are timm's group_matcher's, and tokens have no weight decay") {
  ModelOptions options = small_options();
  options.global_pool = "avg";
  const auto model = small_vit(options);
  const auto depths = parameter_depths(*model);
  for (const std::string stem : {"cls_token", "pos_embed", "patch_embed.proj.weight"}) {
    CHECK(depths.at(stem) == 0);
  }
  CHECK(depths.at("blocks.0.norm1.weight") == 1);
  CHECK(depths.at("blocks.1.attn.qkv.bias") == 2);
  CHECK(depths.at("fc_norm.weight") == 3);
  CHECK(depths.at("head.bias") == 3);
  CHECK(classifier_path(*model) == "head");
  const auto of_token = parameter_depths(*small_vit(small_options()));
  CHECK(of_token.at("blocks.1.attn.qkv.bias") == 2);
  CHECK(of_token.at("norm.weight") == 2);
  CHECK(of_token.at("head.weight") == 3);
  CHECK(parameter_depths(*small_vit(small_options(), kSmallClip)).at("norm_pre.weight") == 0);
  const auto groups = nn::parameter_groups(*model, 0.05);
  std::set<std::string> decayed;
  for (const auto& [name, x] : groups.at(0).parameters) {
    decayed.insert(name);
  }
  CHECK(groups.at(0).weight_decay == 0.05);
  CHECK(decayed.contains("patch_embed.proj.weight"));
  CHECK(decayed.contains("blocks.0.attn.qkv.weight"));
  struct Other final : nn::Module {
    Other() { register_parameter("filters", ones({1, 3, 4})); }
    Tensor forward(const Tensor& x) override { return x; }
    [[nodiscard]] std::string name() const override { return "Other"; }
  };
  CHECK(nn::parameter_groups(Other(), 0.05).at(0).weight_decay == 0.05);
  for (const std::string token : {"cls_token", "pos_embed", "blocks.0.norm1.weight", "head.bias"}) {
    CHECK(!decayed.contains(token));
  }
}

TEST_CASE("vit: one policy changes the norms of chosen places") {
  ModelOptions options{.num_classes = 4, .patch_size = 8, .image_size = 16, .qk_norm = "layer2d", .initialize = false};
  options.norm_policy =
      nn::parse_norm_policy("\"blocks.*.norm1\" = \"rms2d\"\n\"*.q_norm\" = \"dyt\"\n\"norm\" = \"batch\"\n", "p.toml");
  const auto model = create_model("vit_tiny", options);
  CHECK(module_at(*model, "blocks.7.norm1").name() == "RMSNorm2d(192, eps=1e-06)");
  CHECK(module_at(*model, "blocks.7.norm2").name() == "LayerNorm2d(192, eps=1e-06)");
  CHECK(module_at(*model, "blocks.7.attn.q_norm").name().starts_with("DynamicTanh"));
  CHECK(module_at(*model, "blocks.7.attn.k_norm").name() == "LayerNorm2d(64, eps=1e-06)");
  CHECK(module_at(*model, "norm").name() == "BatchNorm2d(192, eps=1e-06, momentum=0.1)");
  const auto pooled = [](const std::string& norm) {
    return create_model("vit_tiny", {.norm = norm, .image_size = 32, .global_pool = "avg", .initialize = false});
  };
  CHECK(module_at(*pooled("instance"), "fc_norm").name() == "LayerNorm2d(192, eps=1e-06)");  // one pixel
  CHECK(module_at(*pooled("group:4"), "fc_norm").name() == "GroupNorm(4, 192, eps=1e-06)");
}

TEST_CASE("vit: CLIP's has norm_pre, which a policy changes, and is told from the others by it") {
  ModelOptions options{.num_classes = 4, .patch_size = 8, .image_size = 16, .initialize = false};
  options.norm_policy = nn::parse_norm_policy("\"norm_pre\" = \"rms2d\"\n", "p.toml");
  const auto model = create_model("vit_base_clip", options);
  CHECK(module_at(*model, "norm_pre").name() == "RMSNorm2d(768, eps=1e-05)");
  CHECK(module_at(*model, "blocks.3.norm1").name() == "LayerNorm2d(768, eps=1e-05)");
  nn::NamedTensors state = model->state_dict();
  CHECK(recognize_model(state) == "vit_base_clip");
  CHECK(is_in_network("norm_pre.weight"));
  std::erase_if(state, [](const auto& tensor) { return tensor.first.starts_with("norm_pre."); });
  CHECK(recognize_model(state) == "vit_base");
  // timm's ConvNeXts whose norm stands before the pooling have a tensor of this name.
  nn::NamedTensors convnext = create_model("convnext_tiny", {.initialize = false})->state_dict();
  convnext.emplace_back("norm_pre.weight", zeros({768}));
  CHECK(recognize_model(convnext) == "convnext_tiny");
}

TEST_CASE("vit: a norm of the patches stands where a line of the policy has its name") {
  const auto has_norm = [](const ModelOptions& options) {
    const nn::NamedTensors parameters = create_model("vit_tiny", options)->named_parameters();
    return std::ranges::count(parameters, "patch_embed.norm.weight", [](const auto& one) { return one.first; }) == 1;
  };
  ModelOptions options{.num_classes = 4, .patch_size = 8, .image_size = 16, .initialize = false};
  CHECK_FALSE(has_norm(options));
  options.norm_policy = nn::parse_norm_policy("\"*\" = \"rms2d\"\n", "p.toml");
  CHECK_FALSE(has_norm(options));  // which has no place of its own
  options.norm_policy = nn::parse_norm_policy("\"*\" = \"rms2d\"\n\"patch_embed.norm\" = \"batch\"\n", "p.toml");
  CHECK(has_norm(options));
  CHECK(module_at(*create_model("vit_tiny", options), "patch_embed.norm").name() ==
        "BatchNorm2d(192, eps=1e-06, momentum=0.1)");
  // The norm acts on the patches alone: the class token has none.
  ModelOptions small = small_options();
  small.norm_policy = nn::parse_norm_policy("\"patch_embed.norm\" = \"layer2d\"\n", "p.toml");
  const auto with = small_vit(small);
  const auto without = small_vit(small_options());
  fill_with_waves(*with);
  nn::NamedTensors shared = with->state_dict();
  std::erase_if(shared, [](const auto& tensor) { return tensor.first.starts_with("patch_embed.norm."); });
  without->load_state_dict(shared);
  const Tensor x = waves({2, 2, 8, 8}, 0.3);
  const Tensor patches = module_at(*without, "patch_embed")(x);
  const Tensor normed = module_at(*with, "patch_embed")(x);
  const Parts parts = {{"norm.weight", module_at(*with, "patch_embed.norm").named_parameters()[0].second},
                       {"norm.bias", module_at(*with, "patch_embed.norm").named_parameters()[1].second}};
  CHECK(max_difference(
            permute(normed, {0, 2, 3, 1}),
            reshape(norm(reshape(permute(patches, {0, 2, 3, 1}), {2, 4, 12}), parts, "norm"), {2, 2, 2, 12})) < 1e-12);
  CHECK(max_difference((*with)(x), (*without)(x)) > 1e-3);
}

TEST_CASE("vit: without a bias of queries, keys and values") {
  ModelOptions options = small_options();
  options.qkv_bias = false;
  const auto without = small_vit(options);
  const auto with = small_vit(small_options());
  fill_with_waves(*with);
  nn::NamedTensors state = with->state_dict();
  for (auto& [name, x] : state) {
    if (name.ends_with("attn.qkv.bias")) {
      fill_(x.detach(), 0);
    }
  }
  std::erase_if(state, [](const auto& tensor) { return tensor.first.ends_with("attn.qkv.bias"); });
  without->load_state_dict(state);  // which refuses missing and unknown names
  const Tensor x = waves({2, 2, 8, 8}, 0.3);
  CHECK(max_difference((*without)(x), (*with)(x)) < 1e-13);
  module_at(*without, "blocks.0.attn.qkv").register_forward_hook([](const nn::Module&, const Tensor&, const Tensor&) {
  });
  CHECK(max_difference((*without)(x), (*with)(x)) < 1e-13);
}

TEST_CASE("vit: tokens with their positions are dropped in training alone, and the others grow") {
  ModelOptions options = small_options();
  options.pos_drop = 0.25;
  const auto model = small_vit(options);
  const auto plain = small_vit(small_options());
  fill_with_waves(*plain);
  model->load_state_dict(plain->state_dict());
  const Tensor x = waves({64, 2, 8, 8}, 0.3);
  model->eval();
  CHECK(max_difference((*model)(x), (*plain)(x)) == 0);
  model->train();
  Tensor seen, dropped;
  module_at(*model, "pos_drop").register_forward_hook([&](const nn::Module&, const Tensor& before, const Tensor& y) {
    seen = before;
    dropped = y;
  });
  (*model)(x);
  REQUIRE(dropped.defined());
  CHECK(seen.sizes() == Sizes{64, 5, 12});
  const std::vector<double> before = seen.to_vector<double>();
  const std::vector<double> after = dropped.to_vector<double>();
  double zeros = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    zeros += after[i] == 0 ? 1 : 0;
    CHECK((after[i] == 0 || std::abs(after[i] - before[i] / 0.75) < 1e-12));
  }
  CHECK(zeros / static_cast<double>(after.size()) == doctest::Approx(0.25).epsilon(0.1));
}

TEST_CASE("vit: errors") {
  const auto error = [](ModelOptions options) {
    options.initialize = false;
    return error_of([&] { create_model("vit_tiny", options); });
  };
  CHECK(error({.patch_size = 5, .image_size = 32}) ==
        "model: patch_size: expected a divisor of the image size 32, got 5");
  CHECK(error({.patch_size = 0, .image_size = 32}) ==
        "model: patch_size: expected a divisor of the image size 32, got 0");
  CHECK(error({.image_size = -1}) == "model: image_size: expected a positive number, got -1");
  CHECK(error({.global_pool = "max"}) == "model: global_pool: expected token or avg, got 'max'");
  CHECK(error({.pos_drop = 1}) == "model: pos_drop: expected a value in [0, 1), got 1");
  CHECK(error_of([] { create_model("resnet18", {.pos_drop = 0.1}); }) == "model: resnet18 has no option pos_drop");
  CHECK(error_of([] { create_model("convnext_atto", {.qkv_bias = false}); }) ==
        "model: convnext_atto has no option qkv_bias");
  CHECK(error({.layer_scale = -1.0}) == "model: layer_scale: expected a number >= 0, got -1");
  CHECK(error({.small_stem = true}) ==
        "model: small_stem: vit_tiny has no such stem; patch_size makes it fit small images");
  CHECK(error({.zero_init_last = true}) ==
        "model: zero_init_last: vit_tiny has no such option; layer_scale makes its blocks start near the identity");
  CHECK(error({.norm_policy = nn::parse_norm_policy("placement = \"inside\"\n", "p.toml")}) ==
        "norm policy: placement: expected pre, post or peri for vit_tiny, got inside");
  CHECK(error({.qk_norm = "group:5"}) ==
        "group_norm: num_channels must be divisible by num_groups, got num_channels 64, num_groups 5");
  CHECK(error_of([] { VisionTransformer("vit", {.width = 10, .heads = 3}, small_options()); }) ==
        "model: heads: expected a divisor of the width 10, got 3");
  CHECK(small_vit([] {
          ModelOptions options = small_options();
          options.qk_norm = "none";
          return options;
        }())
            ->named_modules()
            .size() == small_vit(small_options())->named_modules().size());
  CHECK(error_of([] { create_model("resnet18", {.qk_norm = "layer2d"}); }) == "model: resnet18 has no option qk_norm");
  CHECK(error_of([] { create_model("resnet18", {.qk_norm = "none", .initialize = false}); }) == "no error");
  CHECK(error_of([] { create_model("convnext_atto", {.global_pool = "avg"}); }) ==
        "model: convnext_atto has no option global_pool");
  const auto model = small_vit(small_options());
  CHECK(error_of([&] {
          (*model)(zeros({1, 2, 8, 12}, {.dtype = DType::float64}));
        }) == "model: x: expected images of 8 x 8 pixels, as image_size of vit says, got sizes [1, 2, 8, 12]");
}
