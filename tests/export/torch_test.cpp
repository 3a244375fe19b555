#include "export/torch.h"

#include "built_in_norm_names.h"
#include "core/version.h"
#include "data/safetensors.h"
#include "error_text.h"
#include "export/networks.h"
#include "files.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

// What the files say. PyTorch runs them in torch_test.py, with folders that the last test case writes.

using namespace norma;

namespace {

struct Case {
  std::string model;
  models::ModelOptions options;
  TorchLibrary library = TorchLibrary::timm;
};

Case resnet(const std::string& norm) {
  return {.model = "resnet18", .options = {.num_classes = 5, .norm = norm}};
}

Case convnext(const std::string& norm) {
  return {.model = "convnext_atto", .options = {.num_classes = 5, .norm = norm}};
}

TorchNetwork exported(const Case& of, double limit = 1e-6) {
  models::ModelOptions options = of.options;
  options.initialize = false;
  const auto model = models::create_model(of.model, options);
  return export_torch(of.model, of.options, model->state_dict(), of.library, limit);
}

std::string refusal(const Case& of) {
  return test::error_of([&] { exported(of); });
}

bool says(const Case& of, const std::string& text) {
  return exported(of).program.find(text) != std::string::npos;
}

/// Every norm in a network of each kind, and what else changes a program.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& norm : test::built_in_norm_names()) {
    all.push_back(resnet(norm));
    all.push_back(convnext(norm));
  }
  for (const char* const norm :
       {"batch[eps=1e-3,momentum=none]", "batch[bias=false]", "batch[track_running_stats=false]", "group:8", "group/16",
        "group[bias=false]", "layer2d[affine=false]", "instance[track_running_stats=true]", "evonorm_s0:4",
        "local_response[size=3,beta=0.5]"}) {
    all.push_back(resnet(norm));
  }
  all.push_back({.model = "resnet18", .options = {.num_classes = 5, .norm = "group", .small_stem = true}});
  all.push_back({.model = "resnet50", .options = {.num_classes = 5}});
  all.push_back({.model = "convnext_atto", .options = {.num_classes = 5, .norm = "batch", .patch_size = 2}});
  all.push_back({.model = "convnext_atto", .options = {.num_classes = 5, .layer_scale = 0}});
  all.push_back({.model = "convnext_tiny", .options = {.num_classes = 5}});
  all.push_back({.model = "convnext_tiny", .options = {.num_classes = 5, .norm = "group:8"}});
  all.push_back({.model = "convnextv2_atto", .options = {.num_classes = 5}});
  all.push_back({.model = "convnextv2_atto", .options = {.num_classes = 5, .norm = "batch", .layer_scale = 0.1}});
  all.push_back({.model = "vit_tiny", .options = {.num_classes = 5, .patch_size = 8, .image_size = 64}});
  all.push_back(
      {.model = "vit_tiny_patch16_224",
       .options = {
           .num_classes = 5, .layer_scale = 0.1, .image_size = 64, .global_pool = "avg", .qk_norm = "layer2d"}});
  all.push_back(
      {.model = "vit_tiny",
       .options = {.num_classes = 5, .norm = "layer2d[affine=false]", .image_size = 64, .global_pool = "avg"}});
  all.push_back({.model = "vit_tiny", .options = {.num_classes = 5, .image_size = 64, .qkv_bias = false}});
  all.push_back({.model = "vit_tiny", .options = {.num_classes = 5, .image_size = 64, .qk_norm = "rms2d"}});
  for (const char* const norm : {"rms2d", "simple2d", "dyt", "derf", "seednorm", "none", "layer2d[bias=false]"}) {
    all.push_back({.model = "vit_tiny",
                   .options = {.num_classes = 5, .norm = norm, .patch_size = 16, .image_size = 64, .qk_norm = norm}});
  }
  for (const std::string norm : {"layer2d", "rms2d[affine=false]", "dyt"}) {
    Case patches{.model = "vit_tiny",
                 .options = {.num_classes = 5, .norm = "rms2d", .image_size = 64, .qk_norm = "layer2d[affine=false]"}};
    patches.options.norm_policy = nn::parse_norm_policy("\"patch_embed.norm\" = \"" + norm + "\"", "p.toml");
    all.push_back(patches);
  }
  all.push_back({.model = "vit_base_clip", .options = {.num_classes = 5, .norm = "rms2d", .image_size = 64}});
  const TorchLibrary torchvision = TorchLibrary::torchvision;
  all.push_back({.model = "resnet18", .options = {.num_classes = 5, .norm = "layer2d"}, .library = torchvision});
  all.push_back({.model = "resnet50", .options = {.num_classes = 5, .small_stem = true}, .library = torchvision});
  all.push_back({.model = "convnext_tiny", .options = {.num_classes = 5, .patch_size = 2}, .library = torchvision});
  return all;
}

}  // namespace

TEST_CASE("torch: the program builds the network, loads the weights and compares an output") {
  const TorchNetwork network = exported(resnet("group:8[bias=false]"), 2.5e-6);
  CHECK(network.program == fmt::format(R"("""resnet18 with norm group:8[bias=false] by Norma {} for timm."""

import pathlib

from safetensors.torch import load_file
from torch import nn
import timm
import torch

FOLDER = pathlib.Path(__file__).parent


def norm(channels, **_):
    layer = nn.GroupNorm(8, channels, eps=1e-05)
    layer.bias = None
    return layer


def network():
    model = timm.create_model("resnet18", num_classes=5, norm_layer=norm)
    model.load_state_dict(load_file(FOLDER / "weights.safetensors"), strict=True)
    return model.eval()


if __name__ == "__main__":
    example = load_file(FOLDER / "example.safetensors")
    with torch.no_grad():
        difference = network()(example["input"]) - example["output"]
    error = (difference.square().mean() / example["output"].square().mean()).sqrt().item()
    assert error <= 2.5e-06, f"expected an error of at most 2.5e-06, got {{error:.2g}}"
    print(f"PyTorch {{torch.__version__}} computes what Norma does: error {{error:.2g}}")
)",
                                       version()));
}

TEST_CASE("torch: norms, stems and scales in the words of the libraries") {
  CHECK(says(resnet(""), "timm.create_model(\"resnet18\", num_classes=5)\n"));
  CHECK(says(resnet("batch[momentum=none,affine=false]"),
             "nn.BatchNorm2d(channels, eps=1e-05, momentum=None, affine=False)"));
  CHECK(says(resnet("group"), "nn.GroupNorm(max(n for n in range(1, 33) if channels % n == 0), channels, eps=1e-05)"));
  CHECK(says(resnet("group/4"), "nn.GroupNorm(channels // 4, channels, eps=1e-05)"));
  CHECK(says(resnet("instance"), "nn.InstanceNorm2d(channels, eps=1e-05, affine=True)"));
  CHECK(says(resnet("frozen_batch"), "from torchvision.ops import FrozenBatchNorm2d\n"));
  CHECK(says(resnet("rms2d"), "from timm.layers import RmsNorm2d\n"));
  CHECK(says(resnet("dyt"), "class DynamicTanh(nn.Module):\n"));
  CHECK(says(resnet("derf"), "class DynamicErf(nn.Module):\n"));
  CHECK(says(resnet("seednorm"), "SeedNorm(channels, eps=1e-06)"));
  CHECK(says(resnet("batch_renorm"), "In training, batch_renorm is another norm than PyTorch's batch norm."));
  CHECK(says({.model = "resnet18", .options = {.small_stem = true}}, "    model.maxpool = nn.Identity()\n"));
  CHECK(says(convnext(""), "timm.create_model(\"convnext_atto\", num_classes=5)\n"));
  CHECK(says(convnext("batch"), "nn.BatchNorm2d(channels, eps=1e-06)"));  // a ConvNeXt's eps
  CHECK(says(convnext("batch"), "num_classes=5, norm_layer=norm, conv_mlp=True)\n"));
  CHECK(says(convnext("instance"), "    model.head.norm = head_norm(320)\n"));
  CHECK(says({.model = "convnext_atto", .options = {.patch_size = 2}}, "    model.stem[0] = nn.Conv2d(3, 40, 2, 2)\n"));
  CHECK(says({.model = "convnext_atto", .options = {.layer_scale = 0}}, "            block.gamma = None\n"));
  CHECK(says({.model = "convnextv2_atto", .options = {.layer_scale = 0.1}}, ", ls_init_value=1e-6)\n"));
  CHECK(says({.model = "vit_tiny", .options = {.patch_size = 8, .image_size = 32}},
             "timm.create_model(\"vit_tiny_patch16_224\", num_classes=1000, img_size=32, patch_size=8)\n"));
  const models::ModelOptions pooled{.layer_scale = 1, .global_pool = "avg", .qk_norm = "layer2d"};
  CHECK(says({.model = "vit_tiny", .options = pooled},
             "img_size=224, patch_size=16, global_pool=\"avg\", init_values=1e-5, qk_norm=True)\n"));
  for (const char* const norm : {"none", "layer2d[affine=false]"}) {  // which leave nothing of fc_norm in the weights
    CHECK(says({.model = "vit_tiny", .options = {.norm = norm, .image_size = 32, .global_pool = "avg"}},
               "norm_layer=norm, img_size=32, patch_size=16, global_pool=\"avg\")\n"));
  }
  const std::string rms = "setattr(block.attn, key, qk_norm(block.attn.head_dim))";
  models::ModelOptions other{.image_size = 32, .qk_norm = "rms2d", .initialize = false};
  CHECK(says({.model = "vit_tiny", .options = other}, rms));
  CHECK(says({.model = "vit_tiny", .options = other},
             "def qk_norm(channels, **_):\n    return nn.RMSNorm(channels, eps=1e-06)\n"));
  CHECK(says({.model = "vit_tiny", .options = {.norm = "rms2d", .image_size = 32, .qk_norm = "rms2d"}},
             "norm_layer=norm, img_size=32, patch_size=16, qk_norm=True)\n"));
  CHECK(says({.model = "vit_tiny", .options = {.norm = "simple2d[affine=false]", .image_size = 32}},
             "    return SimpleNorm(channels, eps=1e-06, affine=False)\n"));
  CHECK(says({.model = "vit_tiny", .options = {.norm = "layer2d[affine=false]", .image_size = 32}},
             "    return nn.LayerNorm(channels, eps=1e-06, elementwise_affine=False)\n"));
  CHECK(says({.model = "vit_tiny", .options = {.norm = "dyt", .image_size = 32}},
             "        return torch.tanh(self.alpha * x) * self.weight + self.bias\n"));
  Case patches{.model = "vit_tiny", .options = {.image_size = 32}};
  patches.options.norm_policy = nn::parse_norm_policy("\"patch_embed.norm\" = \"rms2d\"", "p.toml");
  CHECK(says(patches, "num_classes=1000, embed_norm_layer=patch_norm, img_size=32"));
  const nn::NamedTensors state = models::create_model("vit_tiny", other)->state_dict();
  other.qk_norm.clear();  // as for weights alone
  CHECK(export_torch("vit_tiny", other, state, TorchLibrary::timm, 1).program.find(rms) != std::string::npos);
  const Case grey{.model = "resnet18", .options = {.in_channels = 1, .small_stem = true}};
  CHECK(says(grey, "timm.create_model(\"resnet18\", num_classes=1000, in_chans=1)\n"));
  CHECK(says(grey, "    model.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)\n"));
  CHECK(says({.model = "convnext_atto", .options = {.in_channels = 4, .patch_size = 2}},
             "    model.stem[0] = nn.Conv2d(4, 40, 2, 2)\n"));
  CHECK(says({.model = "convnext_tiny", .options = {.patch_size = 2}, .library = TorchLibrary::torchvision},
             "    model.features[0][0] = nn.Conv2d(3, 96, 2, 2)\n"));
}

TEST_CASE("torch: weights have the library's names and sizes") {
  const auto sizes_of = [](const TorchNetwork& network, const std::string& name) {
    for (const auto& [own, x] : network.weights) {
      if (own == name) {
        return to_string(x.sizes());
      }
    }
    return std::string("none");
  };
  const Case tiny{.model = "convnext_tiny", .options = {}};
  CHECK(sizes_of(exported(tiny), "stages.0.blocks.0.mlp.fc1.weight") == "[384, 96]");
  const Case with_norm{.model = "convnext_tiny", .options = {.norm = "batch"}};
  CHECK(sizes_of(exported(with_norm), "stages.0.blocks.0.mlp.fc1.weight") == "[384, 96, 1, 1]");
  CHECK(sizes_of(exported(with_norm), "stages.0.blocks.0.norm.running_mean") == "[96]");
  const Case torchvision{.model = "convnext_tiny", .options = {}, .library = TorchLibrary::torchvision};
  CHECK(sizes_of(exported(torchvision), "features.1.0.layer_scale") == "[96, 1, 1]");
}

TEST_CASE("torch: what no library can build is refused with the reason") {
  CHECK(refusal({.model = "resnet18", .options = {.conv_layer = "std_conv"}}) ==
        "export_torch: conv_layer: expected conv, as neither timm nor torchvision has a choice, got std_conv");
  Case policy = resnet("batch");
  policy.options.norm_policy = nn::parse_norm_policy("bn1 = \"group\"", "p.toml");
  CHECK(refusal(policy) ==
        "export_torch: norm_policy: expected none, as timm and torchvision have one norm for all layers");
  Case placed{.model = "convnext_atto", .options = {}};
  placed.options.norm_policy = nn::parse_norm_policy("placement = \"pre\"", "p.toml");
  CHECK(refusal(placed) ==
        "export_torch: norm_policy: placement: expected inside, as timm and torchvision have no other, got pre");
  CHECK(refusal(resnet("ghost_batch[track_running_stats=false]")) ==
        "export_torch: norm: ghost_batch: expected running statistics, since PyTorch has no ghost batches, got none");
  const TorchLibrary torchvision = TorchLibrary::torchvision;
  for (const std::string norm :
       {"rms2d[offset=true]", "layer2d[offset=true]", "rms2d[groups=4]", "seednorm[offset=true]"}) {
    CHECK(refusal(resnet(norm)).find(": expected offset=false and one group, as in timm's layer, got ") !=
          std::string::npos);
  }
  CHECK(says({.model = "vit_tiny", .options = {.image_size = 32, .qkv_bias = false}}, "qkv_bias=False"));
  CHECK(says({.model = "vit_base_patch32_clip_224", .options = {.image_size = 32}},
             "timm.create_model(\"vit_base_patch16_clip_224\", num_classes=1000, img_size=32, patch_size=32)\n"));
  CHECK(refusal({.model = "convnext_atto", .options = {}, .library = torchvision}) ==
        "export_torch: model: expected a network of torchvision, got convnext_atto; timm has it");
  CHECK(refusal({.model = "resnet18", .options = {.in_channels = 1}, .library = torchvision}) ==
        "export_torch: in_channels: expected 3, as torchvision's networks have, got 1; timm takes others");
  CHECK(refusal({.model = "convnext_tiny", .options = {.norm = "batch"}, .library = torchvision})
            .starts_with(
                "export_torch: norm: expected layer2d, which torchvision's ConvNeXt has in its blocks, got batch"));
  CHECK(refusal({.model = "convnext_tiny", .options = {.layer_scale = 0}, .library = torchvision}) ==
        "export_torch: layer_scale: expected one, which torchvision's ConvNeXt has, got none; timm leaves it out");
  const std::string of_tokens =
      ": expected layer2d, rms2d, simple2d, dyt, derf, seednorm or none, as PyTorch and timm have no other layer for "
      "tokens, got ";
  CHECK(refusal({.model = "vit_tiny", .options = {.norm = "batch"}})
            .starts_with("export_torch: norm: blocks.*.norm1" + of_tokens + "batch["));
  CHECK(refusal({.model = "vit_tiny", .options = {.qk_norm = "group:4"}})
            .starts_with("export_torch: qk_norm: blocks.*.attn.q_norm" + of_tokens + "group:4["));
  CHECK(refusal({.model = "vit_tiny", .options = {.norm = "rms2d[offset=true]"}})
            .starts_with(
                "export_torch: norm: blocks.*.norm1: rms2d: expected offset=false and one group, as in PyTorch's "
                "and timm's layers, got rms2d[affine=true,"));
  Case patches{.model = "vit_tiny", .options = {}};
  patches.options.norm_policy = nn::parse_norm_policy("\"patch_embed.norm\" = \"instance\"", "p.toml");
  CHECK(refusal(patches).starts_with("export_torch: norm_policy: patch_embed.norm" + of_tokens + "instance["));
  patches.options.norm_policy = nn::parse_norm_policy("\"blocks.*.norm1\" = \"rms2d\"", "p.toml");
  CHECK(
      refusal(patches) ==
      "export_torch: norm_policy: expected no norm but that of patch_embed.norm, as timm has one for all other layers, "
      "got \"blocks.*.norm1\" = \"rms2d\"");
  nn::register_norm("of_a_test", [](int64_t channels) { return nn::make_norm("batch", channels); });
  CHECK(refusal(resnet("of_a_test")) ==
        "export_torch: norm: expected one that PyTorch, torchvision or timm has, got of_a_test");
}

TEST_CASE("all models: weights" * doctest::skip()) {
  // For all_models.py: NORMA_STIRRED="MODEL NORM CLASSES FILE". Noise on numbers of channels alone: in deep networks
  // without a norm, noise on convolutions would leave float32.
  std::istringstream words(std::getenv("NORMA_STIRRED"));
  std::string name, norm, file;
  int64_t classes = 0;
  words >> name >> norm >> classes >> file;
  const auto model = models::create_model(name, {.num_classes = classes, .norm = norm});
  const NoGradGuard no_grad;
  Generator generator(7);
  for (const auto& [parameter, x] : model->named_parameters()) {
    if (x.rank() == 1) {
      Tensor values = x.detach();
      add_(values, mul(randn(x.sizes(), {.device = kCpu}, generator), 0.1));
    }
  }
  model->train();
  for (int i = 0; i < 2; ++i) {
    (*model)(add(randn({4, 3, 64, 64}, {.device = kCpu}, generator), 0.3));
  }
  data::save_safetensors(file, model->state_dict());
}

TEST_CASE("torch: every norm of the catalogue has a program, and folders for PyTorch") {
  // NORMA_TORCH_FILES is the folder in which torch_test.py looks for them.
  const char* const given = std::getenv("NORMA_TORCH_FILES");
  nlohmann::json list = nlohmann::json::array();
  for (const Case& of : cases()) {
    const std::string name = fmt::format("{} {} {}", of.model, of.options.norm, to_string(of.library));
    CAPTURE(name);
    if (given == nullptr) {
      CHECK_FALSE(exported(of).program.empty());
      continue;
    }
    const auto model = models::create_model(of.model, of.options);
    test::stir(*model, {4, 3, 64, 64});
    Generator generator(3);
    const Tensor x = randn({2, 3, 64, 64}, {.device = kCpu}, generator);
    const NoGradGuard no_grad;
    const Tensor own = (*model)(x);
    model->to(DType::float64);
    const Tensor exact = (*model)(to(x, DType::float64));
    model->to(DType::float32);
    const auto rms = [](const Tensor& y) { return std::sqrt(mean(mul(y, y)).item<double>()); };
    const double limit = 4 * rms(sub(to(own, DType::float64), exact)) / rms(exact) + 0x1p-20;
    const TorchNetwork network = export_torch(of.model, of.options, model->state_dict(), of.library, limit);
    const std::filesystem::path folder = std::filesystem::path(given) / fmt::format("{}", list.size());
    std::filesystem::create_directories(folder);
    data::save_safetensors(folder / "norma.safetensors", model->state_dict());
    data::save_safetensors(folder / "weights.safetensors", network.weights);
    data::save_safetensors(folder / "example.safetensors", {{"input", x}, {"output", to(exact, DType::float32)}});
    test::write_file(folder / "network.py", network.program);
    list.push_back({{"name", name}, {"model", of.model}, {"library", to_string(of.library)}});
  }
  if (given != nullptr) {
    test::write_file(std::filesystem::path(given) / "list.json", list.dump());
  }
  CHECK(cases().size() >= 50);
}
