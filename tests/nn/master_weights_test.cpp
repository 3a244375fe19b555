#include "core/copy.h"
#include "core/factory.h"
#include "error_text.h"
#include "nn/optim/optimizers.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

using namespace norma;
using namespace norma::nn;
using test::error_of;
using test::max_difference;
using test::random_tensor;

namespace {

struct Weight {
  Tensor x;
  std::vector<ParameterGroup> groups;

  explicit Weight(DType dtype) : x(to(random_tensor({5, 7}, 1), dtype)) {
    x.set_requires_grad();
    groups = {{.parameters = {{"w", x}}, .weight_decay = 0.1}};
  }
  /// A gradient that 16 bits hold exactly.
  void set_gradient(uint64_t seed) { x.set_grad(to(to(random_tensor({5, 7}, seed), DType::bfloat16), x.dtype())); }
};

template <class O, class Options>
void check_master(const Options& options) {
  Weight low(DType::bfloat16);
  Weight wide(DType::float32);
  copy_into(low.x.detach(), wide.x.detach());
  O low_optimizer(low.groups, options);
  O wide_optimizer(wide.groups, options);
  for (uint64_t step = 0; step < 20; ++step) {
    low.set_gradient(step + 2);
    wide.set_gradient(step + 2);
    low_optimizer.step();
    wide_optimizer.step();
  }
  const NamedTensors masters = low_optimizer.master_weights();
  REQUIRE(masters.size() == 1);
  CHECK(masters[0].first == "w");
  CHECK(masters[0].second.dtype() == DType::float32);
  CHECK(max_difference(masters[0].second, wide.x) == 0);
  CHECK(low.x.dtype() == DType::bfloat16);
  CHECK(max_difference(low.x, to(wide.x.detach(), DType::bfloat16)) == 0);
  CHECK(wide_optimizer.master_weights().empty());
}

}  // namespace

TEST_CASE("master weights: bfloat16 parameters are updated as float32 ones, and rounded") {
  check_master<Sgd>(SgdOptions{.lr = 1e-3, .momentum = 0.9});
  check_master<Sgd>(SgdOptions{.lr = 1e-4});
  check_master<AdamW>(AdamWOptions{.lr = 1e-4});
}

TEST_CASE("master weights: steps smaller than those of bfloat16 add up") {
  Tensor x = ones({3}, {.dtype = DType::bfloat16}).set_requires_grad();
  Sgd optimizer({{.parameters = {{"w", x}}}}, {.lr = 1e-3});
  for (int step = 0; step < 100; ++step) {
    x.set_grad(ones({3}, {.dtype = DType::bfloat16}));
    optimizer.step();
  }
  // 1 - 100 · 0.001; one step of bfloat16 below 1 is 1/256.
  CHECK(std::abs(x.to_vector<double>()[0] - 0.9) <= 0.5 / 256);
}

TEST_CASE("master weights: a state dict goes on bit for bit") {
  Weight first(DType::bfloat16);
  AdamW before(first.groups, AdamWOptions{.lr = 1e-2});
  for (uint64_t step = 0; step < 3; ++step) {
    first.set_gradient(step + 2);
    before.step();
  }
  const NamedTensors state = before.state_dict();
  for (const auto& [name, x] : state) {
    INFO(name);
    CHECK((x.dtype() == DType::float32 || x.dtype() == DType::int64));
  }
  Weight second(DType::bfloat16);
  AdamW after(second.groups, AdamWOptions{.lr = 1e-2});
  after.load_state_dict(state);
  CHECK(max_difference(second.x, first.x) == 0);  // the master weight, rounded
  first.set_gradient(9);
  second.set_gradient(9);
  before.step();
  after.step();
  CHECK(max_difference(after.master_weights()[0].second, before.master_weights()[0].second) == 0);
}

TEST_CASE("master weights: a parameter that was changed otherwise becomes its own") {
  Weight low(DType::bfloat16);
  Sgd optimizer(low.groups, {.lr = 1});
  low.set_gradient(2);
  optimizer.step();
  fill_(low.x.detach(), 3);
  CHECK(optimizer.master_weights().empty());
  low.x.set_grad(zeros({5, 7}, {.dtype = DType::bfloat16}));
  optimizer.step();  // only weight decay
  CHECK(std::abs(optimizer.master_weights()[0].second.to_vector<double>()[0] - 2.7) < 1e-6);
}

TEST_CASE("master weights: a parameter that got other memory becomes its own, whatever the version of that") {
  class Holder : public Module {
   public:
    explicit Holder(const Tensor& x) { register_parameter("w", x); }
    Tensor forward(const Tensor& x) override { return x; }
    [[nodiscard]] std::string name() const override { return "Holder"; }
  };
  Weight low(DType::bfloat16);
  Holder holder(low.x);
  Sgd optimizer({{.parameters = {{"w", low.x}}}}, {.lr = 1});
  low.set_gradient(2);
  optimizer.step();
  const int64_t version = low.x.version();
  holder.to(DType::float32);
  holder.to(DType::bfloat16);
  CHECK(optimizer.master_weights().empty());
  while (low.x.version() < version) {  // as loading a state dict does
    fill_(low.x.detach(), 3);
  }
  CHECK(low.x.version() == version);
  CHECK(optimizer.master_weights().empty());
  low.x.set_grad(zeros({5, 7}, {.dtype = DType::bfloat16}));
  optimizer.step();
  CHECK(low.x.to_vector<float>() == std::vector<float>(35, 3));
}

TEST_CASE("master weights: strided parameters keep their strides") {
  Tensor x = test::in_layout(to(random_tensor({2, 3, 4, 5}, 1), DType::bfloat16), test::Layout::channels_last);
  x.set_requires_grad();
  const Strides strides = x.strides();
  Sgd optimizer({{.parameters = {{"w", x}}}}, {.lr = 0.5});
  const Tensor before = copy_of(x.detach());
  x.set_grad(copy_of(ones_like(x), MemoryFormat::contiguous));
  optimizer.step();
  CHECK(x.strides() == strides);
  CHECK(max_difference(optimizer.master_weights()[0].second, to(before, DType::float32) - 0.5) == 0);
}

TEST_CASE("master weights: a float32 optimizer refuses them") {
  Weight low(DType::bfloat16);
  Sgd low_optimizer(low.groups, {.lr = 1});
  low.set_gradient(2);
  low_optimizer.step();
  Weight wide(DType::float32);
  Sgd optimizer(wide.groups, {.lr = 1});
  CHECK(error_of([&] { optimizer.load_state_dict(low_optimizer.state_dict()); }) ==
        "optimizer.load_state_dict: unexpected: master.w");
}
