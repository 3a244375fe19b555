#include "models/state_dict_names.h"

#include "core/factory.h"
#include "error_text.h"
#include "models/registry.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::models;
using test::error_of;

namespace {

/// Tensors of ConvNeXt-T, one of each kind: by torchvision's state dict, by timm's, and by Facebook's
/// (models/convnext.py), with their sizes.
struct Known {
  const char* torchvision;
  Sizes torchvision_sizes;
  const char* timm;
  const char* facebook;
  Sizes sizes;  ///< in both
};
const std::vector<Known>& tiny() {
  static const std::vector<Known> names = {
      {"features.0.0.weight", {96, 3, 4, 4}, "stem.0.weight", "downsample_layers.0.0.weight", {96, 3, 4, 4}},
      {"features.0.0.bias", {96}, "stem.0.bias", "downsample_layers.0.0.bias", {96}},
      {"features.0.1.weight", {96}, "stem.1.weight", "downsample_layers.0.1.weight", {96}},
      {"features.1.0.layer_scale", {96, 1, 1}, "stages.0.blocks.0.gamma", "stages.0.0.gamma", {96}},
      {"features.1.0.block.0.weight",
       {96, 1, 7, 7},
       "stages.0.blocks.0.conv_dw.weight",
       "stages.0.0.dwconv.weight",
       {96, 1, 7, 7}},
      {"features.1.0.block.0.bias", {96}, "stages.0.blocks.0.conv_dw.bias", "stages.0.0.dwconv.bias", {96}},
      {"features.1.0.block.2.weight", {96}, "stages.0.blocks.0.norm.weight", "stages.0.0.norm.weight", {96}},
      {"features.1.0.block.2.bias", {96}, "stages.0.blocks.0.norm.bias", "stages.0.0.norm.bias", {96}},
      {"features.1.0.block.3.weight",
       {384, 96},
       "stages.0.blocks.0.mlp.fc1.weight",
       "stages.0.0.pwconv1.weight",
       {384, 96}},
      {"features.1.0.block.3.bias", {384}, "stages.0.blocks.0.mlp.fc1.bias", "stages.0.0.pwconv1.bias", {384}},
      {"features.1.0.block.5.weight",
       {96, 384},
       "stages.0.blocks.0.mlp.fc2.weight",
       "stages.0.0.pwconv2.weight",
       {96, 384}},
      {"features.1.0.block.5.bias", {96}, "stages.0.blocks.0.mlp.fc2.bias", "stages.0.0.pwconv2.bias", {96}},
      {"features.2.0.weight", {96}, "stages.1.downsample.0.weight", "downsample_layers.1.0.weight", {96}},
      {"features.2.1.weight",
       {192, 96, 2, 2},
       "stages.1.downsample.1.weight",
       "downsample_layers.1.1.weight",
       {192, 96, 2, 2}},
      {"features.5.8.layer_scale", {384, 1, 1}, "stages.2.blocks.8.gamma", "stages.2.8.gamma", {384}},
      {"features.6.1.bias", {768}, "stages.3.downsample.1.bias", "downsample_layers.3.1.bias", {768}},
      {"features.7.2.block.5.bias", {768}, "stages.3.blocks.2.mlp.fc2.bias", "stages.3.2.pwconv2.bias", {768}},
      {"classifier.0.weight", {768}, "head.norm.weight", "norm.weight", {768}},
      {"classifier.0.bias", {768}, "head.norm.bias", "norm.bias", {768}},
      {"classifier.2.weight", {1000, 768}, "head.fc.weight", "head.weight", {1000, 768}},
      {"classifier.2.bias", {1000}, "head.fc.bias", "head.bias", {1000}}};
  return names;
}

/// A state dict of a network, no two tensors alike.
nn::NamedTensors state_of(const std::string& model) {
  nn::NamedTensors state = create_model(model, {.num_classes = 7, .initialize = false})->state_dict();
  double value = 0;
  for (auto& [name, x] : state) {
    x = full(x.sizes(), ++value, {.dtype = x.dtype()});
  }
  return state;
}

/// Under Norma's names.
nn::NamedTensors own(const nn::NamedTensors& tensors) {
  return find_weights("FILE", tensors).tensors;
}

nn::NamedTensors behind(const std::string& prefix, nn::NamedTensors tensors) {
  for (auto& [name, x] : tensors) {
    name.insert(0, prefix);
  }
  return tensors;
}

nn::NamedTensors joined(nn::NamedTensors a, const nn::NamedTensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void check_same(const nn::NamedTensors& actual, const nn::NamedTensors& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    CHECK(actual[i].first == expected[i].first);
    CHECK(actual[i].second.sizes() == expected[i].second.sizes());
    CHECK(actual[i].second.dtype() == expected[i].second.dtype());
    CHECK(actual[i].second.to_vector<double>() == expected[i].second.to_vector<double>());
  }
}

}  // namespace

TEST_CASE("names: a vit's tensors by torchvision's, behind a prefix, and back") {
  const nn::NamedTensors state = state_of("vit_tiny");
  const nn::NamedTensors theirs = renamed(state, Dialect::torchvision);
  // list(torchvision.models.vit_b_16().state_dict())
  const std::vector<std::string> expected = {"class_token",
                                             "encoder.pos_embedding",
                                             "conv_proj.weight",
                                             "conv_proj.bias",
                                             "encoder.layers.encoder_layer_0.ln_1.weight",
                                             "encoder.layers.encoder_layer_0.ln_1.bias",
                                             "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
                                             "encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
                                             "encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
                                             "encoder.layers.encoder_layer_0.self_attention.out_proj.bias",
                                             "encoder.layers.encoder_layer_0.ln_2.weight",
                                             "encoder.layers.encoder_layer_0.ln_2.bias",
                                             "encoder.layers.encoder_layer_0.mlp.0.weight",
                                             "encoder.layers.encoder_layer_0.mlp.0.bias",
                                             "encoder.layers.encoder_layer_0.mlp.3.weight",
                                             "encoder.layers.encoder_layer_0.mlp.3.bias"};
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(theirs[i].first == expected[i]);
  }
  CHECK(theirs[theirs.size() - 4].first == "encoder.ln.weight");
  CHECK(theirs.back().first == "heads.head.bias");
  const FoundWeights found = find_weights("FILE", behind("model.module.", theirs), {.has_dicts = true});
  CHECK(found.dialect == Dialect::torchvision);
  CHECK(found.prefix == "model.module.");
  check_same(found.tensors, state);
  const FoundWeights by_timm = find_weights("FILE", behind("module.", state));
  CHECK(by_timm.dialect == Dialect::timm);
  check_same(by_timm.tensors, state);
  nn::NamedTensors older = theirs;  // as files have it that were written before torchvision 0.13
  for (auto& [name, x] : older) {
    for (const auto& [from, to] : {std::pair(".mlp.0.", ".mlp.linear_1."), {".mlp.3.", ".mlp.linear_2."}}) {
      if (const size_t at = name.find(from); at != std::string::npos) {
        name.replace(at, std::string(from).size(), to);
      }
    }
  }
  check_same(own(older), state);
  CHECK(error_of([&] { renamed(state, Dialect::facebook); }) ==
        "convert: tensor 'cls_token': facebook has none of this name, or of a network like this");
  CHECK(is_in_network("blocks.0.norm1.weight"));
  CHECK(is_in_network("pos_embed"));
}

TEST_CASE("names: ConvNeXt-T has those of each library") {
  const nn::NamedTensors timm = create_model("convnext_tiny", {.initialize = false})->state_dict();
  const auto sizes_in = [](const nn::NamedTensors& tensors) {
    std::map<std::string, Sizes> sizes;
    for (const auto& [name, x] : tensors) {
      sizes.emplace(name, x.sizes());
    }
    return sizes;
  };
  const auto in_timm = sizes_in(timm);
  const auto in_torchvision = sizes_in(renamed(timm, Dialect::torchvision));
  const auto in_facebook = sizes_in(renamed(timm, Dialect::facebook));
  for (const auto* names : {&in_timm, &in_torchvision, &in_facebook}) {
    CHECK(names->size() == 182);
  }
  for (const Known& known : tiny()) {
    CAPTURE(known.timm);
    REQUIRE(in_timm.contains(known.timm));
    REQUIRE(in_torchvision.contains(known.torchvision));
    REQUIRE(in_facebook.contains(known.facebook));
    CHECK(in_timm.at(known.timm) == known.sizes);
    CHECK(in_torchvision.at(known.torchvision) == known.torchvision_sizes);
    CHECK(in_facebook.at(known.facebook) == known.sizes);
    // It is the same tensor.
    const nn::NamedTensors one = own({{known.torchvision, ones(known.torchvision_sizes)}});
    CHECK(one[0].first == known.timm);
    CHECK(renamed(one, Dialect::facebook)[0].first == known.facebook);
  }
}

TEST_CASE("names: a vit of Hugging Face, whose queries, keys and values are joined") {
  nn::NamedTensors state = state_of("vit_tiny");
  for (auto& [name, x] : state) {
    if (name.find(".attn.qkv.") != std::string::npos) {  // whose rows must keep their order
      std::vector<float> values(static_cast<size_t>(x.numel()));
      std::iota(values.begin(), values.end(), 0.0F);
      x = from_vector(values, x.sizes());
    }
  }
  const nn::NamedTensors theirs = renamed(state, Dialect::huggingface);
  // by transformers 5.24: what ViTForImageClassification(config).save_pretrained() writes, without "vit."
  const std::vector<std::string> expected = {"embeddings.cls_token",
                                             "embeddings.position_embeddings",
                                             "embeddings.patch_embeddings.projection.weight",
                                             "embeddings.patch_embeddings.projection.bias",
                                             "encoder.layer.0.layernorm_before.weight",
                                             "encoder.layer.0.layernorm_before.bias",
                                             "encoder.layer.0.attention.attention.query.weight",
                                             "encoder.layer.0.attention.attention.key.weight",
                                             "encoder.layer.0.attention.attention.value.weight",
                                             "encoder.layer.0.attention.attention.query.bias",
                                             "encoder.layer.0.attention.attention.key.bias",
                                             "encoder.layer.0.attention.attention.value.bias",
                                             "encoder.layer.0.attention.output.dense.weight",
                                             "encoder.layer.0.attention.output.dense.bias",
                                             "encoder.layer.0.layernorm_after.weight",
                                             "encoder.layer.0.layernorm_after.bias",
                                             "encoder.layer.0.intermediate.dense.weight",
                                             "encoder.layer.0.intermediate.dense.bias",
                                             "encoder.layer.0.output.dense.weight",
                                             "encoder.layer.0.output.dense.bias"};
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(theirs[i].first == expected[i]);
  }
  CHECK(theirs[theirs.size() - 4].first == "layernorm.weight");
  CHECK(theirs.back().first == "classifier.bias");
  nn::NamedTensors file;  // as ViTForImageClassification keeps it, by name
  for (const auto& [name, x] : theirs) {
    file.emplace_back(name.starts_with("classifier.") ? name : "vit." + name, x);
  }
  std::ranges::sort(file, {}, [](const auto& tensor) { return tensor.first; });
  const FoundWeights found = find_weights("FILE", file);
  CHECK(found.dialect == Dialect::huggingface);
  CHECK(found.tensors.size() == found.in_file.size());
  CHECK(found.left_out.empty());
  nn::NamedTensors sorted = found.tensors;
  nn::NamedTensors wanted = state;
  for (nn::NamedTensors* tensors : {&sorted, &wanted}) {
    std::ranges::sort(*tensors, {}, [](const auto& tensor) { return tensor.first; });
  }
  check_same(sorted, wanted);
  // Without one of the three, the others keep names that no network has.
  std::erase_if(file, [](const auto& tensor) {
    return tensor.first.find("layer.3.attention.attention.key.w") != std::string::npos;
  });
  const FoundWeights incomplete = find_weights("FILE", file);
  CHECK(std::ranges::count(incomplete.tensors, "blocks.3.attn.qkv.weight", [](const auto& t) { return t.first; }) == 0);
  CHECK(std::ranges::count(incomplete.tensors, "blocks.3.attn.query.weight", [](const auto& t) { return t.first; }) ==
        1);
}

TEST_CASE("names: there and back again is the same state dict") {
  using enum Dialect;
  for (const std::string model : {"convnext_atto", "convnext_tiny"}) {  // the small ones have convolutions as MLPs
    CAPTURE(model);
    const nn::NamedTensors state = state_of(model);
    for (const Dialect other : {torchvision, facebook, huggingface}) {
      const nn::NamedTensors there = renamed(state, other);
      CHECK(there[0].first != state[0].first);
      CHECK(find_weights("FILE", there).dialect == other);
      check_same(own(there), state);
    }
  }
  const nn::NamedTensors second = state_of("convnextv2_atto");
  for (const auto& [dialect, name] : {std::pair<Dialect, std::string>{facebook, "stages.1.0.grn.gamma"},
                                      {huggingface, "encoder.stages.1.layers.0.grn.weight"}}) {
    const nn::NamedTensors there = renamed(second, dialect);
    const auto gamma = std::ranges::find_if(there, [&](const auto& tensor) { return tensor.first == name; });
    REQUIRE(gamma != there.end());
    CHECK(gamma->second.sizes() == Sizes{1, 1, 1, 320});
    check_same(own(there), second);
  }
  CHECK(error_of([&] { renamed(second, torchvision); }) ==
        "convert: tensor 'stages.0.blocks.0.mlp.grn.weight': torchvision has none of this name, or of a network like "
        "this");
  for (const std::string model : {"resnet18", "resnet50"}) {
    const nn::NamedTensors state = state_of(model);
    check_same(renamed(state, torchvision), state);
    check_same(own(renamed(state, huggingface)), state);
    CHECK(error_of([&] { renamed(state, facebook); }) ==
          "convert: tensor 'conv1.weight': facebook has none of this name, or of a network like this");
  }
}

TEST_CASE("names: those of Hugging Face") {
  // by transformers 5.24: ResNetForImageClassification, ConvNextForImageClassification, ConvNextV2For…
  for (const auto& [theirs, ours] : std::vector<std::pair<std::string, std::string>>{
           {"resnet.embedder.embedder.convolution.weight", "conv1.weight"},
           {"resnet.embedder.embedder.normalization.running_mean", "bn1.running_mean"},
           {"resnet.encoder.stages.0.layers.0.shortcut.convolution.weight", "layer1.0.downsample.0.weight"},
           {"resnet.encoder.stages.3.layers.1.shortcut.normalization.bias", "layer4.1.downsample.1.bias"},
           {"resnet.encoder.stages.1.layers.0.layer.2.convolution.weight", "layer2.0.conv3.weight"},
           {"resnet.encoder.stages.1.layers.10.layer.0.normalization.num_batches_tracked",
            "layer2.10.bn1.num_batches_tracked"},
           {"classifier.1.weight", "fc.weight"}}) {
    CAPTURE(theirs);
    const nn::NamedTensors network = {{theirs, ones({4})},
                                      {"encoder.stages.0.layers.0.layer.0.convolution.weight", ones({4})}};
    const FoundWeights found = find_weights("FILE", network);
    CHECK(found.tensors[0].first == ours);
  }
  for (const auto& [theirs, ours] : std::vector<std::pair<std::string, std::string>>{
           {"convnext.embeddings.patch_embeddings.weight", "stem.0.weight"},
           {"convnextv2.embeddings.layernorm.bias", "stem.1.bias"},
           {"convnext.encoder.stages.1.downsampling_layer.1.weight", "stages.1.downsample.1.weight"},
           {"convnext.encoder.stages.0.layers.2.layer_scale_parameter", "stages.0.blocks.2.gamma"},
           {"convnext.encoder.stages.3.layers.0.layernorm.weight", "stages.3.blocks.0.norm.weight"},
           {"convnextv2.encoder.stages.3.layers.0.grn.bias", "stages.3.blocks.0.mlp.grn.bias"},
           {"convnext.layernorm.weight", "head.norm.weight"},
           {"classifier.weight", "head.fc.weight"}}) {
    CAPTURE(theirs);
    const nn::NamedTensors network = {{theirs, ones({4})},
                                      {"convnext.encoder.stages.0.layers.1.dwconv.bias", ones({4})}};
    CHECK(own(network)[0].first == ours);
  }
}

TEST_CASE("names: a network behind any prefix, and what stands beside it") {
  using enum Dialect;
  const nn::NamedTensors state = state_of("resnet18");
  const nn::NamedTensors other = state_of("convnext_atto");
  nn::NamedTensors wrapped =
      joined({{"n_averaged", scalar(3, DType::int64)}}, behind("module._orig_mod.model.", state));
  const FoundWeights plain = find_weights("FILE", wrapped);
  check_same(plain.tensors, state);
  CHECK(plain.left_out == std::vector<std::string>{"n_averaged"});
  CHECK(plain.prefix == "module._orig_mod.model.");
  CHECK(plain.dialect == torchvision);
  CHECK(plain.in_file[0] == "module._orig_mod.model.conv1.weight");
  // Self-supervised training: others beside it, and names that the library does not have.
  for (const auto& [dialect, network] : {std::pair<Dialect, nn::NamedTensors>{torchvision, state},
                                         {timm, other},
                                         {facebook, renamed(other, facebook)},
                                         {huggingface, behind("convnext.", renamed(other, huggingface))}}) {
    nn::NamedTensors file =
        joined(behind("module.encoder.", network),
               {{"module.predictor.0.weight", ones({2, 2})}, {"module.encoder.projector.0.bias", ones({2})}});
    const FoundWeights found = find_weights("FILE", file);
    CHECK(found.dialect == dialect);
    CHECK(found.prefix == "module.encoder.");
    CHECK(found.left_out == std::vector<std::string>{"module.predictor.0.weight"});
    CHECK(found.tensors.back().first == "projector.0.bias");
    CHECK(found.tensors.size() == network.size() + 1);
  }
  // Averages, also of Lightning, are taken where they are asked for.
  const nn::NamedTensors two =
      joined(behind("state_dict.model.", state), behind("state_dict.ema_model.module.", state));
  CHECK(find_weights("FILE", two).prefix == "state_dict.model.");
  CHECK(find_weights("FILE", two, {.averages = true}).prefix == "state_dict.ema_model.module.");
  CHECK(find_weights("FILE", behind("model_ema.", state)).prefix == "model_ema.");
  CHECK(error_of([&] { find_weights("FILE", state, {.averages = true}); }) ==
        "weights: FILE: expected averages of the weights (state_dict_ema, model_ema, …), got none");
  // Of several networks one must be named.
  const nn::NamedTensors both = joined(behind("student.module.", state), behind("teacher.", state));
  CHECK(error_of([&] { find_weights("FILE", both); }) ==
        "weights: FILE: expected the weights of one network, got several, behind teacher., student.module.; "
        "--weights-prefix names one");
  CHECK(find_weights("FILE", both, {.prefix = "student"}).prefix == "student.module.");
  CHECK(find_weights("FILE", both, {.prefix = "teacher."}).prefix == "teacher.");
  CHECK(find_weights("FILE", joined(state, behind("momentum_encoder.", state))).prefix.empty());
  CHECK(find_weights("FILE", joined(behind("state_dict.", state), behind("best.", state))).prefix == "state_dict.");
}

TEST_CASE("names: a large file of many possible networks takes no long time") {
  // Each name begins with all prefixes but the longer ones.
  nn::NamedTensors file;
  std::string prefix;
  const Tensor x = ones({4});
  for (int i = 0; i < 100; ++i) {
    prefix += "a.";
    file.emplace_back(prefix + "conv1.weight", x);
  }
  for (int i = 0; i < 20'000; ++i) {
    file.emplace_back(fmt::format("{}stages.0.{}.own", prefix, i), x);
  }
  const std::clock_t begin = std::clock();  // of this process: others may be at work
  CHECK(!find_weights("FILE", file).dialect);
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 9);  // 1 s; 12 s and more for each on its own
}

TEST_CASE("names: those of no known network stay, behind the wrappers that all have") {
  const nn::NamedTensors own_names = {{"net.0.weight", ones({2})}, {"head.weight", ones({2})}};
  check_same(own(own_names), own_names);
  CHECK(!find_weights("FILE", own_names).dialect);
  check_same(own(behind("module.", own_names)), own_names);
  // In a file with dicts, those of the weights.
  const nn::NamedTensors file = joined(behind("model.module.", own_names), {{"optimizer.state.0.exp_avg", ones({2})}});
  const FoundWeights found = find_weights("FILE", file, {.has_dicts = true});
  check_same(found.tensors, own_names);
  CHECK(found.left_out == std::vector<std::string>{"optimizer.state.0.exp_avg"});
  CHECK(find_weights("FILE", joined(file, behind("model_ema.", own_names)), {.averages = true, .has_dicts = true})
            .prefix == "model_ema.");
  for (const char* name : {"", ".", "stages", "stages.", "stages.0.blocks.0.", "stages.4.blocks.0.gamma",
                           "stages.0.downsample.0.bias", "stages.-1.blocks.0.gamma", "stages.0.blocks.x.gamma",
                           "stages.99999999999999999999.blocks.0.gamma", "stem.2.bias"}) {
    CAPTURE(name);
    CHECK(!find_weights("FILE", {{name, ones({4})}}).dialect);
  }
  // Sizes that no library has stay, too.
  CHECK(own({{"stages.0.0.pwconv1.weight", ones({8, 2, 3, 3})}})[0].second.sizes() == Sizes{8, 2, 3, 3});
}
