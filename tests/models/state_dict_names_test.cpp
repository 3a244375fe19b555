#include "models/state_dict_names.h"

#include "core/factory.h"
#include "error_text.h"
#include "models/registry.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
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
  const auto in_torchvision = sizes_in(rename_state_dict(timm, Dialect::timm, Dialect::torchvision).tensors);
  const auto in_facebook = sizes_in(rename_state_dict(timm, Dialect::timm, Dialect::facebook).tensors);
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
    const nn::NamedTensors one = {{known.torchvision, ones(known.torchvision_sizes)}};
    CHECK(rename_state_dict(one, Dialect::torchvision, Dialect::timm).tensors[0].first == known.timm);
    CHECK(rename_state_dict(one, Dialect::torchvision, Dialect::facebook).tensors[0].first == known.facebook);
  }
}

TEST_CASE("names: there and back again is the same state dict") {
  using enum Dialect;
  for (const std::string model : {"convnext_atto", "convnext_tiny"}) {  // the small ones have convolutions as MLPs
    CAPTURE(model);
    const nn::NamedTensors state = state_of(model);
    for (const Dialect other : {torchvision, facebook}) {
      const Renamed there = rename_state_dict(state, timm, other);
      CHECK(there.changed.size() == state.size());
      check_same(rename_state_dict(there.tensors, other, timm).tensors, state);
      const Dialect third = other == torchvision ? facebook : torchvision;
      check_same(rename_state_dict(rename_state_dict(there.tensors, other, third).tensors, third, timm).tensors, state);
    }
  }
  const nn::NamedTensors second = state_of("convnextv2_atto");
  const Renamed there = rename_state_dict(second, timm, facebook);
  const auto gamma = std::find_if(there.tensors.begin(), there.tensors.end(),
                                  [](const auto& tensor) { return tensor.first == "stages.1.0.grn.gamma"; });
  REQUIRE(gamma != there.tensors.end());
  CHECK(gamma->second.sizes() == Sizes{1, 1, 1, 320});
  check_same(rename_state_dict(there.tensors, facebook, timm).tensors, second);
  CHECK(error_of([&] { rename_state_dict(second, timm, torchvision); }) ==
        "convert: tensor 'stages.0.blocks.0.mlp.grn.weight': torchvision has no ConvNeXt V2");
}

TEST_CASE("names: wrappers are taken off where all tensors have them") {
  using enum Dialect;
  const nn::NamedTensors state = state_of("resnet18");
  nn::NamedTensors wrapped = {{"n_averaged", scalar(3, DType::int64)}};
  for (const auto& [name, x] : state) {
    wrapped.emplace_back("module._orig_mod.model." + name, x);
  }
  const Renamed plain = rename_state_dict(wrapped, torchvision, timm);
  check_same(plain.tensors, state);
  CHECK(plain.dropped == std::vector<std::string>{"n_averaged"});
  CHECK(plain.reshaped.empty());
  REQUIRE(plain.changed.size() == state.size());
  CHECK(plain.changed[0] == std::pair<std::string, std::string>{"module._orig_mod.model.conv1.weight", "conv1.weight"});
  CHECK(rename_state_dict(state, timm, torchvision).changed.empty());
  CHECK(error_of([&] { rename_state_dict(state, timm, facebook); }) ==
        "convert: tensor 'conv1.weight': expected a ConvNeXt, as facebook has no ResNet");
  CHECK(recognize_dialect(wrapped) == torchvision);
  check_same(unwrapped_state_dict(wrapped), state);
  wrapped.emplace_back("fc.extra", ones({1}));  // now the wrapper is not around everything
  CHECK(error_of([&] { rename_state_dict(wrapped, torchvision, timm); }) ==
        "convert: tensor 'module._orig_mod.model.conv1.weight': expected a name of a ResNet, as others are");
}

TEST_CASE("names: what is not of the library, with the library that it is of") {
  using enum Dialect;
  const auto error = [](const std::string& name, Dialect from) {
    return error_of([&] { rename_state_dict({{name, ones({4})}}, from, timm); });
  };
  CHECK(error("stem.0.bias", torchvision) ==
        "convert: tensor 'stem.0.bias': expected a name of torchvision's ConvNeXt or ResNet; it is one of timm's: "
        "--from timm");
  CHECK(error("features.1.0.block.1.bias", torchvision) ==
        "convert: tensor 'features.1.0.block.1.bias': expected a name of torchvision's ConvNeXt or ResNet");
  for (const char* name : {"", ".", "stages", "stages.", "stages.0.blocks.0.", "stages.4.blocks.0.gamma",
                           "stages.0.downsample.0.bias", "stages.-1.blocks.0.gamma", "stages.0.blocks.x.gamma",
                           "stages.99999999999999999999.blocks.0.gamma", "stem.2.bias", "head.fc", "norm_pre.weight"}) {
    CAPTURE(name);
    CHECK(error(name, timm).starts_with(fmt::format("convert: tensor '{}': expected a name of timm's ConvNeXt", name)));
  }
  CHECK(error_of([] {
          rename_state_dict({{"stages.0.blocks.0.mlp.fc1.weight", ones({8, 2, 3, 3})}}, timm, facebook);
        }) ==
        "convert: tensor 'stages.0.blocks.0.mlp.fc1.weight': expected 16 elements, for sizes [8, 2], got sizes [8, 2, "
        "3, 3]");
}
