#include "error_text.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

using namespace norma;
using namespace norma::models;
using norma::test::error_of;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

struct Entry {
  std::string name;
  int64_t convolutions;
  int64_t channels;  ///< of all their outputs together
};
// Each convolution of a ResNet is followed by a norm of its channels: resnet50 has 53 of 26,560. ConvNeXts have the
// stem, three that halve the image, and one in each block: 40 + 2 · 40 + 80 + 2 · 80 + 160 + 6 · 160 + 320 + 2 · 320.
const std::vector<Entry> kNetworks = {{"resnet18", 20, 4800},
                                      {"resnet50", 53, 26560},
                                      {"convnext_atto", 16, 2440},
                                      {"convnext_tiny", 22, 8064},
                                      {"convnextv2_atto", 16, 2440}};

std::vector<std::string> names_of(const nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& [name, x] : model.state_dict()) {
    names.push_back(name);
  }
  return names;
}

template <class Layer>
int64_t count(nn::Module& model) {
  int64_t found = 0;
  for (const auto& [path, module] : model.named_modules()) {
    found += dynamic_cast<const Layer*>(module) != nullptr ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("conv_layer: every convolution of a network, under the same names, scaled ones have a gain more") {
  for (const Entry& entry : kNetworks) {
    CAPTURE(entry.name);
    const auto make = [&](const std::string& conv_layer) {
      return create_model(entry.name, {.conv_layer = conv_layer, .initialize = false});
    };
    const auto plain = make("conv");
    const auto standard = make("std_conv");
    const auto scaled = make("scaled_std_conv");
    CHECK(count<nn::Conv2d>(*plain) == entry.convolutions);
    CHECK(count<nn::Conv2d>(*standard) == 0);
    CHECK(count<nn::StdConv2d>(*standard) == entry.convolutions);
    CHECK(count<nn::ConvolutionModule>(*scaled) == count<nn::ScaledStdConv2d>(*scaled));
    CHECK(count<nn::ScaledStdConv2d>(*scaled) == entry.convolutions);

    CHECK(names_of(*standard) == names_of(*plain));
    CHECK(standard->parameter_count() == plain->parameter_count());
    CHECK(scaled->parameter_count() == plain->parameter_count() + entry.channels);
    std::vector<std::string> without_gains;
    for (const std::string& name : names_of(*scaled)) {
      if (!name.ends_with(".gain")) {
        without_gains.push_back(name);
      }
    }
    CHECK(without_gains == names_of(*plain));
    CHECK(static_cast<int64_t>(names_of(*scaled).size() - without_gains.size()) == entry.convolutions);
  }
}

TEST_CASE("conv_layer: what multiplies or moves a standardized weight does not count" *
          doctest::test_suite("slow-emulated")) {
  for (const std::string name : {"resnet18", "convnextv2_atto"}) {
    for (const std::string conv_layer : {"std_conv", "scaled_std_conv"}) {
      CAPTURE(name);
      CAPTURE(conv_layer);
      const auto model = create_model(name, {.num_classes = 4, .norm = "group:4", .conv_layer = conv_layer});
      model->to(DType::float64);
      const NoGradGuard guard;
      const Tensor x = random_tensor({2, 3, 32, 48}, 1);
      std::vector<std::pair<Tensor, Tensor>> weights;
      for (const auto& [path, module] : model->named_modules()) {
        if (const auto* conv = dynamic_cast<const nn::ConvolutionModule*>(module)) {
          weights.emplace_back(conv->weight(), copy_of(conv->weight()));
          copy_into(mul(conv->weight(), 1e4), conv->weight());  // far above the root of eps
        }
      }
      const Tensor before = (*model)(x);
      for (const auto& [weight, start] : weights) {
        copy_into(add(mul(start, 3e4), 0.1), weight);
      }
      const Tensor after = (*model)(x);
      CHECK(largest_number(before) > 1e-3);
      CHECK(max_difference(after, before) <= 1e-6 * largest_number(before));
    }
  }
}

TEST_CASE("conv_layer: geometry and bias are those of the convolutions they replace") {
  for (const Entry& entry : kNetworks) {
    const auto plain = create_model(entry.name, {.initialize = false});
    for (const auto& [conv_layer, prefix] : {std::pair("std_conv", "Std"), {"scaled_std_conv", "ScaledStd"}}) {
      const auto model = create_model(entry.name, {.conv_layer = conv_layer, .initialize = false});
      const auto modules = model->named_modules();
      const auto plain_modules = plain->named_modules();
      REQUIRE(modules.size() == plain_modules.size());
      for (size_t i = 0; i < modules.size(); ++i) {
        const bool is_conv = dynamic_cast<const nn::Conv2d*>(plain_modules[i].second) != nullptr;
        CHECK(modules[i].first == plain_modules[i].first);
        CHECK(modules[i].second->name() == (is_conv ? prefix : "") + plain_modules[i].second->name());
      }
    }
  }
  const auto name = [](const std::string& conv_layer, const nn::Conv2dOptions& options) {
    return nn::make_conv(conv_layer, 4, 8, Pair(3, 5), options)->name();
  };
  const nn::Conv2dOptions options{.stride = 2, .padding = Pair(0, 1), .dilation = 2, .groups = 4, .bias = false};
  CHECK(name("conv", options) ==
        "Conv2d(4, 8, kernel=(3, 5), stride=(2, 2), padding=(0, 1), dilation=(2, 2), groups=4, bias=false)");
  CHECK(name("std_conv", options) == "Std" + name("conv", options));
  CHECK(name("scaled_std_conv", options) == "ScaledStd" + name("conv", options));
  CHECK(name("std_conv", {}) == "StdConv2d(4, 8, kernel=(3, 5), stride=(1, 1))");
}

TEST_CASE("conv_layer: error texts") {
  CHECK(error_of([] { create_model("resnet18", {.conv_layer = "std_cnov"}); }) ==
        "conv_layer: unknown convolution 'std_cnov'; did you mean 'std_conv'?");
  CHECK(error_of([] { create_model("convnext_atto", {.conv_layer = ""}); }) ==
        "conv_layer: unknown convolution ''; did you mean 'conv'?");
  CHECK(error_of([] { nn::make_conv("ws_conv", 3, 4, 3); }) ==
        "conv_layer: unknown convolution 'ws_conv'; did you mean 'conv'?");
  CHECK(error_of([] {
          create_model("convnext_atto", {.in_channels = 1, .conv_layer = "std_conv", .patch_size = 1});
        }) == "conv_layer: std_conv: expected more than 1 weight per output channel, got 1");
  CHECK(error_of([] { create_model("convnext_atto", {.in_channels = 1, .patch_size = 1, .initialize = false}); }) ==
        "no error");
}
