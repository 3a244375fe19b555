#include "nn/checkpoint.h"

#include "core/allocator.h"
#include "core/anomaly.h"
#include "core/autocast.h"
#include "core/random.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/hooks.h"
#include "nn/layers.h"
#include "nn/module_scope.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/random/batch_part.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"
#include "support.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using norma::test::error_of;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

/// x + dropout(norm(conv(x))), and it counts its forward passes.
class Counted : public nn::Module {
 public:
  explicit Counted(int64_t channels, const std::string& norm = "batch", double rate = 0.25) {
    conv_ =
        register_module("conv", std::make_shared<nn::Conv2d>(channels, channels, 3, nn::Conv2dOptions{.padding = 1}));
    norm_ = register_slot("norm", nn::make_norm(norm, channels));
    dropout_ = register_module("dropout", std::make_shared<nn::Dropout>(rate));
  }
  Tensor forward(const Tensor& x) override {
    ++passes;
    return add(x, (*dropout_)((*norm_)((*conv_)(x))));
  }
  [[nodiscard]] std::string name() const override { return "Counted"; }

  int passes = 0;

 private:
  std::shared_ptr<nn::Module> conv_, dropout_;
  nn::ChildSlot norm_;
};

/// A module around a function.
class Function : public nn::Module {
 public:
  explicit Function(std::function<Tensor(const Tensor&)> f, const Tensor& weight = {}) : f_(std::move(f)) {
    register_parameter("weight", weight);
  }
  Tensor forward(const Tensor& x) override { return f_(x); }
  [[nodiscard]] std::string name() const override { return "Function"; }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

Tensor run(const std::shared_ptr<nn::Module>& module, const Tensor& x, bool checkpoints) {
  return checkpoints ? nn::checkpoint(module, x) : (*module)(x);
}

/// Three blocks with the same start for each caller.
std::vector<std::shared_ptr<Counted>> blocks_of(const std::string& norm, DType dtype = DType::float32) {
  manual_seed(3);
  std::vector<std::shared_ptr<Counted>> blocks;
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(std::make_shared<Counted>(6, norm));
    blocks.back()->parameters_to(dtype);
  }
  return blocks;
}

/// All that some passes leave behind.
struct Trace {
  Tensors tensors;
  uint64_t random = 0;
};

void check_same(const Trace& a, const Trace& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a.tensors[i].defined());
    REQUIRE(b.tensors[i].defined());
    CHECK(max_difference(a.tensors[i], b.tensors[i]) == 0);
  }
  CHECK(a.random == b.random);
}

void add_state(const nn::Module& module, Trace& trace) {
  for (const auto& [name, x] : module.named_parameters()) {
    trace.tensors.push_back(x.grad());
  }
  for (const auto& [name, x] : module.named_buffers()) {
    trace.tensors.push_back(copy_of(x.detach()));
  }
}

/// Two forward passes, then the two backward passes, of blocks of which all or none are checkpoints.
Trace two_passes(const std::string& norm, bool checkpoints) {
  const auto blocks = blocks_of(norm);
  Trace trace;
  Tensors inputs;
  Tensors losses;
  for (uint64_t i = 0; i < 2; ++i) {
    inputs.push_back(random_tensor({4, 6, 5, 7}, i, DType::float32).set_requires_grad());
    Tensor y = inputs.back();
    for (const auto& block : blocks) {
      y = run(block, y, checkpoints);
    }
    trace.tensors.push_back(y.detach());
    losses.push_back(sum(mul(y, y)));
  }
  for (const Tensor& loss : losses) {
    loss.backward();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    trace.tensors.push_back(inputs[i].grad());
  }
  for (const auto& block : blocks) {
    CHECK(block->passes == (checkpoints ? 4 : 2));
    add_state(*block, trace);
  }
  trace.random = default_generator().offset();
  return trace;
}

double loss_of(nn::Module& module, const Tensor& x) {
  manual_seed(9);
  const NoGradGuard no_grad;
  return sum(mul(module(x), random_tensor(x.sizes(), 5))).to_vector<double>()[0];
}

}  // namespace

TEST_CASE("checkpoint: gradients, statistics and random numbers have the bits of plain blocks") {
  for (const std::string norm : {"batch", "group:2", "layer2d", "instance", "ghost_batch[sub_batch=2]",
                                 "batch_renorm[momentum=0.5]", "batch[momentum=none]"}) {
    CAPTURE(norm);
    check_same(two_passes(norm, false), two_passes(norm, true));
  }
}

TEST_CASE("checkpoint: gradients are those of central differences") {
  const auto block = std::make_shared<Counted>(3, "batch");
  block->to(DType::float64);
  const Tensor x = random_tensor({2, 3, 4, 5}, 1).set_requires_grad();
  manual_seed(9);
  sum(mul(nn::checkpoint(block, x), random_tensor(x.sizes(), 5))).backward();
  Tensors inputs = block->parameters();
  inputs.push_back(x);
  int64_t differences = 0;
  for (const Tensor& input : inputs) {
    REQUIRE(input.grad().defined());
    const std::vector<double> gradient = input.grad().to_vector<double>();
    const std::vector<double> values = input.to_vector<double>();
    const auto loss_with = [&](size_t i, double step) {
      std::vector<double> moved = values;
      moved[i] += step;
      copy_into(from_vector(moved, input.sizes(), {.dtype = DType::float64}), input.detach());
      return loss_of(*block, x);
    };
    for (size_t i = 0; i < values.size(); i += 3) {
      constexpr double kStep = 1e-6;
      const double difference = (loss_with(i, kStep) - loss_with(i, -kStep)) / (2 * kStep);
      CHECK(std::abs(gradient[i] - difference) <= 1e-7 * (1 + std::abs(difference)));
      ++differences;
    }
    copy_into(from_vector(values, input.sizes(), {.dtype = DType::float64}), input.detach());
  }
  CHECK(differences > 60);
}

TEST_CASE("checkpoint: the tape keeps the input alone, and says so") {
  const auto blocks = blocks_of("batch");
  Tensor y = random_tensor({4, 6, 5, 7}, 1, DType::float32).set_requires_grad();
  for (const auto& block : blocks) {
    y = nn::checkpoint(block, y);
  }
  const Tape tape(y);
  REQUIRE(tape.nodes().size() == 3);
  CHECK(tape.saved_bytes() == 2 * size_t{4 * 6 * 5 * 7} * sizeof(float));  // the first input is a leaf
  CHECK(tape.summary() ==
        "op                           dtype     recorded        saved\n"
        "checkpoint(Counted)          float32          3      6.6 KiB\n"
        "total                                         3      6.6 KiB\n"
        "3 of the ops stand for a part of the tape that backward() records again\n");
  CHECK(tape.graphviz().find("checkpoint(Counted)") != std::string::npos);
}

TEST_CASE("checkpoint: training takes less memory") {
  const auto peak = [](bool checkpoints) {
    nn::Sequential blocks;
    for (int i = 0; i < 16; ++i) {
      blocks.push_back(std::make_shared<Counted>(8));
    }
    blocks.set_grad_checkpointing(checkpoints);
    const Tensor x = random_tensor({4, 8, 32, 32}, 1, DType::float32);
    Allocator& memory = allocator(x.device());
    memory.reset_peak();
    const int64_t before = memory.statistics().allocated;
    sum(blocks(x)).backward();
    return memory.statistics().peak_allocated - before;
  };
  peak(false);  // what a first run makes for all
  const int64_t without = peak(false);
  const int64_t with = peak(true);
  CHECK(with > 0);
  CHECK(static_cast<double>(with) < 0.6 * static_cast<double>(without));
}

TEST_CASE("checkpoint: no second pass where nothing is trained, and none without gradients or in evaluation") {
  auto blocks = blocks_of("batch");
  for (const Tensor& parameter : blocks[0]->parameters()) {
    Tensor(parameter).set_requires_grad(false);
  }
  nn::Sequential model{blocks[0], blocks[1], blocks[2]};
  model.set_grad_checkpointing();
  const Tensor x = random_tensor({2, 6, 5, 5}, 1, DType::float32);
  const auto passes = [&] {
    const std::vector<int> counts{blocks[0]->passes, blocks[1]->passes, blocks[2]->passes};
    for (const auto& block : blocks) {
      block->passes = 0;
    }
    return counts;
  };
  const Tensor y = model(x);
  CHECK(Tape(y).nodes().size() == 2);
  sum(y).backward();
  CHECK(passes() == std::vector{1, 2, 2});
  CHECK_FALSE(blocks[0]->parameters()[0].grad().defined());
  {
    const NoGradGuard no_grad;
    CHECK_FALSE(model(x).requires_grad());
    CHECK(passes() == std::vector{1, 1, 1});
  }
  model.eval();
  const Tensor plain = model(x);
  CHECK(Tape(plain).summary().find("checkpoint") == std::string::npos);
  sum(plain).backward();
  CHECK(passes() == std::vector{1, 1, 1});
  // The gradient of x alone makes the frozen block run again.
  model.train();
  sum(model(random_tensor({2, 6, 5, 5}, 1, DType::float32).set_requires_grad())).backward();
  CHECK(passes() == std::vector{2, 2, 2});
}

TEST_CASE("checkpoint: the second pass has the casts of the first, whatever is on when backward runs") {
  const auto traced = [](bool checkpoints) {
    const auto blocks = blocks_of("batch");
    CastPolicy policy;
    policy.set("batch_norm", CastRule::float32);
    Trace trace;
    CastCache cache;
    for (uint64_t batch = 0; batch < 2; ++batch) {  // the second finds the converted weights of the first
      Tensor y = random_tensor({4, 6, 5, 7}, batch, DType::float32);
      {
        const Autocast autocast(DType::bfloat16, policy, &cache);
        for (const auto& block : blocks) {
          y = run(block, y, checkpoints);
        }
      }
      trace.tensors.push_back(y.detach());
      sum(mul(y, y)).backward();
    }
    for (const auto& block : blocks) {
      add_state(*block, trace);
    }
    trace.random = default_generator().offset();
    return trace;
  };
  check_same(traced(false), traced(true));
}

TEST_CASE("checkpoint: a part of a batch has its own random numbers in both passes") {
  const auto traced = [](bool checkpoints) {
    const auto blocks = blocks_of("layer2d");
    Tensor y = random_tensor({2, 6, 5, 7}, 1, DType::float32).set_requires_grad();
    const Tensor x = y;
    {
      const BatchPartGuard part({.first = 3, .images = 2, .total = 8});
      for (const auto& block : blocks) {
        y = run(block, y, checkpoints);
      }
    }
    sum(mul(y, y)).backward();
    Trace trace{.tensors = {y.detach(), x.grad()}};
    trace.random = default_generator().offset();
    return trace;
  };
  check_same(traced(false), traced(true));
}

TEST_CASE("checkpoint: modes, statistics and random numbers of the present stay as they are") {
  const auto block = blocks_of("batch_renorm")[0];
  const Tensor x = random_tensor({4, 6, 5, 7}, 1, DType::float32).set_requires_grad();
  const Tensor plain_x = random_tensor({4, 6, 5, 7}, 1, DType::float32).set_requires_grad();
  const auto plain = blocks_of("batch_renorm")[0];
  manual_seed(4);
  sum(mul((*plain)(plain_x), plain_x)).backward();
  manual_seed(4);
  const Tensor loss = sum(mul(nn::checkpoint(block, x), x));
  block->eval();
  block->children()[2].second->train();
  manual_seed(99);
  Trace before;
  for (const auto& [name, buffer] : block->named_buffers()) {
    before.tensors.push_back(copy_of(buffer.detach()));
  }
  std::vector<int64_t> versions;
  for (const auto& [name, buffer] : block->named_buffers()) {
    versions.push_back(buffer.version());
  }
  loss.backward();
  CHECK(max_difference(x.grad(), plain_x.grad()) == 0);
  CHECK_FALSE(block->is_training());
  CHECK(block->children()[2].second->is_training());
  CHECK(default_generator().seed() == 99);
  CHECK(default_generator().offset() == 0);
  const auto buffers = block->named_buffers();
  REQUIRE(buffers.size() == 3);
  for (size_t i = 0; i < buffers.size(); ++i) {
    CHECK(max_difference(buffers[i].second, before.tensors[i]) == 0);
    CHECK(buffers[i].second.version() == versions[i]);
  }
}

TEST_CASE("checkpoint: leaves are told of once, hooks of parameters run once, and the graph can be walked again") {
  const auto blocks = blocks_of("batch");
  std::vector<const TensorImpl*> told;
  int hooks = 0;
  const Tensor weight = blocks[1]->parameters()[0];
  weight.register_hook([&](const Tensor&) {
    ++hooks;
    return Tensor();
  });
  Tensor y = random_tensor({4, 6, 5, 7}, 1, DType::float32);
  size_t parameters = 0;
  for (const auto& block : blocks) {
    y = nn::checkpoint(block, y);
    parameters += block->parameters().size();
  }
  const Tensor loss = sum(mul(y, y));
  backward(loss, {}, {.retain_graph = true, .on_leaf = [&](const Tensor& leaf, const Tensor& gradient) {
                        CHECK(gradient.defined());
                        told.push_back(leaf.impl_pointer().get());
                      }});
  CHECK(told.size() == parameters);
  // The blocks come from last to first.
  CHECK(told.front() == blocks[2]->parameters()[0].impl_pointer().get());
  CHECK(hooks == 1);
  const Tensor once = copy_of(weight.grad());
  loss.backward();
  CHECK(max_difference(weight.grad(), mul(once, 2)) == 0);
  CHECK(error_of([&] { loss.backward(); }).find("this graph was walked before") != std::string::npos);
}

TEST_CASE("checkpoint: grad() for some tensors, and second derivatives") {
  const auto products = [](bool checkpoints) {
    const auto blocks = blocks_of("batch", DType::float64);
    for (const auto& block : blocks) {
      block->to(DType::float64);
    }
    Tensor y = random_tensor({2, 6, 4, 5}, 1).set_requires_grad();
    const Tensor x = y;
    Tensor middle;
    for (const auto& block : blocks) {
      y = run(block, y, checkpoints);
      middle = middle.defined() ? middle : y;
    }
    const Tensor loss = sum(mul(mul(y, y), y));
    const Tensor weight = blocks[1]->parameters()[0];
    Trace trace{.tensors = grad({loss}, {x, middle, weight}, {}, {.create_graph = true})};
    const Tensors second =
        grad({sum(mul(trace.tensors[0], trace.tensors[2].defined() ? x : y))}, {x, weight, blocks[2]->parameters()[0]});
    trace.tensors.insert(trace.tensors.end(), second.begin(), second.end());
    return trace;
  };
  const Trace plain = products(false);
  const Trace again = products(true);
  REQUIRE(again.tensors.size() == 6);
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    CAPTURE(i);
    const double largest = largest_number(plain.tensors[i]);
    CHECK(largest > 1e-3);
    // The parts of a second derivative are added up in another order.
    CHECK(max_difference(again.tensors[i], plain.tensors[i]) <= (i < 3 ? 0 : 1e-12 * largest));
  }
}

TEST_CASE("checkpoint: checkpoints inside of checkpoints") {
  const auto traced = [](bool checkpoints) {
    const auto blocks = blocks_of("batch");
    const auto inner = std::make_shared<nn::Sequential>();
    for (const auto& block : blocks) {
      inner->push_back(block);
    }
    inner->set_grad_checkpointing(checkpoints);
    const Tensor x = random_tensor({4, 6, 5, 7}, 1, DType::float32).set_requires_grad();
    const Tensor y = run(inner, x, checkpoints);
    CHECK(Tape(y).nodes().size() == (checkpoints ? 1 : 12));
    sum(mul(y, y)).backward();
    Trace trace{.tensors = {y.detach(), x.grad()}};
    add_state(*inner, trace);
    trace.random = default_generator().offset();
    return trace;
  };
  check_same(traced(false), traced(true));
}

TEST_CASE("checkpoint: hooks of the module run once, those inside in both passes, and gradients' hooks in the second") {
  const auto block = blocks_of("batch")[0];
  std::vector<std::pair<std::string, nn::CheckpointPass>> calls;
  int gradients = 0;
  nn::Hooks hooks;
  const auto see = [&](const nn::Module& module, const Tensor&, const Tensor& output) {
    calls.emplace_back(module.name().substr(0, 7), nn::checkpoint_pass());
    output.register_hook([&](const Tensor&) {
      ++gradients;
      return Tensor();
    });
  };
  hooks.add(*block, see);
  hooks.add(*block->children()[0].second, see);
  const Tensor y = nn::checkpoint(block, random_tensor({2, 6, 5, 5}, 1, DType::float32));
  using Pass = nn::CheckpointPass;
  CHECK(calls == std::vector<std::pair<std::string, Pass>>{{"Conv2d(", Pass::first}, {"Counted", Pass::none}});
  CHECK(nn::checkpoint_pass() == Pass::none);
  sum(y).backward();
  CHECK(calls.size() == 3);
  CHECK(calls.back() == std::pair<std::string, Pass>{"Conv2d(", Pass::again});
  CHECK(gradients == 2);
  CHECK(nn::checkpoint_pass() == Pass::none);
}

TEST_CASE("checkpoint: anomaly mode names the op inside") {
  const auto block = std::make_shared<Function>([](const Tensor& x) { return sqrt(mul(x, x)); });
  const Tensor x = zeros({2}).set_requires_grad();
  const AnomalyGuard search;
  const Tensor y = nn::checkpoint(block, x);
  const std::string text = error_of([&] { sum(y).backward(); });
  CHECK(text.starts_with("sqrt: backward gave"));
}

TEST_CASE("checkpoint: what would give wrong gradients is an error") {
  const auto weight = [] { return ones({3}); };
  const Tensor x = ones({3}).set_requires_grad();
  CHECK(error_of([&] { nn::checkpoint(nullptr, x); }) == "checkpoint: module: expected one, got none");

  const auto in_place = std::make_shared<Function>([](const Tensor& y) {
    y.bump_version();
    return mul(y, 2);
  });
  CHECK(error_of([&] { nn::checkpoint(in_place, mul(x, 1)); }) ==
        "checkpoint(Function): x: expected a module that leaves it as it is, got one that changes it in place");

  const Tensor own = weight();
  const auto scaled = std::make_shared<Function>([own](const Tensor& y) { return mul(y, own); }, own);
  const Tensor loss = sum(nn::checkpoint(scaled, x));
  own.bump_version();
  CHECK(error_of([&] { loss.backward(); }).find("checkpoint(Function): saved tensor 1 (") == 0);

  const Tensor outside = mul(x, 3);
  const auto captures = std::make_shared<Function>([outside](const Tensor& y) { return mul(y, outside); });
  const Tensor other = sum(nn::checkpoint(captures, mul(x, 1)));
  CHECK(error_of([&] { other.backward(); }) ==
        "checkpoint(Function): backward: expected no tensors from outside but the inputs, got one that mul made");

  const Tensor hidden = weight().set_requires_grad();
  const auto hides = std::make_shared<Function>([hidden](const Tensor& y) { return mul(y, hidden); });
  const Tensor third = sum(nn::checkpoint(hides, x));
  CHECK(error_of([&] { grad({third}, {x, hidden}); }).find("but the inputs, got a leaf") != std::string::npos);

  int shapes = 0;
  const auto reshapes = std::make_shared<Function>([&](const Tensor& y) { return ++shapes == 1 ? mul(y, 2) : sum(y); });
  const Tensor fourth = sum(nn::checkpoint(reshapes, x));
  CHECK(error_of([&] { fourth.backward(); }).find("of float32 [3], as the first gave, got float32 []") < 200);

  int calls = 0;
  const auto throws = std::make_shared<Function>([&](const Tensor& y) {
    check(++calls == 1, "again", "as it should");
    return mul(y, y);
  });
  const Tensor failing = sum(nn::checkpoint(throws, x));
  CHECK(error_of([&] { failing.backward(); }) == "again: as it should");
  CHECK(nn::checkpoint_pass() == nn::CheckpointPass::none);
}
