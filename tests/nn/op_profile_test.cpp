#include "core/op_profile.h"

#include "core/factory.h"
#include "nn/optim/optimizers.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

using namespace norma;
using test::random_tensor;

namespace {

void wait_milliseconds(int count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

std::vector<OpRecord> find(const OpProfile& profile, std::string_view op) {
  std::vector<OpRecord> found;
  std::copy_if(profile.records().begin(), profile.records().end(), std::back_inserter(found),
               [&](const OpRecord& record) { return record.work.op == op; });
  return found;
}

}  // namespace

TEST_CASE("profile: nothing is described while none is alive, nor on another thread") {
  int described = 0;
  const auto describe = [&] {
    ++described;
    return OpWork{.op = "work"};
  };
  { const OpScope scope(describe); }
  CHECK(described == 0);
  const OpProfile profile;
  std::thread([&] { const OpScope scope(describe); }).join();
  CHECK(described == 0);
  { const OpScope scope(describe); }
  CHECK(described == 1);
  CHECK(profile.records().size() == 1);
}

TEST_CASE("profile: a scope's seconds are its own, those of scopes inside are subtracted") {
  OpProfile profile(kCpu);
  const auto start = std::chrono::steady_clock::now();
  {
    const OpScope outer([] { return OpWork{.op = "outer"}; });
    wait_milliseconds(2);
    {
      const OpScope inner([] { return OpWork{.op = "inner"}; });
      wait_milliseconds(20);
      const OpScope innermost([] { return OpWork{.op = "innermost"}; });
    }
  }
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  REQUIRE(profile.records().size() == 3);
  CHECK(profile.records()[0].work.op == "innermost");
  CHECK(profile.records()[1].work.op == "inner");
  CHECK(profile.records()[2].work.op == "outer");
  CHECK(profile.records()[1].seconds >= 0.02);
  CHECK(profile.records()[2].seconds >= 0.002);
  CHECK(profile.records()[2].seconds <= passed - 0.02);
  CHECK(profile.seconds() <= passed);
  profile.clear();
  CHECK(profile.records().empty());
  CHECK(profile.seconds() == 0);
}

TEST_CASE("profile: the innermost one collects") {
  const OpProfile outer;
  {
    const OpProfile inner;
    const OpScope scope([] { return OpWork{.op = "work"}; });
  }
  CHECK(outer.records().empty());
  {
    const OpScope scope([] { return OpWork{.op = "work"}; });
  }
  CHECK(outer.records().size() == 1);
}

TEST_CASE("profile: a kernel names itself") {
  const OpProfile profile;
  OpScope::set_implementation("nobody");
  {
    const OpScope outer([] { return OpWork{.op = "outer", .implementation = "first"}; });
    {
      const OpScope inner([] { return OpWork{.op = "inner"}; });
      OpScope::set_implementation("second");
    }
  }
  REQUIRE(profile.records().size() == 2);
  CHECK(profile.records()[0].work.implementation == "second");
  CHECK(profile.records()[1].work.implementation == "first");
}

TEST_CASE("profile: bytes of a tensor") {
  CHECK(bytes_of(Tensor()) == 0);
  CHECK(bytes_of(zeros({3, 5})) == 60);
  CHECK(bytes_of(zeros({3, 5}), Tensor(), zeros({2}, {.dtype = DType::float64})) == 76);
  const Tensor x = zeros({3, 1});
  CHECK(bytes_of(alias(x, {3, 100}, {1, 0}, 0)) == 12);
}

TEST_CASE("profile: passes, bytes and flops of a step") {
  const Tensor x = random_tensor({2, 3, 8, 9}, 1, DType::float32);
  const Tensor conv = random_tensor({4, 3, 3, 3}, 2, DType::float32).set_requires_grad();
  const Tensor gamma = random_tensor({4}, 3, DType::float32).set_requires_grad();
  const Tensor beta = random_tensor({4}, 4, DType::float32).set_requires_grad();
  const Tensor weight = random_tensor({5, 4}, 5, DType::float32).set_requires_grad();
  nn::Sgd sgd({{.parameters = {{"conv", conv}, {"gamma", gamma}, {"beta", beta}, {"weight", weight}}}},
              {.lr = 0.1, .momentum = 0.9});
  OpProfile profile;
  const Tensor z = group_norm(conv2d(x, conv, {}, {.padding = 1}), 2, gamma, beta);
  const Tensor y = linear(mean(relu(z), {2, 3}), weight);
  backward(sum(y));
  sgd.step();

  constexpr double kPixels = 2 * 8 * 9;
  const double x_bytes = bytes_of(x);
  const double z_bytes = bytes_of(z);

  const auto forward = find(profile, "conv2d");
  REQUIRE(forward.size() == 1);
  CHECK(forward[0].pass == OpPass::forward);
  CHECK(forward[0].work.bytes == x_bytes + bytes_of(conv) + z_bytes);
  CHECK(forward[0].work.flops == 2 * kPixels * 4 * 3 * 9);
  const auto* call = std::any_cast<kernels::Conv2dCall>(&forward[0].work.call);
  REQUIRE(call != nullptr);
  CHECK(call->pass == kernels::Conv2dPass::forward);
  CHECK(call->conv.o == 4);
  CHECK(call->conv.padding_w == 1);
  CHECK(find(profile, "conv2d_input_gradient").empty());  // x needs none
  const auto weight_gradient = find(profile, "conv2d_weight_gradient");
  REQUIRE(weight_gradient.size() == 1);
  CHECK(weight_gradient[0].pass == OpPass::backward);
  CHECK(std::any_cast<const kernels::Conv2dCall&>(weight_gradient[0].work.call).pass ==
        kernels::Conv2dPass::weight_gradient);

  const auto norm = find(profile, "group_norm");
  REQUIRE(norm.size() == 1);
  CHECK(norm[0].work.bytes == 2 * z_bytes);
  CHECK(norm[0].work.implementation == "runs");
  const auto norm_backward = find(profile, "group_norm_backward");
  REQUIRE(norm_backward.size() == 1);
  CHECK(norm_backward[0].pass == OpPass::backward);
  CHECK(norm_backward[0].work.bytes == 3 * z_bytes);

  CHECK(find(profile, "relu")[0].work.bytes == 2 * z_bytes);
  CHECK(find(profile, "relu_backward")[0].work.bytes <= 3 * z_bytes);
  const auto products = find(profile, "matmul");
  REQUIRE(products.size() == 3);
  CHECK(products[0].pass == OpPass::forward);
  CHECK(products[1].pass == OpPass::backward);
  CHECK(products[2].pass == OpPass::backward);
  CHECK(products[0].work.flops == 2 * 2 * 4 * 5);
  CHECK(std::any_cast<const kernels::MatmulCase&>(products[0].work.call).n == 5);

  const auto updates = find(profile, "sgd");
  REQUIRE(updates.size() == 1);
  CHECK(updates[0].pass == OpPass::optimizer);
  CHECK(updates[0].work.bytes == 5 * bytes_of(conv, gamma, beta, weight));
  for (const OpRecord& record : profile.records()) {
    CAPTURE(record.work.op);
    CHECK(record.seconds >= 0);
    CHECK(!record.work.implementation.empty());
  }
}

TEST_CASE("profile: names of the passes") {
  CHECK(to_string(OpPass::forward) == "forward");
  CHECK(to_string(OpPass::backward) == "backward");
  CHECK(to_string(OpPass::optimizer) == "optimizer");
}
