#include "base/error.h"
#include "core/factory.h"
#include "core/op.h"
#include "core/parallel.h"
#include "core/random.h"
#include "files.h"
#include "json.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "session/interrupt.h"
#include "session/trainer.h"
#include "support.h"
#include "train/memory_use.h"
#include "train/training_step.h"
#include "train/two_classes.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;

namespace {

/// Twelve images of noise, of which number 7 has a pixel that is brighter than all others.
class OneBright final : public test::TwoClasses {
 public:
  explicit OneBright(bool all) : TwoClasses("one_bright", 12, 8), all_(all) {}
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(info().height, info().width, info().channels);
    Generator generator(static_cast<uint64_t>(index));
    for (uint8_t& pixel : image.pixels) {
      pixel = static_cast<uint8_t>(generator.below(200));
    }
    image.pixels[0] = all_ || index == 7 ? 255 : 0;
    return index % 2;
  }

 private:
  bool all_;
};

/// What the network below has met in a training step.
struct Met {
  std::vector<double> images;
  uint64_t random = 0;
  std::vector<double> running_mean;

  bool operator==(const Met&) const = default;
};
std::vector<Met> met;

/// Passes its input on, or makes it or its gradient infinite.
class Poison : public nn::Module {
 public:
  explicit Poison(bool in_backward) : in_backward_(in_backward) {}
  [[nodiscard]] std::string name() const override { return "Poison"; }
  Tensor forward(const Tensor& x) override {
    const double infinity = std::numeric_limits<double>::infinity();
    if (!armed) {
      return x;
    }
    if (!in_backward_) {
      return mul(x, infinity);
    }
    return Op("poisoned").record({x}, mul(x.detach(), 1), {}, [=](const Tensor& dy, const BackwardContext&) -> Tensors {
      return {mul(dy, infinity)};
    });
  }
  bool armed = false;

 private:
  bool in_backward_;
};

/// Convolution, batch norm, Poison and classifier. Poison is armed by a bright pixel in a training batch.
class PoisonedNet : public nn::Module {
 public:
  PoisonedNet(const models::ModelOptions& options, bool in_backward) {
    conv_ = register_module("conv", std::make_shared<nn::Conv2d>(options.in_channels, 4, Pair{3, 3}));
    norm_ = register_module("norm", std::make_shared<nn::BatchNorm2d>(4));
    poison_ = register_module("poison", std::make_shared<Poison>(in_backward));
    head_ = register_module("head", std::make_shared<nn::Linear>(4, options.num_classes));
    Generator generator(options.seed);
    for (const auto& [path, x] : named_parameters()) {
      if (path != "norm.weight" && path != "norm.bias") {
        Tensor values = x.detach();
        uniform_(values, -0.3, 0.3, generator);
      }
    }
  }
  [[nodiscard]] std::string name() const override { return "PoisonedNet"; }
  Tensor forward(const Tensor& x) override {
    const std::vector<double> images = x.to_vector<double>();
    if (is_training()) {
      met.push_back({.images = images,
                     .random = default_generator().below(1'000'000),
                     .running_mean = norm_->running_mean().to_vector<double>()});
    }
    poison_->armed = is_training() && *std::max_element(images.begin(), images.end()) > 1.5;
    return (*head_)(mean((*poison_)((*norm_)((*conv_)(x))), {2, 3}));
  }

 private:
  std::shared_ptr<nn::Conv2d> conv_;
  std::shared_ptr<nn::BatchNorm2d> norm_;
  std::shared_ptr<Poison> poison_;
  std::shared_ptr<nn::Linear> head_;
};

/// Two epochs of three steps, in each of which one has the bright image.
Recipe poisoned(const std::string& where) {
  static const bool known = [] {
    for (const bool backward : {false, true}) {
      models::register_model(backward ? "poisoned_backward" : "poisoned_forward",
                             {.make = [backward](const models::ModelOptions& options) {
                               return std::make_shared<PoisonedNet>(options, backward);
                             }});
    }
    data::register_dataset("one_bright", "a test's",
                           [](const data::DatasetOptions&) { return std::make_shared<OneBright>(false); });
    data::register_dataset("all_bright", "a test's",
                           [](const data::DatasetOptions&) { return std::make_shared<OneBright>(true); });
    return true;
  }();
  REQUIRE(known);
  met.clear();
  Recipe recipe;
  recipe.model = "poisoned_" + where;
  recipe.dataset = "one_bright";
  recipe.image_size = 8;
  recipe.batch_size = 4;
  recipe.epochs = 2;
  recipe.sched = "constant";
  recipe.lr = 0.01;
  return recipe;
}

TrainerOptions silent(const std::filesystem::path& output = {}) {
  return {.output = output, .workers = 1, .log_interval = 1, .log_json = true, .quiet = true};
}

/// Copies of all that a step may change.
data::NamedTensors state_of(const Trainer& trainer) {
  const Checkpoint now = trainer.checkpoint();
  data::NamedTensors all;
  for (const data::NamedTensors* part : {&now.model, &now.optimizer, &now.ema}) {
    for (const auto& [name, x] : *part) {
      all.emplace_back(name, from_vector<double>(x.to_vector<double>(), x.sizes(), {.dtype = DType::float64}));
    }
  }
  return all;
}

bool same(const data::NamedTensors& a, const data::NamedTensors& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.template to_vector<double>() == y.second.template to_vector<double>();
         });
}

/// In which step, from 1, the bright image comes first.
int64_t first_poisoned_step() {
  const auto bright = std::find_if(met.begin(), met.end(), [](const Met& step) {
    return *std::max_element(step.images.begin(), step.images.end()) > 1.5;
  });
  return bright - met.begin() + 1;
}

/// The same images and random numbers.
bool last_two_are_alike() {
  const Met& first = met[met.size() - 2];
  const Met& again = met[met.size() - 1];
  return first.images == again.images && first.random == again.random;
}

}  // namespace

TEST_CASE("fault: a loss that is not finite stops the run with the op and its layer, found in the same step again") {
  const std::string error = error_of([] { Trainer(poisoned("forward"), silent()).run(); });
  const int64_t step = first_poisoned_step();
  CHECK_MESSAGE(error.starts_with("train: the loss became "), error);
  CHECK_MESSAGE(error.find(fmt::format(" at step {}: poison: mul: forward gave ", step)) != std::string::npos, error);
  CHECK_MESSAGE(error.ends_with("; --skip-nonfinite leaves out single steps like this one; a smaller learning rate may "
                                "help (it is 0.01)"),
                error);
  REQUIRE(met.size() == static_cast<size_t>(step) + 1);
  CHECK(last_two_are_alike());
}

TEST_CASE("fault: a gradient that is not finite stops the run before it reaches the weights") {
  const std::string error = error_of([] { Trainer(poisoned("backward"), silent()).run(); });
  const int64_t step = first_poisoned_step();
  CHECK_MESSAGE(error.starts_with(fmt::format("train: a gradient became infinite or NaN at step {}: poison: poisoned: "
                                              "backward: mul: forward gave Inf in output 0 (",
                                              step)),
                error);
  REQUIRE(met.size() == static_cast<size_t>(step) + 1);
  CHECK(last_two_are_alike());
}

TEST_CASE("fault: with skip_nonfinite the step is left out and changes nothing") {
  for (const char* where : {"forward", "backward"}) {
    for (const char* opt : {"adamw", "sgd"}) {
      CAPTURE(where);
      CAPTURE(opt);
      const TemporaryFolder folder;
      Recipe recipe = poisoned(where);
      recipe.opt = opt;
      recipe.skip_nonfinite = true;
      recipe.model_ema = true;
      TrainerOptions options = silent(folder / "o");
      std::vector<data::NamedTensors> states;
      Trainer* running = nullptr;
      options.before_stage = [&](std::string_view stage) {
        if (stage == "step") {
          states.push_back(state_of(*running));
        }
      };
      Trainer trainer(recipe, options);
      running = &trainer;
      const TrainResult result = trainer.run();
      states.push_back(state_of(trainer));
      CHECK(result.finished);
      CHECK(result.left_out == 2);
      REQUIRE(states.size() == 7);
      double sum = 0;
      for (size_t i = 0; i < 6; ++i) {
        const bool bright = *std::max_element(met[i].images.begin(), met[i].images.end()) > 1.5;
        CHECK(same(states[i], states[i + 1]) == bright);
        CHECK_FALSE(std::signbit(result.losses[i]));  // of a NaN it is by chance
        sum += i < 3 && !bright ? result.losses[i] : 0;
      }
      // Means are over the steps that count, and the log says how many do not.
      std::istringstream summary(read_file(folder / "o/summary.csv"));
      std::string row;
      std::getline(summary, row);
      std::getline(summary, row);
      CHECK(std::stod(row.substr(2)) == doctest::Approx(sum / 2).epsilon(1e-12));
      const std::string log = read_file(folder / "o/log.jsonl");
      CHECK(log.find("\"left_out\": 2}") != std::string::npos);
      CHECK(log.find("\"left_out\": 3}") == std::string::npos);
    }
  }
}

TEST_CASE("fault: too many steps in a row that are left out end the run") {
  Recipe recipe = poisoned("forward");
  recipe.dataset = "all_bright";
  recipe.skip_nonfinite = true;
  recipe.max_nonfinite = 3;
  const std::string error = error_of([&] { Trainer(recipe, silent()).run(); });
  CHECK_MESSAGE(error.find(" at step 3, as in the 2 steps before: poison: mul: forward gave ") != std::string::npos,
                error);
  CHECK_MESSAGE(error.ends_with("; a smaller learning rate may help (it is 0.01)"), error);
  CHECK(error.find("--skip-nonfinite") == std::string::npos);
}

TEST_CASE("fault: a run with steps left out resumes with the same bits") {
  const TemporaryFolder folder;
  Recipe recipe = poisoned("forward");
  recipe.skip_nonfinite = true;
  recipe.model_ema = true;
  Trainer whole(recipe, silent(folder / "whole"));
  whole.run();
  const int64_t step = first_poisoned_step();
  {
    const InterruptGuard guard;
    Trainer begun(recipe, silent(folder / "cut"));
    met.clear();
    begun.model()->register_forward_hook([step](const nn::Module& module, const Tensor&, const Tensor&) {
      if (module.is_training() && met.size() == static_cast<size_t>(step)) {
        std::raise(SIGINT);
      }
    });
    CHECK(begun.run().step == step);
  }
  const Checkpoint checkpoint = load_checkpoint(folder / "cut/last.safetensors");
  CHECK(checkpoint.step == step);
  TrainerOptions options = silent(folder / "cut");
  options.resumed = folder / "cut/last.safetensors";
  Trainer resumed(recipe_of(checkpoint), options, checkpoint);
  const TrainResult rest = resumed.run();
  CHECK(rest.finished);
  CHECK(rest.left_out == 2);
  CHECK(read_file(folder / "cut/last.safetensors") == read_file(folder / "whole/last.safetensors"));
  CHECK(read_file(folder / "cut/summary.csv") == read_file(folder / "whole/summary.csv"));
}

TEST_CASE("fault: a weight that an update has made infinite is named") {
  poisoned("forward");
  const auto model = models::create_model("poisoned_forward", {.num_classes = 2});
  for (const auto& [name, x] : model->named_parameters()) {
    if (name == "conv.weight") {
      fill_(x.detach(), std::numeric_limits<double>::infinity());
    }
  }
  bool ran = false;
  CHECK(find_fault(*model, [&] { ran = true; }) == "the update before made conv.weight infinite or NaN");
  CHECK_FALSE(ran);
}

TEST_CASE("memory use: parameters, gradients, optimizer and what each layer keeps for backward") {
  poisoned("forward");
  const auto model = models::create_model("poisoned_forward", {.num_classes = 2});
  Recipe recipe = poisoned("forward");
  const auto optimizer = make_optimizer(recipe, *model);
  LayerNodes nodes(*model);
  const Tensor loss = sum((*model)(zeros({4, 3, 8, 8})));
  const Tape tape(loss);
  MemoryUse use = memory_use(*model, *optimizer, std::nullopt);
  CHECK(use.parameters == 4 * model->parameter_count());
  CHECK(use.gradients == use.parameters);
  use.images = 4;
  use.activations = nodes.saved(tape);
  CHECK(use.activation_bytes() == static_cast<int64_t>(tape.saved_bytes()));
  // Batch norm keeps the output of the convolution, and that the images; nothing else here is as large.
  REQUIRE(use.activations.size() >= 2);
  CHECK(use.activations[0].bytes >= use.activations[1].bytes);
  const auto of = [&](const std::string& layer) {
    const auto found = std::find_if(use.activations.begin(), use.activations.end(),
                                    [&](const LayerBytes& bytes) { return bytes.layer == layer; });
    return found == use.activations.end() ? 0 : found->bytes;
  };
  CHECK(of("conv") >= 4 * 4 * 3 * 8 * 8);
  CHECK(of("norm") >= 4 * 4 * 4 * 6 * 6);
  CHECK(use.for_images(8).activation_bytes() == 2 * use.activation_bytes());
  CHECK(use.for_images(8).parameters == use.parameters);
  const std::string text = to_string(use);
  CHECK_MESSAGE(text.starts_with(fmt::format("parameters {}, gradients {}, optimizer ",
                                             bytes_text(use.parameters + use.buffers), bytes_text(use.gradients))),
                text);
  CHECK_MESSAGE(text.find("activations of 4 images ") != std::string::npos, text);
  loss.backward();
  optimizer->step();
  CHECK(memory_use(*model, *optimizer, std::nullopt).optimizer >= 2 * use.parameters);  // AdamW's two averages
}
