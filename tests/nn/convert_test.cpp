#include "nn/norm/convert.h"

#include "core/factory.h"
#include "core/tape.h"
#include "error_text.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <utility>

using namespace norma;
using namespace norma::nn;
using norma::test::differ;
using norma::test::error_of;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

using ModulePointer = std::shared_ptr<Module>;

/// Random values in every floating parameter and buffer; variances are positive.
void randomize(Module& module) {
  uint64_t seed = 100;
  for (const auto& [name, x] : module.state_dict()) {
    if (is_floating(x.dtype())) {
      const Tensor values = mul(random_tensor(x.sizes(), ++seed, x.dtype()), 0.5);
      copy_into(name.ends_with("running_var") ? add(abs(values), 0.5) : values, x);
    }
  }
}

std::vector<std::string> layer_names(Module& module) {
  std::vector<std::string> names;
  for (const auto& [path, child] : module.named_modules()) {
    if (child->children().empty()) {
      names.push_back(child->name());
    }
  }
  return names;
}

}  // namespace

TEST_CASE("replace_module: the child a parent reaches through its slot, in the mode of the old one") {
  Sequential net{std::make_shared<Conv2d>(2, 3, 1), std::make_shared<BatchNorm2d>(3)};
  net.eval();
  const ModulePointer old = net.replace_module("1", std::make_shared<GroupNorm>(1, 3));
  CHECK(old->name().starts_with("BatchNorm2d(3"));
  CHECK(net.children()[1].second->name().starts_with("GroupNorm(1, 3"));
  CHECK(!net.children()[1].second->is_training());
  CHECK(net.state_dict().size() == 4);

  // Frozen statistics stay frozen through train(), also those of another norm in that place.
  net.children()[1].second->freeze_statistics();
  net.train();
  net.replace_module("1", std::make_shared<BatchNorm2d>(3));
  convert_norm(net, "batch", "frozen_batch");
  convert_norm(net, "frozen_batch", "batch");
  net.train();
  Module& norm = *net.children()[1].second;
  CHECK(!norm.is_training());
  norm.freeze_statistics(false);
  CHECK(norm.is_training());

  const auto model = models::create_model("resnet18", {.num_classes = 3});
  const Tensor x = random_tensor({2, 3, 32, 32}, 1, DType::float32);
  const NoGradGuard guard;
  const Tensor before = (*model)(x);
  model->replace_module("layer1.0.bn1", std::make_shared<NoNorm>(64));
  CHECK(differ((*model)(x), before, 1e-3));

  CHECK(error_of([&] { model->replace_module("layer1.0.bn9", std::make_shared<NoNorm>(64)); }) ==
        "replace_module: unknown module 'layer1.0.bn9'; did you mean 'layer1.0.bn1'?");
  CHECK(error_of([&] { model->replace_module("fc", std::make_shared<NoNorm>(64)); }) ==
        "replace_module: path: the module 'fc' is held by its parent");
  CHECK(error_of([&] { model->replace_module("bn1", nullptr); }) ==
        "replace_module: module: expected a module for 'bn1', got none");
}

TEST_CASE("convert_norm: weights, dtype and mode are carried over, and the network uses the new layers") {
  const auto model = models::create_model("resnet18", {.num_classes = 3, .norm = "batch"});
  model->to(DType::float64);
  randomize(*model);
  model->eval();
  CHECK(convert_norm(*model, "batch", "group:32") == 20);
  const auto fresh = models::create_model("resnet18", {.num_classes = 3, .norm = "group:32"});
  fresh->to(DType::float64);
  fresh->eval();
  CHECK(layer_names(*model) == layer_names(*fresh));
  fresh->load_state_dict(model->state_dict());
  const NoGradGuard guard;
  const Tensor x = random_tensor({2, 3, 32, 32}, 1);
  CHECK(max_difference((*model)(x), (*fresh)(x)) == 0);
  for (const auto& [path, module] : model->named_modules()) {
    CHECK(!module->is_training());
  }
  for (const auto& [name, p] : model->named_parameters()) {
    CHECK(p.requires_grad());
    CHECK(p.dtype() == DType::float64);
  }

  // Of the kind with its groups, or with any.
  CHECK(convert_norm(*model, "group:32", "layer2d") == 20);
  Sequential mixed{std::make_shared<GroupNorm>(2, 8), std::make_shared<GroupNorm>(4, 8)};
  CHECK(convert_norm(mixed, "group:4", "none") == 1);
  CHECK(layer_names(mixed) == std::vector<std::string>{"GroupNorm(2, 8, eps=1e-05)", "NoNorm"});
  CHECK(convert_norm(mixed, "group", "batch") == 1);
}

TEST_CASE("convert_norm: running statistics are carried over") {
  Sequential net{std::make_shared<BatchNorm2d>(4)};
  randomize(net);
  const NamedTensors before = net.state_dict();
  CHECK(convert_norm(net, "batch", "batch_renorm") == 1);
  CHECK(net.children()[0].second->name().starts_with("BatchRenorm2d"));
  const NamedTensors after = net.state_dict();
  REQUIRE(after.size() == before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    CAPTURE(before[i].first);
    CHECK(after[i].first == before[i].first);
    CHECK(max_difference(after[i].second, before[i].second) == 0);
  }
}

TEST_CASE("convert_norm: what was not trained is not trained afterwards") {
  Sequential net{std::make_shared<BatchNorm2d>(4), std::make_shared<BatchNorm2d>(4)};
  for (auto& [name, p] : net.children()[0].second->named_parameters()) {
    Tensor(p).set_requires_grad(false);
  }
  convert_norm(net, "batch", "group:2");
  for (const auto& [name, p] : net.named_parameters()) {
    CAPTURE(name);
    CHECK(p.requires_grad() == name.starts_with("1."));
  }
}

TEST_CASE("convert_norm: a norm without tensors gets the dtype of the model") {
  Sequential net{std::make_shared<Conv2d>(2, 4, 1), std::make_shared<NoNorm>(4)};
  net.to(DType::float64);
  CHECK(convert_norm(net, "none", "batch") == 1);
  CHECK(net(random_tensor({2, 2, 3, 3}, 1)).dtype() == DType::float64);
}

TEST_CASE("convert_norm: running statistics stay in float32 beside weights of 16 bits") {
  Sequential net{std::make_shared<Conv2d>(2, 4, 1), std::make_shared<BatchNorm2d>(4), std::make_shared<NoNorm>(4)};
  randomize(net);
  net.parameters_to(DType::bfloat16);
  const NamedTensors before = net.state_dict();
  convert_norm(net, "batch", "ghost_batch");
  convert_norm(net, "none", "ghost_batch");
  const NamedTensors after = net.state_dict();
  for (size_t i = 0; i < before.size(); ++i) {
    CAPTURE(before[i].first);
    CHECK(after[i].first == before[i].first);
    CHECK(after[i].second.dtype() == before[i].second.dtype());
    CHECK(max_difference(after[i].second, before[i].second) == 0);
  }
  for (const auto& [name, parameter] : net.named_parameters()) {
    CAPTURE(name);
    CHECK(parameter.dtype() == DType::bfloat16);
  }
  for (const auto& [name, buffer] : net.named_buffers()) {
    CAPTURE(name);
    CHECK(buffer.dtype() != DType::bfloat16);
  }
}

TEST_CASE("convert_norm: the weight of a global response norm, 0 at first, means nothing to other norms") {
  Sequential net{make_norm("grn", 4), make_norm("batch", 4)};
  convert_norm(net, "batch", "grn");
  CHECK(max_difference(net.children()[1].second->named_parameters()[0].second, zeros({4})) == 0);
  convert_norm(net, "grn", "batch");
  CHECK(max_difference(net.children()[0].second->named_parameters()[0].second, ones({4})) == 0);
}

TEST_CASE("convert_norm: the spec decides which of weight, bias and statistics there are") {
  const auto names = [](const Module& net) {
    std::string text;
    for (const auto& [name, x] : net.state_dict()) {
      text += name + " ";
    }
    return text;
  };
  Sequential net{make_norm("batch[bias=false]", 4)};
  randomize(net);
  const Tensor weight = copy_of(net.state_dict()[0].second);
  convert_norm(net, "batch", "group:2[bias=false]");
  CHECK(names(net) == "0.weight ");
  CHECK(max_difference(net.state_dict()[0].second, weight) == 0);
  // A bias that was not there starts at 0, and is trained.
  convert_norm(net, "group:2[bias=false]", "instance[track_running_stats=true,momentum=0.01]");
  CHECK(names(net) == "0.weight 0.bias 0.running_mean 0.running_var 0.num_batches_tracked ");
  CHECK(max_difference(net.state_dict()[0].second, weight) == 0);
  CHECK(max_difference(net.state_dict()[1].second, zeros({4})) == 0);
  CHECK(net.parameters()[1].requires_grad());
  convert_norm(net, "instance", "group:4[affine=false]");
  CHECK(net.state_dict().empty());
  CHECK(layer_names(net) == std::vector<std::string>{"GroupNorm(4, 4, eps=1e-05, affine=false)"});
}

TEST_CASE("convert_norm: groups that do not divide a layer's channels are not that layer's") {
  Sequential net{std::make_shared<GroupNorm>(2, 4), std::make_shared<GroupNorm>(2, 14),
                 std::make_shared<BatchNorm2d>(3)};
  CHECK(convert_norm(net, "group/7", "none") == 1);
  CHECK(convert_norm(net, "group:2", "none") == 1);
  CHECK(layer_names(net)[2].starts_with("BatchNorm2d"));
}

TEST_CASE("convert_norm: error texts") {
  Sequential net{std::make_shared<BatchNorm2d>(6)};
  CHECK(error_of([&] { convert_norm(net, "layer2d", "batch"); }) ==
        "convert_norm: from: expected a norm of the model, got 'layer2d', which it has none of");
  CHECK(error_of([&] { convert_norm(net, "bath", "batch"); }) == "norm: unknown norm 'bath'; did you mean 'batch'?");
  CHECK(error_of([&] { convert_norm(net, "batch", "group:4"); }) ==
        "group_norm: num_channels must be divisible by num_groups, got num_channels 6, num_groups 4");
  CHECK(layer_names(net)[0].starts_with("BatchNorm2d"));  // nothing has changed
}

TEST_CASE("fold_batch_norm: whole networks give the same output without their norms") {
  for (const auto& [name, dtype] : {std::pair("resnet18", DType::float64), std::pair("resnet50", DType::float32)}) {
    const auto model = models::create_model(name, {.num_classes = 3, .small_stem = true});
    model->to(dtype);
    model->to(MemoryFormat::channels_last);
    randomize(*model);
    const NoGradGuard guard;
    const Tensor x = random_tensor({2, 3, 16, 16}, 1, dtype);
    model->eval();
    const Tensor before = (*model)(x);
    const size_t tensors = model->state_dict().size();
    const int64_t folded = fold_batch_norm(*model, x);
    CHECK(folded == (std::string(name) == "resnet18" ? 20 : 53));
    const double scale = largest_number(before);
    CHECK(max_difference((*model)(x), before) <= (dtype == DType::float64 ? 1e-11 : 1e-3) * scale);
    // Each norm had five tensors, each convolution gets a bias.
    CHECK(model->state_dict().size() == tensors - static_cast<size_t>(folded) * 4);
    for (const auto& [path, module] : model->named_modules()) {
      CHECK(dynamic_cast<BatchNorm*>(module) == nullptr);
      CHECK(!module->is_training());
    }
  }
}

TEST_CASE("fold_batch_norm: the parts of one op give the same output where hooks want to see each") {
  for (const std::string name : {"resnet18", "resnet50"}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      CAPTURE(name);
      CAPTURE(to_string(format));
      const auto model = models::create_model(name, {.num_classes = 3, .small_stem = true});
      model->to(format);
      randomize(*model);
      model->eval();
      const NoGradGuard guard;
      const Tensor x = to(random_tensor({2, 3, 16, 16}, 1, DType::float32), format);
      fold_batch_norm(*model, x);
      const Tensor together = (*model)(x);
      const double scale = largest_number(together);
      for (const bool of_norms : {false, true}) {
        CAPTURE(of_norms);
        int64_t wanted = 0;
        int64_t seen = 0;
        std::vector<std::pair<Module*, int64_t>> hooks;
        for (const auto& [path, module] : model->named_modules()) {
          const bool is_part =
              of_norms ? dynamic_cast<FoldedNorm*>(module) != nullptr : dynamic_cast<Conv2d*>(module) != nullptr;
          if (is_part) {
            ++wanted;
            hooks.emplace_back(
                module, module->register_forward_hook([&](const Module&, const Tensor&, const Tensor&) { ++seen; }));
          }
        }
        CHECK(max_difference((*model)(x), together) <= 1e-4 * scale);
        CHECK(wanted == (name == "resnet18" ? 20 : 53));
        CHECK(seen == wanted);
        for (const auto& [module, number] : hooks) {
          module->remove_forward_hook(number);
        }
      }
      CHECK(max_difference((*model)(x), together) == 0);
    }
  }
}

TEST_CASE("fold_batch_norm: 16-bit networks, all of them or with float32 norms, keep their dtypes") {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const bool wide_norms : {false, true}) {
      CAPTURE(to_string(dtype));
      CAPTURE(wide_norms);
      const auto model = models::create_model("resnet18", {.num_classes = 3, .small_stem = true});
      for (const auto& [path, module] : model->named_modules()) {
        if (dynamic_cast<BatchNorm*>(module) != nullptr) {  // random convolutions would overflow float16
          randomize(*module);
        }
      }
      if (wide_norms) {
        model->parameters_to(dtype);
      } else {
        model->to(dtype);
      }
      model->eval();
      const NoGradGuard guard;
      const Tensor x = to(random_tensor({2, 3, 16, 16}, 1), dtype);
      const Tensor before = (*model)(x);
      const Tensor handle = model->named_parameters().back().second;
      const Tensor weight = copy_of(handle);
      CHECK(fold_batch_norm(*model, x) == 20);
      for (const auto& [name, tensor] : model->state_dict()) {
        CAPTURE(name);
        CHECK(tensor.dtype() == dtype);
      }
      CHECK(max_difference(handle, weight) == 0);
      const double scale = largest_number(before);
      REQUIRE(std::isfinite(scale));
      CHECK(max_difference((*model)(x), before) <= (dtype == DType::bfloat16 ? 0.05 : 0.01) * scale);
    }
  }
}

TEST_CASE("fold_batch_norm: a convolution's bias, grouped weights, no affine, another example of the input") {
  Sequential net{std::make_shared<Conv2d>(4, 6, 3, nn::Conv2dOptions{.padding = 1, .groups = 2}),
                 std::make_shared<BatchNorm2d>(6, BatchNormLayerOptions{.eps = 0.1, .affine = false}),
                 std::make_shared<ReLU>(), std::make_shared<BatchNorm2d>(6)};
  net.to(DType::float64);
  randomize(net);
  net.eval();
  const NoGradGuard guard;
  const Tensor x = random_tensor({2, 4, 5, 7}, 1);
  const Tensor other = random_tensor({1, 4, 9, 6}, 2);
  const Tensor expected = net(other);
  CHECK(fold_batch_norm(net, x) == 1);  // the last one follows no convolution
  CHECK(max_difference(net(other), expected) <= 1e-12);
}

TEST_CASE("fold_batch_norm: frozen, ghost and renorm, which are batch norms in evaluation") {
  const std::vector<std::shared_ptr<Norm>> norms = {
      std::make_shared<FrozenBatchNorm2d>(6, /* eps= */ 0.1),
      std::make_shared<GhostBatchNorm2d>(6, /* sub_batch= */ 2, BatchNormLayerOptions{.eps = 0.1}),
      std::make_shared<BatchRenorm2d>(6, /* r_max= */ 3, /* d_max= */ 5, BatchNormLayerOptions{.eps = 0.1})};
  for (const auto& norm : norms) {
    CAPTURE(norm->name());
    Sequential net{std::make_shared<Conv2d>(4, 6, 3, nn::Conv2dOptions{.padding = 1, .groups = 2}), norm};
    net.to(DType::float64);
    randomize(net);
    net.eval();
    const NoGradGuard guard;
    const Tensor x = random_tensor({2, 4, 5, 7}, 1);
    const Tensor expected = net(x);
    CHECK(fold_batch_norm(net, x) == 1);
    CHECK(max_difference(net(x), expected) <= 1e-12);
  }
}

TEST_CASE("fold_batch_norm: errors leave the model as it was") {
  // The convolution's output is read twice: by the norm and by the addition.
  struct Twice : Module {
    Twice() {
      conv = register_module("conv", std::make_shared<Conv2d>(2, 3, 1));
      bn = register_slot("bn", std::make_shared<BatchNorm2d>(3));
    }
    Tensor forward(const Tensor& x) override {
      const Tensor y = (*conv)(x);
      return add((*bn)(y), y);
    }
    [[nodiscard]] std::string name() const override { return "Twice"; }
    std::shared_ptr<Conv2d> conv;
    ChildSlot bn;
  };
  Twice net;
  net.to(DType::float64);
  randomize(net);
  const Tensor x = random_tensor({2, 2, 4, 3}, 1);
  const NamedTensors state = net.state_dict();
  const std::string text = error_of([&] { fold_batch_norm(net, x); });
  CHECK(
      text.starts_with("fold_batch_norm: model: expected the same output without the norms, got one that differs by "));
  CHECK(text.ends_with(": the output of a convolution goes elsewhere too"));
  CHECK(net.is_training());
  const NamedTensors after = net.state_dict();
  REQUIRE(after.size() == state.size());
  for (size_t i = 0; i < state.size(); ++i) {
    CHECK(after[i].first == state[i].first);
  }

  Sequential none{std::make_shared<Conv2d>(2, 3, 1), std::make_shared<LayerNorm2d>(3)};
  CHECK(error_of([&] {
          fold_batch_norm(none, random_tensor({1, 2, 3, 3}, 1, DType::float32));
        }) == "fold_batch_norm: model: expected a batch norm behind a convolution, got none");
  Sequential untracked{std::make_shared<Conv2d>(2, 3, 1),
                       std::make_shared<BatchNorm2d>(3, BatchNormLayerOptions{.track_running_stats = false})};
  CHECK(error_of([&] {
          fold_batch_norm(untracked, random_tensor({1, 2, 3, 3}, 1, DType::float32));
        }) == "fold_batch_norm: model: expected running statistics in '1', got none");

  CHECK(error_of([&] {
          fold_batch_norm(net, zeros({0, 2, 4, 3}, {.dtype = DType::float64}));
        }) == "fold_batch_norm: example: expected an image, got sizes [0, 2, 4, 3]");  // which would show no difference

  class Own : public Norm {  // says of itself what does not fit its three channels
   public:
    explicit Own(BatchEvaluation said) : said_(std::move(said)) {}
    Tensor forward_act(const Tensor& x, const ActOptions& then) override { return activate(x, then); }
    [[nodiscard]] std::string name() const override { return "Own"; }
    [[nodiscard]] int64_t channels() const override { return 3; }
    [[nodiscard]] std::optional<BatchEvaluation> evaluation() const override { return said_; }

   private:
    BatchEvaluation said_;
  };
  const auto refusal = [](const BatchEvaluation& said) {
    Sequential own{std::make_shared<Conv2d>(2, 3, 1), std::make_shared<Own>(said)};
    return error_of([&] { fold_batch_norm(own, random_tensor({1, 2, 3, 3}, 1, DType::float32)); });
  };
  const std::string two = "fold_batch_norm: model: expected 3 numbers in each tensor of '1', got 2";
  CHECK(refusal({.mean = zeros({3})}) == "fold_batch_norm: model: expected running statistics in '1', got none");
  CHECK(refusal({.mean = zeros({2}), .var = ones({3})}) == two);
  CHECK(refusal({.mean = zeros({3}), .var = ones({2})}) == two);
  CHECK(refusal({.mean = zeros({3}), .var = ones({3}), .weight = ones({2})}) == two);
  CHECK(refusal({.mean = zeros({3}), .var = ones({3}), .bias = ones({2})}) == two);
}

TEST_CASE("fold_batch_norm: after an error a 16-bit model has its dtype and weights") {
  const auto conv = std::make_shared<Conv2d>(3, 3, 1);
  Sequential net{conv, std::make_shared<BatchNorm2d>(3), conv, std::make_shared<BatchNorm2d>(3)};
  randomize(net);
  net.to(DType::bfloat16);
  NamedTensors before;
  for (const auto& [name, value] : net.state_dict()) {
    before.emplace_back(name, copy_of(value));
  }
  CHECK(error_of([&] {
          fold_batch_norm(net, to(random_tensor({2, 3, 4, 3}, 1), DType::bfloat16));
        }).starts_with("fold_batch_norm: model: expected the same output without the norms"));
  const NamedTensors after = net.state_dict();
  REQUIRE(after.size() == before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    CAPTURE(before[i].first);
    CHECK(after[i].second.dtype() == before[i].second.dtype());
    CHECK(max_difference(after[i].second, before[i].second) == 0);
  }
}

TEST_CASE("fold_batch_norm: after an error every module has its mode and weights, in every order of folding") {
  // One convolution, two norms: it is folded into twice, which is wrong.
  const auto conv = std::make_shared<Conv2d>(3, 3, 1);
  Sequential net{conv, std::make_shared<BatchNorm2d>(3), conv, std::make_shared<BatchNorm2d>(3)};
  net.to(DType::float64);
  randomize(net);
  Tensor(conv->weight()).set_requires_grad(false);
  net.children()[3].second->eval();
  const Tensor x = random_tensor({2, 3, 4, 3}, 1);
  const auto unchanged = [&](const NamedTensors& before) {
    CHECK(net.is_training());
    CHECK(net.children()[1].second->is_training());
    CHECK(!net.children()[3].second->is_training());
    CHECK(!conv->weight().requires_grad());
    const NamedTensors after = net.state_dict();
    REQUIRE(after.size() == before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      CAPTURE(before[i].first);
      CHECK(max_difference(after[i].second, before[i].second) == 0);
    }
  };
  NamedTensors before;
  for (const auto& [name, value] : net.state_dict()) {
    before.emplace_back(name, copy_of(value));
  }
  CHECK(error_of([&] {
          fold_batch_norm(net, x);
        }).starts_with("fold_batch_norm: model: expected the same output without the norms"));
  unchanged(before);
  // The example does not fit.
  CHECK(error_of([&] { fold_batch_norm(net, random_tensor({2, 5, 4, 3}, 1)); }).starts_with("conv2d: "));
  unchanged(before);
}
