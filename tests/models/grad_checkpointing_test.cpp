#include "core/parallel.h"
#include "core/random.h"
#include "models/registry.h"
#include "nn/optim/optimizers.h"
#include "ops/loss/loss.h"
#include "support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::models;
using norma::test::random_tensor;

namespace {

/// What the tape keeps less of.
enum class Less { nothing, blocks, outputs };

/// All numbers that a few steps of training leave: losses, gradients, parameters and buffers.
std::vector<float> trained(const std::string& name, const std::string& norm, Less less) {
  const bool checkpoints = less == Less::blocks;
  ModelOptions options{.num_classes = 5, .norm = norm, .drop_path = 0.3, .grad_checkpointing = checkpoints, .seed = 2};
  if (name.starts_with("resnet")) {
    options.small_stem = true;
  } else {
    options.patch_size = name.starts_with("vit") ? 8 : 2;
    options.image_size = 16;
  }
  // Drawing start values takes as long as the training. They are drawn once; tensors that other norms add keep
  // their own.
  static std::map<std::string, nn::NamedTensors> starts;
  nn::NamedTensors& start = starts[name];
  if (start.empty()) {
    start = create_model(name, options)->state_dict();
  }
  options.initialize = false;
  const auto model = create_model(name, options);
  nn::NamedTensors own;
  for (const auto& [path, x] : model->state_dict()) {
    const auto found = std::ranges::find(start, path, [](const auto& tensor) { return tensor.first; });
    if (found != start.end() && found->second.sizes() == x.sizes()) {
      own.push_back(*found);
    }
  }
  model->load_state_dict(own, {.strict = false});
  model->to(MemoryFormat::channels_last);
  nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 0), {.lr = 0.05});
  manual_seed(7);
  std::vector<float> numbers;
  const auto keep = [&](const Tensor& x) {
    const std::vector<float> values = x.detach().to_vector<float>();
    numbers.insert(numbers.end(), values.begin(), values.end());
  };
  constexpr uint64_t kSteps = 2;  // the second sees the weights and statistics that the first left
  for (uint64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor images = copy_of(random_tensor({4, 3, 16, 16}, step, DType::float32), MemoryFormat::channels_last);
    const RemakeGuard guard(less == Less::outputs);
    const Tensor loss = cross_entropy((*model)(images), from_vector(std::vector<int64_t>{0, 3, 1, 4}, {4}));
    const std::string summary = Tape(loss).summary();
    CHECK((summary.find("checkpoint(") != std::string::npos) == checkpoints);
    if (less == Less::outputs) {
      CHECK(std::ranges::any_of(Tape(loss).nodes(), [](const auto& node) { return node->recompute != nullptr; }));
    }
    loss.backward();
    keep(loss);
    if (step == kSteps - 1) {
      for (const Tensor& parameter : model->parameters()) {
        keep(parameter.grad());
      }
    }
    optimizer.step();
  }
  for (const auto& [path, x] : model->state_dict()) {
    keep(x);
  }
  return numbers;
}

void check_same_bits(const std::string& model, const std::string& norm, Less less) {
  CAPTURE(model);
  CAPTURE(norm);
  const std::vector<float> plain = trained(model, norm, Less::nothing);
  const std::vector<float> again = trained(model, norm, less);
  REQUIRE(plain.size() == again.size());
  int64_t others = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    others += plain[i] == again[i] ? 0 : 1;  // a NaN counts
  }
  CHECK(others == 0);
}

}  // namespace

TEST_CASE("grad checkpointing: training has the bits of training without it, with each norm and number of threads" *
          doctest::test_suite("slow-emulated")) {
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    if (default_device() == kCpu) {  // a second thread would be told of each change of the emulated device's pages
      set_num_threads(threads);
    } else if (threads > 1) {
      break;
    }
    for (const std::string model : {"resnet18", "convnext_atto", "vit_tiny"}) {
      for (const std::string norm :
           {"batch", model == "resnet18" ? "group:32" : "group:8", "layer2d", "batch_renorm"}) {
        CAPTURE(threads);
        check_same_bits(model, norm, Less::blocks);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("recompute norms: training has the bits of training without it, with each norm" *
          doctest::test_suite("slow-emulated")) {
  for (const std::string model : {"resnet18", "convnext_atto"}) {
    for (const char* norm : {"batch", "group:8", "layer2d", "batch_renorm", "group:1", "rms2d", "dyt", "derf", "frn",
                             "evonorm_s0:8", "ghost_batch[sub_batch=2]"}) {
      check_same_bits(model, norm, Less::outputs);
    }
  }
}
