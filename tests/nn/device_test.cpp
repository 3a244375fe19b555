#include "core/device.h"

#include "cuda_devices.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/convert.h"
#include "nn/optim/clip.h"
#include "nn/optim/optimizers.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <memory>

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::in_layout;
using norma::test::Layout;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

/// A weight on a device after five clipped steps of an optimizer.
template <class Opt, class Options>
Tensor trained(Device device, DType dtype, const Options& options) {
  Tensor w = to_device(random_tensor({37, 5}, 1, DType::float32), device);
  w = to(w, dtype).detach();
  w.set_requires_grad();
  Opt optimizer({{.parameters = {{"w", w}}, .weight_decay = 0.1}}, options);
  for (uint64_t step = 0; step < 5; ++step) {
    w.set_grad(to(to_device(random_tensor({37, 5}, step + 2, DType::float32), device), dtype));
    clip_grad_norm_({w}, 3);
    clip_grad_value_({w}, 0.4);
    optimizer.step();
    CHECK(w.device() == device);
  }
  return w.detach();
}

std::shared_ptr<Sequential> small_network() {
  return std::shared_ptr<Sequential>(
      new Sequential{std::make_shared<Conv2d>(3, 4, 3), std::make_shared<Conv2d>(4, 2, 1)});
}

}  // namespace

TEST_CASE("optimizers and clipping: the numbers of the CPU on another device") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    CAPTURE(to_string(dtype));
    // The norm that gradients are clipped by is a sum in float64, in another order: narrower numbers do not see it.
    const double most = dtype == DType::float64 ? 2e-15 : 0;
    const auto both = [&]<class Opt>(const auto& options, Opt*) {
      return max_difference(trained<Opt>(kCpu, dtype, options), trained<Opt>(kCudaEmulated, dtype, options));
    };
    CHECK(both(SgdOptions{.lr = 0.1}, static_cast<Sgd*>(nullptr)) <= most);
    CHECK(both(SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true}, static_cast<Sgd*>(nullptr)) <= most);
    CHECK(both(AdamWOptions{.lr = 0.1}, static_cast<AdamW*>(nullptr)) <= most);
  }
}

TEST_CASE("clip: gradients on two devices are refused") {
  Tensor a = ones({2}, {.device = kCpu}).set_requires_grad();
  Tensor b = ones({2}, {.device = kCudaEmulated}).set_requires_grad();
  a.set_grad(ones({2}, {.device = kCpu}));
  b.set_grad(ones({2}, {.device = kCudaEmulated}));
  CHECK(error_of([&] { clip_grad_norm_({a, b}, 1); }) == "sum_of_squares: x: expected device cpu, got cuda-emulated:0");
}

TEST_CASE("module: to(device) moves parameters, gradients and buffers, and every handle sees it") {
  const DefaultDeviceGuard on_cpu(kCpu);
  BatchNorm2d norm(3);
  const Tensor weight = norm.weight();
  Tensor handle = weight;
  handle.set_grad(random_tensor({3}, 1, DType::float32));
  const Tensor gradient = handle.grad();
  CHECK(norm.device() == kCpu);
  norm.to(kCudaEmulated);
  CHECK(norm.device() == kCudaEmulated);
  CHECK(weight.device() == kCudaEmulated);
  CHECK(weight.requires_grad());
  CHECK(weight.grad().device() == kCudaEmulated);
  CHECK(max_difference(weight.grad(), gradient) == 0);
  for (const auto& [name, x] : norm.state_dict()) {
    CHECK_MESSAGE(x.device() == kCudaEmulated, name);
  }
  norm.to(kCpu);
  CHECK(weight.data<float>()[2] == 1);
  const std::string refused = error_of([&] { norm.to(Device{.type = DeviceType::cuda}); });
  CHECK_MESSAGE(test::is_refusal_of_cuda(refused, "to"), refused);
  CHECK(Sequential().device() == kCpu);
}

TEST_CASE("module: to(device) between two steps changes no bit of what follows") {
  const DefaultDeviceGuard on_cpu(kCpu);
  const auto train = [](bool moves) {
    const auto network = small_network();
    uint64_t seed = 1;
    for (const Tensor& x : network->parameters()) {
      copy_into(random_tensor(x.sizes(), seed++), x.detach());
    }
    AdamW optimizer({{.parameters = network->named_parameters()}}, {.lr = 0.1});
    for (uint64_t step = 0; step < 4; ++step) {
      if (moves) {
        network->to(step % 2 == 0 ? kCudaEmulated : kCpu);
      }
      const Tensor x = to_device(random_tensor({2, 3, 6, 5}, step + 9, DType::float32), network->device());
      optimizer.zero_grad();
      const Tensor y = (*network)(x);
      sum(mul(y, y)).backward();
      optimizer.step();
    }
    network->to(kCpu);
    return network->state_dict();
  };
  const NamedTensors stays = train(false);
  const NamedTensors moved = train(true);
  for (size_t i = 0; i < stays.size(); ++i) {
    CHECK_MESSAGE(max_difference(stays[i].second, moved[i].second) == 0, stays[i].first);
  }
}

TEST_CASE("master weights: those of a parameter that moved begin anew with what it holds") {
  Tensor w = to_device(to(random_tensor({5, 7}, 1), DType::bfloat16), kCpu).detach().set_requires_grad();
  Sgd optimizer({{.parameters = {{"w", w}}}}, {.lr = 1e-4});
  const auto step = [&] {
    w.set_grad(ones_like(w));
    optimizer.step();
  };
  step();
  CHECK(optimizer.master_weights().size() == 1);
  struct Holder : Module {
    explicit Holder(const Tensor& x) { register_parameter("w", x); }
    Tensor forward(const Tensor& x) override { return x; }
    [[nodiscard]] std::string name() const override { return "Holder"; }
  } holder(w);
  holder.to(kCudaEmulated);
  CHECK(optimizer.master_weights().empty());
  const Tensor before = to(w.detach(), DType::float32);
  step();
  const NamedTensors masters = optimizer.master_weights();
  REQUIRE(masters.size() == 1);
  CHECK(masters[0].second.device() == kCudaEmulated);
  CHECK(max_difference(masters[0].second, sub(before, 1e-4)) <= 1e-6);
}

TEST_CASE("state dicts: loaded from another device") {
  const DefaultDeviceGuard on_cpu(kCpu);
  const auto from = small_network();
  const auto into = small_network();
  for (const Tensor& x : from->parameters()) {
    copy_into(random_tensor(x.sizes(), 5), x.detach());
  }
  into->to(kCudaEmulated);
  into->load_state_dict(from->state_dict());
  CHECK(into->device() == kCudaEmulated);
  CHECK(max_difference(into->parameters()[0], from->parameters()[0]) == 0);
  AdamW optimizer({{.parameters = from->named_parameters()}}, {.lr = 0.1});
  AdamW other({{.parameters = into->named_parameters()}}, {.lr = 0.1});
  for (Tensor x : from->parameters()) {
    x.set_grad(ones_like(x));
  }
  optimizer.step();
  other.load_state_dict(optimizer.state_dict());
  CHECK(other.steps() == 1);
  for (const auto& [name, x] : other.state_dict()) {
    CHECK_MESSAGE(x.device() == (name == "step" || name == "states" ? kCpu : kCudaEmulated), name);
  }
}

TEST_CASE("convert_norm: the new norm lies where the model does") {
  Sequential net{std::make_shared<Conv2d>(3, 8, 3), std::make_shared<BatchNorm2d>(8)};
  net.to(kCudaEmulated);
  CHECK(convert_norm(net, "batch", "group:4") == 1);
  CHECK(net(to_device(random_tensor({2, 3, 5, 5}, 1, DType::float32), kCudaEmulated)).device() == kCudaEmulated);
}
