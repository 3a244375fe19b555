#include "error_text.h"
#include "models/convnext.h"
#include "models/registry.h"
#include "nn/norm/policy.h"
#include "ops/conv/conv.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <map>

using namespace norma;
using namespace norma::models;
using norma::test::error_of;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

// A block's tensors by name.
using Parts = std::map<std::string, Tensor>;

ModelOptions placed(const std::string& placement) {
  ModelOptions options{.num_classes = 4, .patch_size = 2, .seed = 1};
  options.norm_policy = nn::parse_norm_policy("placement = \"" + placement + "\"\n", "p.toml");
  return options;
}

nn::Module& module_at(nn::Module& model, const std::string& path) {
  for (const auto& [name, module] : model.named_modules()) {
    if (name == path) {
      return *module;
    }
  }
  throw std::runtime_error("no module " + path);
}

// The network in float64 with parameters that are not 0, 1 or 1e-6.
std::shared_ptr<nn::Module> random_network(const std::string& name, const ModelOptions& options) {
  const std::shared_ptr<nn::Module> model = create_model(name, options);
  model->to(DType::float64);
  uint64_t seed = 10;
  for (const auto& [path, parameter] : model->named_parameters()) {
    copy_into(add(mul(random_tensor(parameter.sizes(), ++seed), 0.3), path.ends_with("weight") ? 0.1 : 0.5).detach(),
              parameter);
  }
  return model;
}

Tensor along_channels(const Tensor& x) {
  return view(x, {x.numel(), 1, 1});
}

// Layer norm over the channels of each pixel, in plain ops.
Tensor norm(const Tensor& x, const Parts& parts, const std::string& name) {
  const Tensor centred = sub(x, mean(x, {1}, {.keepdim = true}));
  const Tensor variance = mean(mul(centred, centred), {1}, {.keepdim = true});
  return add(mul(mul(centred, rsqrt(add(variance, 1e-6))), along_channels(parts.at(name + ".weight"))),
             along_channels(parts.at(name + ".bias")));
}

Tensor depthwise(const Tensor& x, const Parts& parts) {
  return conv2d(x, parts.at("conv_dw.weight"), parts.at("conv_dw.bias"), {.padding = 3, .groups = x.size(1)});
}

Tensor mlp(const Tensor& x, const Parts& parts) {
  const auto layer = [&](const Tensor& pixels, const std::string& name) {
    const Tensor& weight = parts.at(name + ".weight");
    return add(matmul(pixels, transpose(view(weight, {weight.size(0), weight.size(1)}), 0, 1)),
               parts.at(name + ".bias"));
  };
  Tensor y = gelu(layer(permute(x, {0, 2, 3, 1}), "mlp.fc1"));
  if (parts.contains("mlp.grn.weight")) {  // V2's global response norm, over the pixels of each channel
    const Tensor energy = sqrt(sum(mul(y, y), {1, 2}, {.keepdim = true}));
    const Tensor share = div(energy, add(mean(energy, {3}, {.keepdim = true}), 1e-6));
    y = add(add(mul(mul(y, share), parts.at("mlp.grn.weight")), parts.at("mlp.grn.bias")), y);
  }
  return permute(layer(y, "mlp.fc2"), {0, 3, 1, 2});
}

Tensor composed(const std::string& placement, const Tensor& x, const Parts& parts) {
  const auto scaled = [&](const Tensor& branch) {
    return parts.contains("gamma") ? mul(branch, along_channels(parts.at("gamma"))) : branch;
  };
  if (placement == "inside") {
    return add(x, scaled(mlp(norm(depthwise(x, parts), parts, "norm"), parts)));
  }
  if (placement == "pre") {
    return add(x, scaled(mlp(depthwise(norm(x, parts, "norm_pre"), parts), parts)));
  }
  if (placement == "post") {
    return norm(add(x, scaled(mlp(depthwise(x, parts), parts))), parts, "norm_post");
  }
  return add(x, scaled(norm(mlp(depthwise(norm(x, parts, "norm_in"), parts), parts), parts, "norm_out")));
}

const std::vector<std::string> kPlacements = {"inside", "pre", "post", "peri"};

}  // namespace

TEST_CASE("norm placement: a block's output and gradients are those of plain ops in float64") {
  for (const std::string& placement : kPlacements) {
    for (const std::string name : {"convnext_atto", "convnextv2_atto"}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(placement);
        CAPTURE(name);
        CAPTURE(to_string(format));
        const auto model = random_network(name, placed(placement));
        model->to(format);
        nn::Module& block = module_at(*model, "stages.1.blocks.1");
        Parts parts;
        for (const auto& [path, parameter] : block.named_parameters()) {
          parts[path] = clone(parameter.detach()).set_requires_grad();
        }
        Tensor x = copy_of(random_tensor({2, 80, 5, 6}, 3), format).set_requires_grad();
        const Tensor y = block(x);
        CHECK(y.is_contiguous(format));
        Tensor plain_x = clone(x.detach()).set_requires_grad();
        const Tensor plain_y = composed(placement, plain_x, parts);
        const double size = largest_number(plain_y);
        CHECK(size > 0.1);
        CHECK(max_difference(y, plain_y) <= 1e-11 * size);

        const Tensor dy = copy_of(random_tensor(y.sizes(), 4), format);
        CHECK(grad({y}, {x}, {dy}, {.retain_graph = true})[0].is_contiguous(format));
        y.backward(dy);
        plain_y.backward(dy);
        const auto same = [](const Tensor& gradient, const Tensor& plain) {
          REQUIRE(gradient.defined());
          const double largest = largest_number(plain);
          CHECK(largest > 1e-6);
          CHECK(max_difference(gradient, plain) <= 1e-10 * largest);
        };
        same(x.grad(), plain_x.grad());
        for (const auto& [path, parameter] : block.named_parameters()) {
          CAPTURE(path);
          same(parameter.grad(), parts.at(path).grad());
        }
      }
    }
  }
}

TEST_CASE("norm placement: an image whose branch is dropped passes through, and then through the norm behind the sum") {
  for (const std::string& placement : kPlacements) {
    CAPTURE(placement);
    ModelOptions options = placed(placement);
    options.drop_path = 0.5;
    const auto model = random_network("convnext_atto", options);
    manual_seed(3);
    nn::Module& block = module_at(*model, "stages.3.blocks.1");
    const Tensor x = random_tensor({16, 320, 2, 3}, 5);
    const Tensor y = block(x);
    Parts parts;
    for (const auto& [path, parameter] : block.named_parameters()) {
      parts[path] = parameter;
    }
    const Tensor passed = placement == "post" ? norm(x, parts, "norm_post") : x;
    int dropped = 0;
    for (int64_t image = 0; image < 16; ++image) {
      dropped += max_difference(select(y, 0, image), select(passed, 0, image)) <= 1e-11 ? 1 : 0;
    }
    CHECK(dropped > 2);
    CHECK(dropped < 14);
  }
}

TEST_CASE("norm placement: the names of a network's norms, which only their own placement reads") {
  std::map<std::string, nn::NamedTensors> states;
  for (const std::string& placement : kPlacements) {
    states[placement] = create_model("convnext_atto", placed(placement))->state_dict();
  }
  const auto names = [&](const std::string& placement) {
    std::string text;
    for (const auto& [path, x] : states[placement]) {
      if (path.starts_with("stages.1.blocks.0.norm")) {
        text += path.substr(18) + " ";
      }
    }
    return text;
  };
  CHECK(names("inside") == "norm.weight norm.bias ");
  CHECK(names("pre") == "norm_pre.weight norm_pre.bias ");
  CHECK(names("post") == "norm_post.weight norm_post.bias ");
  CHECK(names("peri") == "norm_in.weight norm_in.bias norm_out.weight norm_out.bias ");
  for (const std::string& of : kPlacements) {
    CHECK(recognize_model(states[of]) == "convnext_atto");
    CHECK(nn::to_string(recognize_norm_placement(states[of]).value()) == of);
    for (const std::string& under : kPlacements) {
      CAPTURE(of);
      CAPTURE(under);
      const auto model = create_model("convnext_atto", placed(under));
      const std::string error = error_of([&] { model->load_state_dict(states[of]); });
      CHECK((error == "no error") == (of == under));
      CHECK((of == under || error.find("stages.0.blocks.0.norm") != std::string::npos));
    }
  }
}

TEST_CASE("norm placement: state dicts without norms in ConvNeXt's blocks show none") {
  CHECK(!recognize_norm_placement(create_model("convnext_atto", {.norm = "none"})->state_dict()).has_value());
  CHECK(!recognize_norm_placement(create_model("resnet18")->state_dict()).has_value());
}

TEST_CASE("norm placement: lines of the policy change the norms of a placement, with the network's eps") {
  ModelOptions options{.num_classes = 4, .patch_size = 2};
  options.norm_policy = nn::parse_norm_policy(
      "placement = \"peri\"\n\"stages.*.norm_out\" = \"rms2d\"\n\"stages.3.*\" = \"none\"\n", "p.toml");
  const auto model = create_model("convnext_atto", options);
  CHECK(module_at(*model, "stages.1.blocks.0.norm_in").name() == "LayerNorm2d(80, eps=1e-06)");
  CHECK(module_at(*model, "stages.1.blocks.0.norm_out").name() == "RMSNorm2d(80, eps=1e-06)");
  CHECK(module_at(*model, "stages.3.blocks.1.norm_out").name() == "NoNorm");
}

TEST_CASE("norm placement: networks that cannot place their norms refuse the line") {
  const auto error = [](const std::string& name, const nn::NormPolicy& policy) {
    return error_of([&] { create_model(name, {.num_classes = 4, .norm_policy = policy}); });
  };
  CHECK(error("resnet18", nn::parse_norm_policy("\"bn1\" = \"none\"\nplacement = \"post\"\n", "p.toml")) ==
        "norm policy: p.toml:2: placement: expected a network that can place its norms, such as convnext_tiny, got "
        "resnet18");
  CHECK(error("resnet50", nn::parse_norm_policy("placement = \"inside\"\n", "p.toml"))
            .starts_with("norm policy: p.toml:1: placement: "));
  CHECK(error("resnet50", {.source = "", .rules = {}, .placement = nn::NormPlacement::peri}) ==
        "norm policy: placement: expected a network that can place its norms, such as convnext_tiny, got resnet50");
}
