#include "error_text.h"
#include "models/registry.h"
#include "nn/norm/convert.h"
#include "nn/optim/optimizers.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <numeric>
#include <set>

using namespace norma;
using namespace norma::models;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;
using norma::test::set_element;

namespace {

Tensor images(int64_t count, int64_t size, MemoryFormat format, DType dtype = DType::float32) {
  return copy_of(random_tensor({count, 3, size, size}, 3, dtype), format);
}

// The strict format of a tensor of rank 4: with sizes of 1 the loose one cannot tell them apart.
MemoryFormat format_of(const Tensor& x) {
  return suggest_memory_format(x.sizes(), x.strides());
}

struct Walk {
  int activations = 0;
  int gradients = 0;
  std::set<std::string> wrong;
};

// Runs a network forwards and backwards and looks at every tensor of rank 4 that a module takes, gives, or gets as
// gradient.
Walk walk(const std::string& name, const ModelOptions& options, int64_t size, MemoryFormat format) {
  auto model = create_model(name, options);
  model->to(format);
  Walk result;
  for (const auto& [path, module] : model->named_modules()) {
    // The parts of an MLP in ConvNeXt, where 1x1 convolutions of contiguous images are slow (models/convnext.cpp).
    const bool turned = path.find(".mlp.") != std::string::npos && conv2d_transposes_contiguous();
    module->register_forward_hook([&result, format = turned ? MemoryFormat::channels_last : format, label = path](
                                      const nn::Module&, const Tensor& in, const Tensor& out) {
      for (const Tensor* x : {&in, &out}) {
        if (x->rank() != 4) {
          continue;
        }
        ++result.activations;
        // a format without gaps, in the strict sense
        if (format_of(*x) != format || !x->is_contiguous(format)) {
          result.wrong.insert(label + " " + describe(*x));
        }
        x->register_hook([&result, format, label](const Tensor& gradient) {
          ++result.gradients;
          if (format_of(gradient) != format || !gradient.is_contiguous(format)) {
            result.wrong.insert(label + " gradient " + describe(gradient));
          }
          return Tensor();
        });
      }
    });
  }
  Tensor x = images(2, size, format);
  x.set_requires_grad();
  const Tensor y = (*model)(x);
  CHECK(y.sizes() == Sizes{2, options.num_classes});
  cross_entropy(y, from_vector<int64_t>({1, 2}, {2})).backward();
  CHECK(format_of(x.grad()) == format);
  for (const auto& [path, parameter] : model->named_parameters()) {
    CAPTURE(path);
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().strides() == parameter.strides());
  }
  return result;
}

// The losses before and after each of some steps on four images that never change.
std::vector<double> losses(nn::Module& model, int steps, double lr, MemoryFormat format) {
  model.to(format);
  nn::AdamW optimizer(nn::parameter_groups(model, 0), {.lr = lr});
  const Tensor x = images(4, 32, format);
  const Tensor target = from_vector<int64_t>({0, 1, 2, 3}, {4});
  std::vector<double> result;
  for (int i = 0;; ++i) {
    const Tensor loss = cross_entropy(model(x), target);
    result.push_back(loss.item<float>());
    if (i == steps) {
      return result;
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

ModelOptions small(const std::string& name, const std::string& norm) {
  ModelOptions options{.num_classes = 4, .norm = norm, .seed = 1};
  if (name.starts_with("resnet")) {
    options.small_stem = true;
  } else {
    options.patch_size = 2;
  }
  return options;
}

}  // namespace

TEST_CASE("networks: no module changes the memory format, forwards or backwards" *
          doctest::test_suite("slow-emulated")) {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const std::string norm : {"batch", "layer2d", "group", "instance", "none", "local_response", "evonorm_b0",
                                   "evonorm_s0", "frn", "grn", "dyt", "derf", "seednorm"}) {
      for (const std::string name : {"resnet18", "resnet50", "convnext_atto", "convnext_tiny", "convnextv2_atto"}) {
        const bool own = norm == (name.starts_with("resnet") ? "batch" : "layer2d");
        if (!own && name != "resnet18" && name != "convnext_atto") {
          continue;  // the large networks once: their parts are those of the small ones
        }
        CAPTURE(name);
        CAPTURE(norm);
        CAPTURE(to_string(format));
        ModelOptions options = small(name, norm);
        options.initialize = false;  // strides do not depend on values
        const Walk result = walk(name, options, 32, format);
        const std::string wrong = std::accumulate(result.wrong.begin(), result.wrong.end(), std::string(),
                                                  [](const auto& a, const auto& b) { return a + b + "\n"; });
        CHECK_MESSAGE(result.wrong.empty(), wrong);
        CHECK(result.activations > 60);
        CHECK(result.gradients > 60);
      }
    }
  }
}

TEST_CASE("networks: resnet with its large stem keeps the memory format") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    CHECK(walk("resnet18", {.num_classes = 4}, 64, format).wrong.empty());
    CHECK(walk("resnet18", {.num_classes = 4}, 33, format).wrong.empty());
  }
}

TEST_CASE("networks: every convolution layer keeps the memory format" * doctest::test_suite("slow-emulated")) {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const std::string conv_layer : {"std_conv", "scaled_std_conv"}) {
      for (const std::string name : {"resnet18", "resnet50", "convnext_atto", "convnextv2_atto"}) {
        CAPTURE(name);
        CAPTURE(conv_layer);
        CAPTURE(to_string(format));
        ModelOptions options = small(name, "group");
        options.conv_layer = conv_layer;
        options.initialize = false;
        const Walk result = walk(name, options, 32, format);
        CHECK_MESSAGE(result.wrong.empty(), *result.wrong.begin());
        CHECK(result.activations > 60);
      }
    }
  }
}

TEST_CASE("networks: two steps with every convolution layer, with the norms that they are for" *
          doctest::test_suite("slow-emulated")) {
  for (const std::string name : {"resnet18", "convnext_atto", "convnextv2_atto"}) {
    const nn::NamedTensors start = create_model(name, small(name, ""))->state_dict();
    for (const auto& [conv_layer, norm] : {std::pair("std_conv", "group"), {"scaled_std_conv", "none"}}) {
      CAPTURE(name);
      CAPTURE(conv_layer);
      ModelOptions options = small(name, norm);
      options.conv_layer = conv_layer;
      options.initialize = false;  // drawing the values would take longer than the training
      const auto model = create_model(name, options);
      model->load_state_dict(start, {.strict = false});
      const std::vector<double> run = losses(*model, 2, 1e-4, MemoryFormat::channels_last);
      CHECK(run[1] < run[0]);
      CHECK(run[2] < run[1]);
      CHECK(run[2] > 0);
    }
  }
}

TEST_CASE("networks: norms with options train in both families") {
  for (const std::string name : {"resnet18", "convnext_atto"}) {
    const nn::NamedTensors start = create_model(name, small(name, ""))->state_dict();
    for (const std::string norm : {"batch[momentum=none]", "group/8", "layer2d[statistics=sum_of_squares]"}) {
      CAPTURE(name);
      CAPTURE(norm);
      ModelOptions options = small(name, norm);
      options.initialize = false;  // drawing the values would take longer than the training
      const auto model = create_model(name, options);
      model->load_state_dict(start, {.strict = false});
      const std::vector<double> run = losses(*model, 2, 1e-4, MemoryFormat::channels_last);
      CHECK(run.back() < run.front());
      CHECK(run.back() > 0);
    }
  }
}

TEST_CASE("networks: the same bits for the same seed") {
  for (const std::string name : {"resnet18", "convnext_atto"}) {
    CAPTURE(name);
    ModelOptions options = small(name, "");
    options.drop_path = 0.3;
    std::vector<std::vector<double>> runs;
    for (int i = 0; i < 2; ++i) {
      manual_seed(8);
      runs.push_back(losses(*create_model(name, options), 2, 1e-3, MemoryFormat::channels_last));
    }
    CHECK(runs[0] == runs[1]);
  }
}

TEST_CASE("networks: both memory formats compute the same") {
  for (const std::string name : {"resnet18", "convnext_atto"}) {
    CAPTURE(name);
    Tensors outputs;
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      ModelOptions options = small(name, "");
      if (name == "convnext_atto") {
        options.layer_scale = 1;  // else the blocks do not count
      }
      const auto model = create_model(name, options);
      model->to(DType::float64);
      model->to(format);
      Tensor x = images(2, 32, format, DType::float64).set_requires_grad();
      const Tensor y = (*model)(x);
      y.backward(random_tensor({2, 4}, 5));
      outputs.push_back(y.detach());
      outputs.push_back(x.grad());
      outputs.push_back(model->parameters()[0].grad());
    }
    for (size_t i = 0; i < 3; ++i) {
      CHECK(max_difference(outputs[i], outputs[i + 3]) <= 1e-10);
      CHECK(largest_number(outputs[i]) > 1e-4);
    }
  }
}

TEST_CASE("networks: scaling the MLP's last weight by gamma is scaling its result") {
  // The gradient of gamma, and the output, against a network whose fc2 has gamma multiplied in beforehand.
  auto scaled = create_model("convnext_atto", {.num_classes = 4, .patch_size = 2, .layer_scale = 0.5, .seed = 2});
  auto folded =
      create_model("convnext_atto", {.num_classes = 4, .patch_size = 2, .layer_scale = 0, .initialize = false});
  scaled->to(DType::float64);
  folded->to(DType::float64);
  nn::NamedTensors dict;
  for (const auto& [name, x] : scaled->state_dict()) {
    if (name.ends_with(".mlp.fc2.weight") || name.ends_with(".mlp.fc2.bias")) {
      dict.emplace_back(name, mul(x, 0.5));
    } else if (!name.ends_with("gamma")) {
      dict.emplace_back(name, x);
    }
  }
  folded->load_state_dict(dict);
  const Tensor x = images(2, 16, MemoryFormat::contiguous, DType::float64);
  CHECK(max_difference((*scaled)(x), (*folded)(x)) <= 1e-12);

  // d(loss)/d(gamma) by central differences of one element
  const Tensor weights = random_tensor({2, 4}, 6);
  const auto value = [&] { return sum(mul((*scaled)(x), weights)); };
  value().backward();
  int found = 0;
  for (const auto& [name, parameter] : scaled->named_parameters()) {
    if (name == "stages.1.blocks.0.gamma") {
      ++found;
      const double gamma = parameter.to_vector<double>()[7];
      const double gradient = parameter.grad().to_vector<double>()[7];
      const NoGradGuard no_grad;
      set_element(parameter, 7, gamma + 1e-5);
      const double above = value().item<double>();
      set_element(parameter, 7, gamma - 1e-5);
      const double below = value().item<double>();
      set_element(parameter, 7, gamma);
      CHECK(std::abs(gradient - (above - below) / 2e-5) <= 1e-6 * std::abs(gradient) + 1e-8);
      CHECK(std::abs(gradient) > 1e-6);
    }
  }
  CHECK(found == 1);
}

TEST_CASE("networks: each stage of convnext halves the image") {
  const auto model = create_model("convnext_atto", {.num_classes = 5, .patch_size = 2});
  std::vector<Sizes> after;
  for (const auto& [name, module] : model->named_modules()) {
    if (name.ends_with("downsample") || name == "stem") {
      module->register_forward_hook(
          [&after](const nn::Module&, const Tensor&, const Tensor& y) { after.push_back(y.sizes()); });
    }
  }
  (*model)(random_tensor({2, 3, 32, 16}, 1, DType::float32));
  CHECK(after == std::vector<Sizes>{{2, 40, 16, 8}, {2, 80, 8, 4}, {2, 160, 4, 2}, {2, 320, 2, 1}});
}

TEST_CASE("networks: convnext infers the same with hooks, which see every part, as without, where parts are one op") {
  const std::string parts[] = {"mlp", "mlp.fc1", "mlp.act", "mlp.fc2", "drop_path"};
  for (const std::string name : {"convnext_atto", "convnextv2_atto"}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      CAPTURE(name);
      CAPTURE(to_string(format));
      const auto options = ModelOptions{.num_classes = 5, .patch_size = 2, .drop_path = 0.5};
      const auto model = create_model(name, options);
      for (const auto& [path, parameter] : model->named_parameters()) {
        if (path.ends_with("gamma")) {
          copy_into(add(random_tensor(parameter.sizes(), 7, DType::float32), 2).detach(), parameter);
        }
      }
      model->eval();
      const NoGradGuard no_grad;
      const Tensor x = images(2, 16, format);
      const Tensor expected = (*model)(x);
      for (const std::string& part : parts) {
        CAPTURE(part);
        int seen = 0;
        std::vector<std::pair<nn::Module*, int64_t>> hooks;
        for (const auto& [path, module] : model->named_modules()) {
          if (path.ends_with("." + part)) {
            hooks.emplace_back(module, module->register_forward_hook(
                                           [&](const nn::Module&, const Tensor&, const Tensor&) { ++seen; }));
          }
        }
        CHECK(max_difference((*model)(x), expected) <= 1e-4);
        CHECK(seen == static_cast<int>(hooks.size()));
        CHECK(seen >= (part == "drop_path" ? 11 : 12));  // the first block drops nothing
        for (const auto& [module, number] : hooks) {
          module->remove_forward_hook(number);
        }
      }
    }
  }
}

TEST_CASE("convert_norm: a norm that needs pixels is refused for convnext's head, and nothing has changed") {
  const auto model = create_model("convnext_atto", {.num_classes = 5});
  const std::string before = to_string(*model);
  for (const std::string norm : {"instance", "frn"}) {
    CHECK_THROWS_WITH_AS(nn::convert_norm(*model, "layer2d", norm),
                         ("convert_norm: to: expected a norm for the single pixel of head.norm, got " + norm +
                          "; a norm policy can leave that layer as it is")
                             .c_str(),
                         Error);
    CHECK(to_string(*model) == before);
  }
  CHECK(nn::convert_norm(*model, "layer2d", "rms2d") > 0);
}
