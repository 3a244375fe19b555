#include "nn/module.h"

#include "core/tape.h"
#include "error_text.h"
#include "nn/checkpoint.h"
#include "nn/conv.h"
#include "nn/freeze.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/optim/optimizers.h"
#include "nn/sequential.h"
#include "ops/reduce/reduce.h"

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

// Own parameter and buffer registered after a child, to show that the module's own still come first.
class Small : public Module {
 public:
  Small() {
    conv = register_module("conv", std::make_shared<Conv2d>(3, 4, 1));
    bn = register_module("bn", std::make_shared<BatchNorm2d>(4));
    scale = register_parameter("scale", ones({4}));
    offset = register_buffer("offset", zeros({2}));
    none = register_parameter("none", {});
  }
  Tensor forward(const Tensor& x) override { return x; }
  [[nodiscard]] std::string name() const override { return "Small"; }

  std::shared_ptr<Conv2d> conv;
  std::shared_ptr<BatchNorm2d> bn;
  Tensor scale, offset, none;
};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, x] : tensors) {
    names.push_back(name);
  }
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("module: names of parameters, buffers, modules and state in PyTorch's order") {
  Small module;
  CHECK(names_of(module.named_parameters()) == Names{"scale", "conv.weight", "conv.bias", "bn.weight", "bn.bias"});
  CHECK(names_of(module.named_buffers()) ==
        Names{"offset", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"});
  CHECK(names_of(module.state_dict()) == Names{"scale", "offset", "conv.weight", "conv.bias", "bn.weight", "bn.bias",
                                               "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"});
  Names modules;
  for (const auto& [name, child] : module.named_modules()) {
    modules.push_back(name);
  }
  CHECK(modules == Names{"", "conv", "bn"});
  CHECK(module.parameter_count() == 4 + 12 + 4 + 4 + 4);
  CHECK(module.scale.requires_grad());
  CHECK(!module.offset.requires_grad());
}

TEST_CASE("module: the buffers of a layer in two places are there once, with both names in the state") {
  class Twice : public Sequential {
   public:
    Twice() {
      const auto norm = std::make_shared<BatchNorm2d>(3);
      push_back(norm);
      push_back(norm);
    }
  };
  const Twice net;
  const auto prefixed = [](const char* prefix) {
    return Names{std::string(prefix) + "running_mean", std::string(prefix) + "running_var",
                 std::string(prefix) + "num_batches_tracked"};
  };
  Names all = prefixed("0.");
  CHECK(names_of(net.named_buffers()) == all);
  for (const std::string& name : prefixed("1.")) {
    all.push_back(name);
  }
  CHECK(names_of(net.named_buffers(/* remove_duplicate= */ false)) == all);
  CHECK(net.state_dict().size() == 2 * (2 + 3));
}

TEST_CASE("module: a parameter in two places is one parameter with two names in the state") {
  /// One layer in two places, and one weight in two layers.
  class Tied : public Sequential {
   public:
    Tied() {
      const auto first = std::make_shared<Conv2d>(3, 3, 1);
      push_back(first);
      push_back(first);
      weight = register_parameter("again", first->own_parameters()[0].second);
    }
    Tensor weight;
  };
  Tied net;
  const Names all{"again", "0.weight", "0.bias", "1.weight", "1.bias"};
  CHECK(names_of(net.named_parameters()) == Names{"again", "0.bias"});
  CHECK(names_of(net.named_parameters(/* remove_duplicate= */ false)) == all);
  CHECK(names_of(net.state_dict()) == all);
  CHECK(net.parameters().size() == 2);
  CHECK(net.parameter_count() == 9 + 3);

  const Tensor x = random_tensor({2, 3, 4, 5}, 1, DType::float32);
  Sgd optimizer(parameter_groups(net, /* weight_decay= */ 0), {.lr = 0.5});
  const std::vector<float> before = net.weight.to_vector<float>();
  backward(sum(net(x)));
  const std::vector<float> slope = net.weight.grad().to_vector<float>();
  optimizer.step();
  const std::vector<float> after = net.state_dict()[3].second.to_vector<float>();
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(after[i] == doctest::Approx(before[i] - 0.5F * slope[i]));
  }

  // Through a checkpoint, the gradient is the same and not twice that.
  const auto block = std::make_shared<Tied>();
  block->load_state_dict(net.state_dict());
  backward(sum((*block)(x)));
  const std::vector<float> plain = block->weight.grad().to_vector<float>();
  block->zero_grad();
  backward(sum(checkpoint(block, x)));
  CHECK(block->weight.grad().to_vector<float>() == plain);

  // Either name freezes it.
  for (const char* const name : {"again", "0.weight", "1.weight"}) {
    Tied frozen;
    freeze(frozen, freeze_patterns(name));
    CHECK(!frozen.weight.requires_grad());
    CHECK(names_of(frozen_tensors(frozen)) == Names{"again", "0.weight", "1.weight"});
  }
  Tied whole;
  CHECK(error_of([&] { freeze(whole, freeze_patterns("1")); }) ==
        "freeze: expected patterns that leave a parameter to train, got '1', which name all 2");
}

TEST_CASE("module: names that cannot be registered") {
  class Wrong : public Sequential {
   public:
    void twice() {
      register_parameter("a", ones({1}));
      register_buffer("a", ones({1}));
    }
    void dotted() { register_parameter("a.b", ones({1})); }
    void nothing() { register_module("m", std::shared_ptr<Module>()); }
  };
  CHECK(error_of([] { Wrong().twice(); }) == "register: name: 'a' is already taken");
  CHECK(error_of([] { Wrong().dotted(); }) == "register: name: expected letters without dots, got 'a.b'");
  CHECK(error_of([] { Wrong().nothing(); }) ==
        "register_module: module: expected a module under the name 'm', got none");
}

TEST_CASE("module: no module stands below itself") {
  const auto outer = std::make_shared<Sequential>();
  const auto inner = std::make_shared<Sequential>();
  outer->push_back(inner);
  const std::string text = "register_module: module: expected one that does not hold its parent, got one that does ";
  CHECK(error_of([&] { outer->push_back(outer); }) == text + "under the name '1'");
  CHECK(error_of([&] { inner->push_back(outer); }) == text + "under the name '0'");
  CHECK(error_of([&] { outer->replace_module("0", outer); }) ==
        "replace_module: module: expected one that does not hold its parent, got one that does for '0'");
  CHECK(outer->named_modules().size() == 2);
  outer->push_back(inner);  // one module in two places is none
  CHECK(outer->named_modules().size() == 3);
}

TEST_CASE("module: forward hooks see the module, its input and its output, in order") {
  Sequential net{std::make_shared<Identity>(), std::make_shared<Identity>()};
  std::string calls;
  Tensor seen;
  for (const auto& [name, child] : net.named_modules()) {
    child->register_forward_hook(
        [&calls, &seen, label = name](const Module& module, const Tensor& in, const Tensor& out) {
          calls += label + module.name() + " ";
          CHECK(in.is_same(out));
          seen = out;
        });
  }
  const Tensor x = ones({2, 3});
  const Tensor y = net(x);
  CHECK(calls == "0Identity 1Identity Sequential ");
  CHECK(seen.is_same(y));
}

TEST_CASE("module: forward hooks are taken off, also by themselves") {
  Identity module;
  std::string calls;
  int64_t once = 0;
  const auto note = [&calls](const std::string& text) {
    return [&calls, text](const Module&, const Tensor&, const Tensor&) { calls += text; };
  };
  CHECK_FALSE(module.has_forward_hooks());
  const int64_t first = module.register_forward_hook(note("a"));
  once = module.register_forward_hook([&](const Module&, const Tensor&, const Tensor&) {
    calls += "once";
    module.remove_forward_hook(once);
  });
  module.register_forward_hook(note("b"));
  module(ones({1}));
  module(ones({1}));
  CHECK(calls ==
        "aonceb"
        "ab");
  module.remove_forward_hook(first);
  module(ones({1}));
  CHECK(calls ==
        "aonceb"
        "ab"
        "b");
  CHECK(module.has_forward_hooks());
  CHECK(error_of([&] { module.remove_forward_hook(first); }) ==
        "Identity: remove_forward_hook: expected the number of a hook, got 0");
}

TEST_CASE("module: train and eval reach all children") {
  Small module;
  CHECK(module.bn->is_training());
  module.eval();
  CHECK(!module.is_training());
  CHECK(!module.bn->is_training());
  module.train();
  CHECK(module.bn->is_training());
}

TEST_CASE("module: to(format) re-strides rank 4 only, and every handle sees it") {
  Conv2d conv(3, 5, Pair(1, 1));
  const Tensor handle = conv.parameters()[0];
  const Tensor before = copy_of(handle.detach());
  Tensor mutable_handle = handle;
  mutable_handle.set_grad(copy_of(before));
  conv.to(MemoryFormat::channels_last);
  // a 1x1 weight is contiguous in both formats, yet its strides change as PyTorch's .to() does it
  CHECK(handle.strides() == Strides{3, 1, 3, 3});
  CHECK(handle.grad().strides() == Strides{3, 1, 3, 3});
  CHECK(conv.weight().strides() == Strides{3, 1, 3, 3});
  CHECK(conv.bias().strides() == Strides{1});
  CHECK(max_difference(handle, before) == 0);
  CHECK(max_difference(handle.grad(), before) == 0);
  CHECK(handle.requires_grad());
  conv.to(MemoryFormat::contiguous);
  CHECK(handle.strides() == Strides{3, 1, 1, 1});
}

TEST_CASE("module: to(dtype) converts floating tensors and leaves counters alone") {
  Small module;
  module.to(MemoryFormat::channels_last);
  const Tensor handle = module.conv->weight();
  const Tensor before = copy_of(handle.detach());
  module.to(DType::float64);
  CHECK(handle.dtype() == DType::float64);
  CHECK(handle.strides() == Strides{3, 1, 3, 3});
  CHECK(max_difference(handle, before) == 0);
  CHECK(module.bn->running_mean().dtype() == DType::float64);
  CHECK(module.state_dict().back().second.dtype() == DType::int64);
  CHECK(error_of([&] { module.to(DType::int32); }) == "to: dtype: expected a floating dtype, got int32");
}

TEST_CASE("module: state_dict into another module, dtype converted, strides kept") {
  Small a;
  Small b;
  for (const auto& [name, x] : a.state_dict()) {
    if (is_floating(x.dtype())) {
      copy_into(random_tensor(x.sizes(), 7), x);
    }
  }
  b.to(DType::float64);
  b.to(MemoryFormat::channels_last);
  const LoadReport report = b.load_state_dict(a.state_dict());
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  const NamedTensors from = a.state_dict();
  const NamedTensors to = b.state_dict();
  for (size_t i = 0; i < from.size(); ++i) {
    CAPTURE(from[i].first);
    CHECK(max_difference(from[i].second, to[i].second) == 0);
  }
  CHECK(b.conv->weight().strides() == Strides{3, 1, 3, 3});
  CHECK(b.conv->weight().dtype() == DType::float64);
}

TEST_CASE("module: load_state_dict lists everything that is wrong and changes nothing") {
  Small module;
  NamedTensors dict = module.state_dict();
  const Tensor before = copy_of(module.conv->weight().detach());
  dict[2].second = zeros({4, 3, 1, 1});      // conv.weight, fine
  dict[0] = {"skale", zeros({4})};           // for scale
  dict[3].second = zeros({5});               // conv.bias
  dict[6] = {"bn.mean", zeros({4})};         // for bn.running_mean
  dict.emplace_back("bn.bias", zeros({4}));  // again
  dict.emplace_back("extra", zeros({1}));
  CHECK(error_of([&] { module.load_state_dict(dict); }) ==
        "load_state_dict: missing: scale, bn.running_mean; unexpected: skale, bn.mean, extra; repeated: bn.bias; "
        "conv.bias: expected sizes [4], got [5]");
  CHECK(max_difference(module.conv->weight(), before) == 0);
}

TEST_CASE("module: load_state_dict without strict still refuses wrong sizes") {
  Small module;
  NamedTensors dict = {{"scale", full({4}, 3)}, {"other", zeros({1})}};
  const LoadReport report = module.load_state_dict(dict, {.strict = false});
  CHECK(report.missing ==
        Names{"offset", "conv.weight", "conv.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"});
  CHECK(report.unexpected == Names{"other"});
  CHECK(max_difference(module.scale, full({4}, 3)) == 0);
  dict[0].second = zeros({3});
  CHECK(error_of([&] { module.load_state_dict(dict, {.strict = false}); }) ==
        "load_state_dict: scale: expected sizes [4], got [3]");
}

TEST_CASE("module: load_state_dict refuses integers for numbers, and numbers for counters") {
  Small module;
  NamedTensors dict = module.state_dict();
  const auto error_with = [&](const std::string& name, DType dtype) {
    NamedTensors changed = dict;
    for (auto& [own, x] : changed) {
      if (own == name) {
        x = zeros(x.sizes(), {.dtype = dtype});
      }
    }
    return error_of([&] { module.load_state_dict(changed); });
  };
  for (const DType dtype : {DType::int32, DType::int64, DType::uint8, DType::boolean}) {
    CHECK(error_with("scale", dtype) ==
          "load_state_dict: scale: expected a floating dtype, got " + std::string(to_string(dtype)));
  }
  CHECK(error_with("bn.running_mean", DType::int32) ==
        "load_state_dict: bn.running_mean: expected a floating dtype, got int32");
  CHECK(error_with("bn.num_batches_tracked", DType::float32) ==
        "load_state_dict: bn.num_batches_tracked: expected an integer dtype, got float32");
  for (const DType dtype : {DType::float64, DType::bfloat16, DType::float16}) {
    CHECK(error_with("scale", dtype) == "no error");
  }
}

TEST_CASE("module: load_state_dict shows the first of many names and says how many there are") {
  Small module;
  NamedTensors dict = module.state_dict();
  for (int i = 0; i < 1000; ++i) {
    dict.emplace_back(fmt::format("other.{}", i), zeros({1}));
  }
  CHECK(error_of([&] { module.load_state_dict(dict); }) ==
        "load_state_dict: unexpected: other.0, other.1, other.2, other.3, other.4, other.5 and 994 more");
  dict = module.state_dict();
  for (auto& [name, x] : dict) {
    x = zeros({7, 7});
  }
  const std::string text = error_of([&] { module.load_state_dict(dict); });
  CHECK(text.starts_with("load_state_dict: scale: expected sizes [4], got [7, 7]; "));
  CHECK(text.ends_with(" more"));
}

TEST_CASE("module: num_batches_tracked may be missing or unexpected") {
  Small module;
  NamedTensors dict = module.state_dict();
  dict.pop_back();
  module.load_state_dict(dict);
  dict.emplace_back("conv.num_batches_tracked", zeros({}, {.dtype = DType::int64}));
  module.load_state_dict(dict);
  dict.emplace_back("bn.num_batches_tracked", full({}, 5, {.dtype = DType::int64}));
  module.load_state_dict(dict);
  CHECK(module.state_dict().back().second.item<int64_t>() == 5);
}

TEST_CASE("module: a linear weight and a 1x1 convolution's load each other") {
  Linear linear(3, 2);
  Conv2d conv(3, 2, 1);
  conv.to(MemoryFormat::channels_last);
  linear.load_state_dict(conv.state_dict());
  CHECK(linear.weight().to_vector<float>() == conv.weight().to_vector<float>());
  Linear other(3, 2);
  conv.load_state_dict(other.state_dict());
  CHECK(other.weight().to_vector<float>() == conv.weight().to_vector<float>());
  Conv2d wide(3, 2, Pair(1, 2));
  CHECK(error_of([&] { wide.load_state_dict(linear.state_dict()); }) ==
        "load_state_dict: weight: expected sizes [2, 3, 1, 2], got [2, 3]");
}

TEST_CASE("module: loading counts as an in-place change") {
  Linear linear(3, 2);
  const int64_t before = linear.weight().version();
  linear.load_state_dict(linear.state_dict());
  CHECK(linear.weight().version() > before);
}

TEST_CASE("module: zero_grad drops gradients") {
  Linear linear(3, 2);
  Tensor weight = linear.weight();
  weight.set_grad(ones({2, 3}));
  linear.zero_grad();
  CHECK(!linear.weight().grad().defined());
}

TEST_CASE("module: to_string shows the tree") {
  const Sequential net{std::make_shared<Conv2d>(4, 8, 3, nn::Conv2dOptions{.stride = 2, .padding = 1, .bias = false}),
                       std::make_shared<BatchNorm2d>(8, BatchNormLayerOptions{.momentum = std::nullopt})};
  CHECK(to_string(net) ==
        "Sequential {\n"
        "  0: Conv2d(4, 8, kernel=(3, 3), stride=(2, 2), padding=(1, 1), bias=false)\n"
        "  1: BatchNorm2d(8, eps=1e-05, momentum=none)\n"
        "}\n");
}
