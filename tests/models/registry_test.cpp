#include "models/registry.h"

#include "core/allocator.h"
#include "error_text.h"
#include "models/parameter_depths.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "paths.h"

#include <fstream>
#include <sstream>

using namespace norma;
using namespace norma::models;
using norma::test::differ;
using norma::test::error_of;
using norma::test::max_difference;

namespace {

std::string listing(const nn::Module& model) {
  std::string text;
  for (const auto& [name, x] : model.state_dict()) {
    text += name + " " + to_string(x.sizes()) + "\n";
  }
  return text;
}

uint64_t fnv1a(const std::string& text) {
  uint64_t value = 14695981039346656037ULL;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return value;
}

std::shared_ptr<nn::Module> empty_model(const std::string& name, const std::string& norm = "") {
  return create_model(name, {.norm = norm, .initialize = false});
}

}  // namespace

TEST_CASE("models: state dict name by name as torchvision and timm") {
  for (const std::string model : {"resnet18", "resnet50", "convnext_tiny", "vit_tiny"}) {
    CAPTURE(model);
    std::ifstream file(test::source_folder() / "tests/models/names" / (model + ".txt"));
    std::stringstream expected;
    expected << file.rdbuf();
    REQUIRE(expected.str().size() > 1000);
    CHECK(listing(*empty_model(model)) == expected.str());
  }
}

TEST_CASE("models: parameters, tensors, names and sizes of every network") {
  struct Expected {
    std::string name;
    int64_t parameters;
    size_t tensors;
    uint64_t hash;
  };
  // printed by tests/models/make_names.py
  const std::vector<Expected> all = {
      {"resnet18", 11689512, 122, 0x5b63edfa52a44602},        {"resnet34", 21797672, 218, 0x9694acdcb89c5faa},
      {"resnet50", 25557032, 320, 0x7423ad1ca2684dc6},        {"resnet101", 44549160, 626, 0x646983ae90bb6281},
      {"resnet152", 60192808, 932, 0xc40d8cc5d5ad5e68},       {"convnext_tiny", 28589128, 182, 0xb1e9ddffa56b8717},
      {"convnext_small", 50223688, 344, 0x5ad0bc7118f75e98},  {"convnext_base", 88591464, 344, 0x07e45b0a69a9f6b1},
      {"convnext_large", 197767336, 344, 0xc8ef95e40272d1e8}, {"vit_tiny", 5717416, 152, 0xed8ed45696b99f47},
      {"vit_small", 22050664, 152, 0x67ef1eb4ce9fb35e},       {"vit_base", 86567656, 152, 0x7179d64f499b0658},
      {"vit_base_clip", 86568424, 153, 0x5a9501de3426b4cc}};
  for (const Expected& expected : all) {
    CAPTURE(expected.name);
    const auto model = empty_model(expected.name);
    CHECK(model->parameter_count() == expected.parameters);
    CHECK(model->state_dict().size() == expected.tensors);
    CHECK(fnv1a(listing(*model)) == expected.hash);
  }
  allocator(kCpu).empty_cache();
}

TEST_CASE("models: parameters and tensors of the networks that torchvision lacks" *
          doctest::test_suite("slow-emulated")) {
  struct Expected {
    std::string name;
    int64_t parameters;
    size_t tensors;
  };
  // counted from depths d and widths w: 48 w0 + 3 w0, for each later stage 2 w' + 4 w' w + w, for each block
  // 8 w² + 58 w (V2: 8 w² + 65 w, no gamma but 8 w of the global response norm), and 2 w3 + 1001 w3 …; timm gives 3.70,
  // 5.22, 9.05, 15.59 and 350.20 million, and for V2 3.71, 5.23, 9.07, 15.62, 28.64, 50.32, 88.72, 197.96 and 660.29
  const std::vector<Expected> all = {
      {"convnext_atto", 3695520, 128},      {"convnext_femto", 5217784, 128},    {"convnext_pico", 9045672, 128},
      {"convnext_nano", 15593560, 146},     {"convnext_xlarge", 350196968, 344}, {"convnextv2_atto", 3708400, 140},
      {"convnextv2_femto", 5233240, 140},   {"convnextv2_pico", 9066280, 140},   {"convnextv2_nano", 15623800, 160},
      {"convnextv2_tiny", 28635496, 200},   {"convnextv2_small", 50318440, 380}, {"convnextv2_base", 88717800, 380},
      {"convnextv2_large", 197956840, 380}, {"convnextv2_huge", 660289640, 380}};
  for (const Expected& expected : all) {
    CAPTURE(expected.name);
    const auto model = empty_model(expected.name);
    CHECK(model->parameter_count() == expected.parameters);
    CHECK(model->state_dict().size() == expected.tensors);
  }
  allocator(kCpu).empty_cache();
}

TEST_CASE("models: resnet50 with other norms keeps its names") {
  for (const std::string norm : {"layer2d", "group", "group:32", "group/16", "instance"}) {
    CAPTURE(norm);
    const auto model = empty_model("resnet50", norm);
    CHECK(model->parameter_count() == 25557032);
    CHECK(model->state_dict().size() == 161);
    CHECK(model->state_dict()[1].first == "bn1.weight");
  }
  const auto plain = empty_model("resnet50", "none");
  CHECK(plain->parameter_count() == 25557032 - 53120);
  CHECK(plain->state_dict().size() == 55);
}

TEST_CASE("models: convnext with other norms, its eps and its head") {
  const auto names = [](const std::string& norm) {
    const auto model = empty_model("convnext_atto", norm);
    std::string stem;
    std::string head;
    for (const auto& [name, module] : std::as_const(*model).named_modules()) {
      stem = name == "stem.1" ? module->name() : stem;
      head = name == "head.norm" ? module->name() : head;
    }
    return stem + " " + head;
  };
  CHECK(names("") == "LayerNorm2d(40, eps=1e-06) LayerNorm2d(320, eps=1e-06)");
  CHECK(names("batch") == "BatchNorm2d(40, eps=1e-06, momentum=0.1) BatchNorm2d(320, eps=1e-06, momentum=0.1)");
  CHECK(names("group[eps=1e-3]") == "GroupNorm(20, 40, eps=0.001) GroupNorm(32, 320, eps=0.001)");
  CHECK(names("instance") == "InstanceNorm2d(40, eps=1e-06) LayerNorm2d(320, eps=1e-06)");
  CHECK(names("none") == "NoNorm NoNorm");
  CHECK(error_of([] { empty_model("convnext_atto", "group:32"); }) ==
        "group_norm: num_channels must be divisible by num_groups, got num_channels 40, num_groups 32");
}

TEST_CASE("models: options change the shapes they should") {
  const auto find = [](const nn::Module& model, const std::string& name) {
    for (const auto& [known, x] : model.state_dict()) {
      if (known == name) {
        return x;
      }
    }
    return Tensor();
  };
  const auto resnet = create_model(
      "resnet18", {.num_classes = 10, .in_channels = 1, .small_stem = true, .zero_init_last = true, .drop_path = 0.2});
  CHECK(find(*resnet, "conv1.weight").sizes() == Sizes{64, 1, 3, 3});
  CHECK(find(*resnet, "fc.weight").sizes() == Sizes{10, 512});
  CHECK(max_difference(find(*resnet, "layer1.0.bn2.weight"), zeros({64})) == 0);
  CHECK(max_difference(find(*resnet, "layer1.0.bn1.weight"), ones({64})) == 0);
  const auto convnext =
      create_model("convnext_atto", {.num_classes = 10, .in_channels = 1, .patch_size = 2, .layer_scale = 0.5});
  CHECK(find(*convnext, "stem.0.weight").sizes() == Sizes{40, 1, 2, 2});
  CHECK(find(*convnext, "head.fc.bias").sizes() == Sizes{10});
  CHECK(find(*convnext, "stages.0.blocks.0.mlp.fc1.weight").sizes() == Sizes{160, 40, 1, 1});
  CHECK(max_difference(find(*convnext, "stages.3.blocks.1.gamma"), full({320}, 0.5)) == 0);
  CHECK(!find(*create_model("convnext_atto", {.layer_scale = 0}), "stages.3.blocks.1.gamma").defined());
}

TEST_CASE("models: drop path rises linearly over the blocks") {
  for (const std::string name : {"resnet18", "convnext_atto"}) {
    const auto model = create_model(name, {.drop_path = 0.2, .initialize = false});
    std::string rates;
    for (const auto& [path, module] : std::as_const(*model).named_modules()) {
      if (path.ends_with("drop_path")) {
        rates += module->name() + " ";
      }
    }
    const int blocks = name == "resnet18" ? 8 : 12;
    std::string expected;
    for (int i = 1; i < blocks; ++i) {
      expected += fmt::format("DropPath({}) ", 0.2 * i / (blocks - 1));
    }
    CHECK(rates == expected);
  }
}

TEST_CASE("models: start values depend on the seed and nothing else") {
  for (const std::string name : {"resnet18", "convnext_atto"}) {
    CAPTURE(name);
    const auto a = create_model(name, {.num_classes = 10, .seed = 4});
    const auto b = create_model(name, {.num_classes = 10, .seed = 4});
    const auto c = create_model(name, {.num_classes = 10, .seed = 5});
    const auto other_norm = create_model(name, {.num_classes = 10, .norm = "group", .seed = 4});
    const nn::NamedTensors x = a->state_dict();
    const nn::NamedTensors y = b->state_dict();
    for (size_t i = 0; i < x.size(); ++i) {
      CHECK(max_difference(x[i].second, y[i].second) == 0);
    }
    CHECK(differ(x[0].second, c->state_dict()[0].second, 0.01));
    CHECK(max_difference(a->parameters().end()[-2], other_norm->parameters().end()[-2]) == 0);
  }
}

TEST_CASE("models: deviation of the start values") {
  const auto deviation = [](const Tensor& x) {
    double squares = 0;
    for (const double value : x.to_vector<double>()) {
      squares += value * value;
    }
    return std::sqrt(squares / static_cast<double>(x.numel()));
  };
  const auto resnet = create_model("resnet18", {});
  for (const auto& [name, x] : resnet->named_parameters()) {
    CAPTURE(name);
    if (x.rank() == 4) {
      const double expected = std::sqrt(2.0 / static_cast<double>(x.size(0) * x.size(2) * x.size(3)));
      CHECK(std::abs(deviation(x) - expected) <= 0.04 * expected);
    } else if (name == "fc.weight") {
      CHECK(std::abs(deviation(x) - std::sqrt(1.0 / 512 / 3)) <= 0.02 * std::sqrt(1.0 / 512 / 3));
    }
  }
  const auto convnext = create_model("convnext_atto", {});
  for (const auto& [name, x] : convnext->named_parameters()) {
    CAPTURE(name);
    if (x.rank() > 1) {  // the smallest has 1920 values
      CHECK(std::abs(deviation(x) - 0.02) <= 0.08 * 0.02);
    } else if (name.ends_with("bias")) {
      CHECK(deviation(x) == 0);
    } else if (name.ends_with("gamma")) {
      CHECK(std::abs(deviation(x) - 1e-6) <= 1e-12);
    }
  }
}

TEST_CASE("models: weights of linear and convolutional MLPs load each other") {
  const auto from = create_model("convnext_atto", {.num_classes = 10, .seed = 1});
  nn::NamedTensors dict = from->state_dict();
  for (auto& [name, x] : dict) {
    if (name.find(".mlp.fc") != std::string::npos && x.rank() == 4) {
      x = alias(x, {x.size(0), x.size(1)}, {x.size(1), 1}, x.offset());
    }
  }
  const auto to = create_model("convnext_atto", {.num_classes = 10, .initialize = false});
  to->to(MemoryFormat::channels_last);
  to->load_state_dict(dict);
  const nn::NamedTensors loaded = to->state_dict();
  for (size_t i = 0; i < loaded.size(); ++i) {
    CHECK(max_difference(loaded[i].second, from->state_dict()[i].second) == 0);
  }
}

TEST_CASE("models: names") {
  const std::vector<std::string> names = model_names();
  CHECK(names.size() == 27);
  CHECK(names.front() == "resnet18");
  CHECK(names.back() == "vit_base_clip");
}

TEST_CASE("models: error texts") {
  const auto error = [](const std::string& name, const ModelOptions& options) {
    return error_of([&] { create_model(name, options); });
  };
  CHECK(error("resnet5", {}) == "model: unknown model 'resnet5'; did you mean 'resnet50'?");
  CHECK(error("convnext_tinny", {}) == "model: unknown model 'convnext_tinny'; did you mean 'convnext_tiny'?");
  CHECK(error("resnet18", {.num_classes = 0}) == "model: num_classes: expected a positive number, got 0");
  CHECK(error("resnet18", {.in_channels = 0}) == "model: in_channels: expected a positive number, got 0");
  CHECK(error("resnet18", {.drop_path = 1}) == "model: drop_path: expected a value in [0, 1), got 1");
  CHECK(error("resnet18", {.norm = "bath"}) == "norm: unknown norm 'bath'; did you mean 'batch'?");
  CHECK(error("resnet18", {.patch_size = 2}) ==
        "model: patch_size: resnet18 has no patches; small_stem is its stem for small images");
  CHECK(error("resnet18", {.layer_scale = 1}) == "model: layer_scale: resnet18 has no layer scale");
  CHECK(error("resnet18", {.norm = "none", .zero_init_last = true}) ==
        "model: zero_init_last: expected a norm with a weight, got NoNorm");
  CHECK(error("resnet18", {.norm = "grn", .zero_init_last = true}) ==
        "model: zero_init_last: expected a norm whose output its weight scales, got GlobalResponseNorm(64, eps=1e-06)");
  CHECK(error("convnext_atto", {.small_stem = true}) ==
        "model: small_stem: convnext_atto has no such stem; patch_size makes its stem fit small images");
  CHECK(error("convnext_atto", {.zero_init_last = true}) ==
        "model: zero_init_last: convnext_atto has no such option; layer_scale makes its blocks start near the "
        "identity");
  CHECK(error("convnext_atto", {.patch_size = 0}) == "model: patch_size: expected a positive number, got 0");
  CHECK(error("convnext_atto", {.layer_scale = -1}) == "model: layer_scale: expected a number >= 0, got -1");
}

TEST_CASE("registry: networks are recognized by their tensors, whatever the norm and the classes") {
  for (const char* name : {"resnet18", "resnet34", "resnet50", "convnext_atto", "convnextv2_atto", "convnext_femto",
                           "vit_tiny", "vit_small"}) {
    for (const char* norm : {"", "group:8"}) {
      CAPTURE(name);
      CAPTURE(norm);
      const auto model = create_model(name, {.num_classes = 7, .norm = norm, .initialize = false});
      CHECK(recognize_model(model->state_dict()) == name);
    }
  }
  CHECK(recognize_model({}) == "");
  CHECK(recognize_model(
            {{"layer0.0.x", zeros({3})}, {"layer9.0.x", zeros({3})}, {"stages.7.blocks.0.y", zeros({3})}}) == "");
  nn::NamedTensors longer = create_model("resnet18", {.initialize = false})->state_dict();
  longer.emplace_back("layer4.2.conv1.weight", zeros({3}));
  CHECK(recognize_model(longer) == "");
}

TEST_CASE("models: one of one's own is known by its name, with the options that it has") {
  static ModelOptions seen;  // the registry keeps the function
  register_model("my_net", {.make = [](const ModelOptions& options) -> std::shared_ptr<nn::Module> {
                              seen = options;
                              auto network = std::make_shared<nn::Sequential>();
                              network->push_back(std::make_shared<nn::Conv2d>(options.in_channels, 8, 3));
                              network->push_back(nn::make_norm(options.norm, 8));
                              return network;
                            },
                            .own_norm = "group:4",
                            .options = {"small_stem"}});
  const std::vector<std::string> names = model_names();
  CHECK(names.back() == "my_net");
  CHECK_FALSE(default_patch_size("my_net", 32).has_value());
  CHECK(own_norm("my_net") == "group:4");
  CHECK(model_takes("my_net", "small_stem"));
  CHECK_FALSE(model_takes("my_net", "patch_size"));
  const auto model = create_model("my_net", {.num_classes = 3, .small_stem = true, .seed = 7});
  CHECK(seen.norm == "group:4");
  CHECK(seen.seed == 7);
  CHECK(model->named_modules().size() == 3);
  create_model("my_net", {.norm = "batch"});
  CHECK(seen.norm == "batch");
  // A policy is applied to it as to every network.
  const auto other = create_model("my_net", {.norm_policy = nn::parse_norm_policy("\"1\" = \"layer2d\"", "policy")});
  CHECK(other->named_modules()[2].second->name().starts_with("LayerNorm2d"));

  CHECK(error_of([] { create_model("my_net", {.patch_size = 2}); }) == "model: my_net has no option patch_size");
  CHECK(error_of([] { create_model("my_net", {.drop_path = 0.1}); }) == "model: my_net has no option drop_path");
  CHECK(error_of([] { create_model("my_net", {.grad_checkpointing = true}); }) ==
        "model: my_net has no option grad_checkpointing");
  CHECK(error_of([] { create_model("my_ned"); }) == "model: unknown model 'my_ned'; did you mean 'my_net'?");
  const auto make = [](const ModelOptions&) { return std::shared_ptr<nn::Module>(); };
  CHECK(error_of([&] { register_model("my_net", {.make = make}); }) == "register_model: name: 'my_net' is taken");
  CHECK(error_of([&] { register_model("resnet18", {.make = make}); }) == "register_model: name: 'resnet18' is taken");
  CHECK(error_of([&] { register_model("", {.make = make}); }) ==
        "register_model: name: expected a text, got an empty one");
  CHECK(error_of([&] { register_model("x", {}); }) == "register_model: make: expected a function, got none");
  CHECK(error_of([&] { register_model("x", {.make = make, .own_norm = "bath"}); }) ==
        "norm: unknown norm 'bath'; did you mean 'batch'?");
  CHECK(error_of([&] { register_model("x", {.make = make, .options = {"small_step"}}); }) ==
        "register_model: options: unknown option 'small_step'; did you mean 'small_stem'?");
}

TEST_CASE("models: a registered network may take each option that a built-in one has") {
  const std::vector<std::string> options = {"conv_layer",  "small_stem", "patch_size",         "zero_init_last",
                                            "layer_scale", "drop_path",  "grad_checkpointing", "global_pool",
                                            "qk_norm",     "qkv_bias",   "pos_drop",           "norm_placement"};
  static bool has_bias = true;
  register_model("my_vit", {.make =
                                [](const ModelOptions& given) {
                                  has_bias = given.qkv_bias;
                                  return std::make_shared<nn::Sequential>();
                                },
                            .options = options});
  create_model("my_vit", {.qkv_bias = false, .pos_drop = 0.1});
  CHECK_FALSE(has_bias);
}

TEST_CASE("models: a registered network that takes patch_size gets small ones for small images") {
  register_model("my_patches", {.make = [](const ModelOptions&) { return std::make_shared<nn::Sequential>(); },
                                .options = {"patch_size"}});
  CHECK(default_patch_size("my_patches", 32) == 2);
  CHECK_FALSE(default_patch_size("my_patches", 64).has_value());  // its own
  CHECK_NOTHROW(check_image_size("train", "my_patches", 5, 2));
}

TEST_CASE("models: depths of parameters, and networks that have none") {
  const auto depths = parameter_depths(*empty_model("resnet50"));
  CHECK(depths.at("conv1.weight") == 0);
  CHECK(depths.at("layer1.0.conv1.weight") == 1);
  CHECK(depths.at("layer3.5.bn3.weight") == 13);
  CHECK(depths.at("fc.bias") == 17);
  const nn::Sequential plain{std::make_shared<nn::Linear>(2, 3)};
  CHECK(error_of([&] { parameter_depths(plain); }) ==
        "parameter_depths: network: expected parameters of blocks, as layer1.0.conv1.weight or "
        "stages.0.blocks.0.conv_dw.weight, got none in Sequential");
}
