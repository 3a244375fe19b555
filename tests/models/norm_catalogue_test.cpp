#include "core/allocator.h"
#include "models/registry.h"
#include "nn/optim/optimizers.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

#include <cmath>

using namespace norma;
using namespace norma::models;
using norma::test::random_tensor;

namespace {

struct Entry {
  std::string norm;
  int64_t parameters;  ///< of resnet50
  size_t tensors;
  double fall = 0.01;  ///< of the loss in one step
};
// resnet50 has 53 norms of 26,560 channels together; 25,503,912 parameters in 55 tensors belong to none of them. timm
// has batch, layer2d, group, rms2d and simple2d too, and gives the same figures.
constexpr int64_t kOthers = 25503912;
constexpr int64_t kChannels = 26560;
const std::vector<Entry> kCatalogue = {
    {"batch", kOthers + 2 * kChannels, 320},  // 25,557,032
    {"sync_batch", kOthers + 2 * kChannels, 320},
    {"frozen_batch", kOthers, 55 + 4 * 53},  // four buffers
    {"ghost_batch", kOthers + 2 * kChannels, 320},
    {"batch_renorm", kOthers + 2 * kChannels, 320},
    {"layer2d", 25557032, 161},
    {"group", 25557032, 161},
    {"instance", 25557032, 161},
    {"rms2d", 25530472, 108},  // no bias
    {"simple2d", 25530472, 108},
    {"local_response", kOthers, 55},
    {"evonorm_b0", kOthers + 3 * kChannels, 55 + 4 * 53},  // v, and running_var as a buffer
    {"evonorm_s0", kOthers + 3 * kChannels, 55 + 3 * 53},
    {"frn", kOthers + 3 * kChannels, 55 + 3 * 53},  // tau
    {"grn", kOthers + 2 * kChannels, 161},
    {"dyt", kOthers + 2 * kChannels + 53, 55 + 3 * 53, 1e-4},       // one alpha each
    {"derf", kOthers + 2 * kChannels + 2 * 53, 55 + 4 * 53, 1e-4},  // alpha and shift
    {"seednorm", kOthers + 3 * kChannels, 55 + 3 * 53},             // alpha and beta
    {"none", kOthers, 55}};

// Options that leave out tensors; instance norms have two statistics and a counter more.
const std::vector<Entry> kWithOptions = {
    {"batch[bias=false]", kOthers + kChannels, 55 + 4 * 53},
    {"batch[track_running_stats=false]", kOthers + 2 * kChannels, 161},
    {"group:8[affine=false]", kOthers, 55},
    {"layer2d[bias=false]", kOthers + kChannels, 108},
    {"rms2d[affine=false]", kOthers, 55},
    {"instance[track_running_stats=true,momentum=0.01]", kOthers + 2 * kChannels, 320}};

// The square of the length of all gradients together.
double squared_length(const nn::Module& model) {
  double result = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Tensor gradient = parameter.grad();
    result += sum(gradient * gradient).item<float>();
  }
  return result;
}

// The losses before, between and after two steps on four images. Each step goes down the gradient as far as would lower
// the loss by `fall`, were it a plane: a wrong gradient of a norm shows as another fall.
std::vector<double> two_steps(nn::Module& model, int64_t size, double fall) {
  model.to(MemoryFormat::channels_last);
  nn::Sgd optimizer(nn::parameter_groups(model, 0), {.momentum = 0});
  const Tensor x = copy_of(random_tensor({4, 3, size, size}, 3, DType::float32), MemoryFormat::channels_last);
  const Tensor target = from_vector<int64_t>({0, 1, 2, 3}, {4});
  std::vector<double> losses;
  for (int i = 0;; ++i) {
    const Tensor loss = cross_entropy(model(x), target);
    losses.push_back(loss.item<float>());
    if (i == 2) {
      return losses;
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.set_lr(fall / squared_length(model));
    optimizer.step();
  }
}

// Convolutions and linear layers: what a network has with any norm.
nn::NamedTensors without_norms(const nn::Module& model) {
  nn::NamedTensors result;
  for (const auto& [name, x] : model.state_dict()) {
    if (x.rank() > 1) {
      result.emplace_back(name, x);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("catalogue: parameters and tensors of resnet50 with every norm") {
  for (const std::vector<Entry>* entries : {&kCatalogue, &kWithOptions}) {
    for (const Entry& entry : *entries) {
      CAPTURE(entry.norm);
      const auto model = create_model("resnet50", {.norm = entry.norm, .initialize = false});
      CHECK(model->parameter_count() == entry.parameters);
      CHECK(model->state_dict().size() == entry.tensors);
    }
  }
  allocator(kCpu).empty_cache();
}

TEST_CASE("catalogue: both families train with every norm" * doctest::test_suite("again")) {
  for (const std::string name : {"resnet50", "convnext_tiny"}) {
    ModelOptions options{.num_classes = 4, .seed = 1};
    if (name == "resnet50") {
      options.small_stem = true;
    } else {
      options.patch_size = 2;
      options.layer_scale = 0.1;  // else the blocks, and their norms, do not count
    }
    const nn::NamedTensors start = without_norms(*create_model(name, options));
    options.initialize = false;  // drawing the values would take longer than the training
    for (const Entry& entry : kCatalogue) {
      CAPTURE(name);
      CAPTURE(entry.norm);
      // Its running statistics would move the loss from step to step.
      options.norm = entry.norm == "batch_renorm" ? "batch_renorm[momentum=0]" : entry.norm;
      const auto model = create_model(name, options);
      model->load_state_dict(start, {.strict = false});
      const std::vector<double> losses = two_steps(*model, name == "resnet50" ? 16 : 32, entry.fall);
      for (const size_t step : {0, 1}) {
        const double fraction = (losses[step] - losses[step + 1]) / entry.fall;
        CAPTURE(step);
        // evonorm_b0 is so steep that the loss curves within one step, by which rounding decides; the others reach 0.8
        CHECK(fraction > (entry.norm == "evonorm_b0" ? 0.3 : 0.6));
        CHECK(fraction < 1.05);
      }
    }
  }
}
