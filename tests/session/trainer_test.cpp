#include "session/trainer.h"
#include "train/two_classes.h"

#include "base/error.h"
#include "core/parallel.h"
#include "file_size_limit.h"
#include "files.h"
#include "session/interrupt.h"
#include "session/progress.h"
#include "small_runs.h"
#include "support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <span>
#include <string>

using namespace norma;
using namespace norma::train;
using test::read_file;
using test::TemporaryFolder;

namespace {

/// Six steps in which crop, flip, drop path and batch statistics all matter.
Recipe varied_recipe() {
  Recipe recipe = test::small_recipe("convnext_atto", {.images = 24, .test_images = 8});
  recipe.norm = "batch";
  recipe.drop_path = 0.2;
  recipe.crop_padding = 2;
  recipe.flip = true;
  recipe.smoothing = 0.1;
  recipe.clip_grad = 1;
  recipe.seed = 3;
  return recipe;
}

TrainerOptions silent(const std::filesystem::path& output = {}) {
  return {.output = output, .resumed = {}, .workers = 2, .log_interval = 2, .quiet = true, .label = ""};
}

/// Options for going on with the run in a folder.
TrainerOptions resuming(const std::filesystem::path& output) {
  TrainerOptions options = silent(output);
  options.resumed = output / "last.safetensors";
  return options;
}

/// Names of tensors whose bits differ.
std::vector<std::string> different_bits(const data::NamedTensors& a, const data::NamedTensors& b) {
  std::vector<std::string> names;
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].first == b[i].first);
    if (!(test::max_difference(a[i].second, b[i].second) == 0)) {
      names.push_back(a[i].first);
    }
  }
  return names;
}

void check_same_state(const Trainer& a, const Trainer& b) {
  const Checkpoint x = a.checkpoint();
  const Checkpoint y = b.checkpoint();
  CHECK(different_bits(x.model, y.model) == std::vector<std::string>{});
  CHECK(different_bits(x.optimizer, y.optimizer) == std::vector<std::string>{});
  CHECK(x.step == y.step);
  CHECK(x.generator_offset == y.generator_offset);
}

/// 1000 grey images of noise, the odd ones brighter.
class Brightness : public test::TwoClasses {
 public:
  Brightness() : TwoClasses("brightness", 1000, 32, {"dark", "bright"}) {}
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(info().height, info().width, info().channels);
    Generator generator(static_cast<uint64_t>(index));
    for (uint8_t& pixel : image.pixels) {
      pixel = static_cast<uint8_t>((index % 2 == 1 ? 100 : 0) + static_cast<int>(generator.below(150)));
    }
    return index % 2;
  }
};

/// Raises SIGINT in the forward pass of step `step`.
void interrupt_in_step(Trainer& trainer, int64_t step) {
  auto count = std::make_shared<int64_t>(trainer.step());
  trainer.model()->register_forward_hook([count, step](const nn::Module& module, const Tensor&, const Tensor&) {
    if (module.is_training() && ++*count == step) {
      std::raise(SIGINT);
    }
  });
}

}  // namespace

TEST_CASE("trainer: the same recipe gives the same bits, another seed other ones") {
  Trainer a(varied_recipe(), silent());
  Trainer b(varied_recipe(), silent());
  const TrainResult first = a.run();
  const TrainResult second = b.run();
  CHECK(first.losses.size() == 6);
  CHECK(first.losses == second.losses);
  CHECK(first.test.loss == second.test.loss);
  check_same_state(a, b);

  Recipe other = varied_recipe();
  other.seed = 4;
  Trainer c(other, silent());
  CHECK(c.run().losses != first.losses);
}

TEST_CASE("trainer: workers of the loader do not change the bits") {
  TrainerOptions none = silent();
  none.workers = 0;
  Trainer a(varied_recipe(), silent());
  Trainer b(varied_recipe(), none);
  CHECK(a.run().losses == b.run().losses);
  check_same_state(a, b);
}

TEST_CASE("trainer: an interrupted and resumed run has the bits of an uninterrupted one") {
  Trainer whole(varied_recipe(), silent());
  const TrainResult expected = whole.run();

  const TemporaryFolder folder;
  std::vector<double> losses;
  {
    const InterruptGuard guard;
    Trainer begun(varied_recipe(), silent(folder / "run"));
    interrupt_in_step(begun, 3);
    const TrainResult part = begun.run();
    CHECK_FALSE(part.finished);
    CHECK(part.step == 3);
    CHECK(part.test.images == 0);
    losses = part.losses;
  }
  const Checkpoint checkpoint = load_checkpoint(folder / "run/last.safetensors");
  CHECK(checkpoint.step == 3);
  Trainer resumed(recipe_of(checkpoint), resuming(folder / "run"), checkpoint);
  const TrainResult rest = resumed.run();
  CHECK(rest.finished);
  losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
  CHECK(losses == expected.losses);
  CHECK(rest.test.accuracy == expected.test.accuracy);
  CHECK(rest.test.loss == expected.test.loss);
  check_same_state(resumed, whole);
}

TEST_CASE("trainer: augmented and mixed images resume with the same bits, whatever the workers") {
  Recipe recipe = varied_recipe();
  recipe.crop_padding = 0;
  recipe.flip = false;
  recipe.scale = {0.3, 1};
  recipe.hflip = 0.5;
  recipe.aa = "rand-m9-mstd0.5-inc1";
  recipe.color_jitter = "0.4,0.4,0.4,0.1";
  recipe.reprob = 0.5;
  recipe.remode = "pixel";
  recipe.train_interpolation = "random";
  recipe.mixup = 0.8;
  recipe.cutmix = 1;
  Trainer whole(recipe, silent());
  const TrainResult expected = whole.run();

  const TemporaryFolder folder;
  std::vector<double> losses;
  {
    const InterruptGuard guard;
    Trainer begun(recipe, silent(folder / "run"));
    interrupt_in_step(begun, 2);
    losses = begun.run().losses;
  }
  CHECK(losses.size() == 2);
  const Checkpoint checkpoint = load_checkpoint(folder / "run/last.safetensors");
  TrainerOptions options = resuming(folder / "run");
  options.workers = 0;
  Trainer resumed(recipe_of(checkpoint), options, checkpoint);
  const TrainResult rest = resumed.run();
  losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
  CHECK(losses == expected.losses);
  check_same_state(resumed, whole);
}

TEST_CASE("trainer: mixed images train against the shares of their classes") {
  const auto losses_of = [](double mixup, double probability) {
    Recipe recipe = varied_recipe();
    recipe.mixup = mixup;
    recipe.mixup_prob = probability;
    Trainer trainer(recipe, silent());
    return trainer.run().losses;
  };
  const std::vector<double> plain = losses_of(0, 1);
  const std::vector<double> never = losses_of(0.8, 0);  // shares of 1 and 0
  const std::vector<double> mixed = losses_of(0.8, 1);
  REQUIRE(plain.size() == never.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(never[i] == doctest::Approx(plain[i]).epsilon(1e-4));
    CHECK(mixed[i] != plain[i]);
  }
}

TEST_CASE("trainer: resuming a finished run changes nothing and evaluates again") {
  const TemporaryFolder folder;
  Trainer whole(varied_recipe(), silent(folder / "run"));
  const TrainResult expected = whole.run();
  const Checkpoint checkpoint = load_checkpoint(folder / "run/last.safetensors");
  Trainer again(recipe_of(checkpoint), resuming(folder / "run"), checkpoint);
  const TrainResult result = again.run();
  CHECK(result.finished);
  CHECK(result.losses.empty());
  CHECK(result.test.loss == expected.test.loss);
  check_same_state(again, whole);
}

TEST_CASE("trainer: the log has a row per interval and the test figures at the end") {
  const TemporaryFolder folder;
  Trainer trainer(varied_recipe(), silent(folder / "run"));
  const TrainResult result = trainer.run();
  const std::string log = read_file(folder / "run/metrics.csv");
  CHECK(std::count(log.begin(), log.end(), '\n') == 4);  // header, steps 2, 4, 6
  CHECK(log.find(fmt::format(",{},{}\n", result.test.loss, result.test.accuracy)) != std::string::npos);
}

TEST_CASE("trainer: what a result says of the run") {
  Trainer trainer(varied_recipe(), silent());
  const TrainResult result = trainer.run();
  CHECK(result.finished);
  CHECK(result.step == 6);
  CHECK(result.total_steps == 6);
  CHECK(result.parameters == trainer.model()->parameter_count());
  CHECK(result.test.images == 8);
  CHECK(result.images_per_second > 0);
  CHECK(result.seconds > 0);
  // Parameters, gradients and AdamW's two averages live at the same time.
  CHECK(result.peak_bytes > 4 * 4 * result.parameters);
}

TEST_CASE("trainer: it learns to tell dark images from bright ones") {
  data::register_dataset("brightness", "dark and bright images",
                         [](const data::DatasetOptions&) { return std::make_shared<Brightness>(); });
  Recipe recipe = varied_recipe();
  recipe.dataset = "brightness";
  recipe.norm = "layer2d";
  recipe.lr = 1e-3;
  recipe.batch_size = 8;
  recipe.images = 8 * 40;
  recipe.test_images = 64;
  recipe.smoothing = 0;
  Trainer trainer(recipe, silent());
  const TrainResult result = trainer.run();
  CHECK(result.test.accuracy > 0.9);
  CHECK(result.losses.back() < 0.5 * result.losses.front());
}

TEST_CASE("trainer: another run's checkpoint is not written over") {
  const TemporaryFolder folder;
  Trainer(varied_recipe(), silent(folder / "run")).run();
  const std::string before = read_file(folder / "run/last.safetensors");
  Trainer second(varied_recipe(), silent(folder / "run"));
  CHECK_THROWS_WITH_AS(second.run(),
                       ("train: '" + (folder / "run/last.safetensors").string() +
                        "' is the checkpoint of another run: resume it, or choose another output folder")
                           .c_str(),
                       Error);
  CHECK(read_file(folder / "run/last.safetensors") == before);

  // Nor by a run that is resumed from elsewhere.
  Trainer(varied_recipe(), silent(folder / "other")).run();
  const Checkpoint checkpoint = load_checkpoint(folder / "other/last.safetensors");
  TrainerOptions elsewhere = silent(folder / "run");
  elsewhere.resumed = folder / "other/last.safetensors";
  const std::string log = read_file(folder / "run/metrics.csv");
  Trainer third(recipe_of(checkpoint), elsewhere, checkpoint);
  CHECK_THROWS_WITH_AS(third.run(),
                       ("train: '" + (folder / "run/last.safetensors").string() +
                        "' is the checkpoint of another run: resume it, or choose another output folder")
                           .c_str(),
                       Error);
  CHECK(read_file(folder / "run/last.safetensors") == before);
  CHECK(read_file(folder / "run/metrics.csv") == log);
}

TEST_CASE("trainer: a loss that is no number ends the run, and the last checkpoint stays") {
  const TemporaryFolder folder;
  Trainer(varied_recipe(), silent(folder / "run")).run();
  const std::string before = read_file(folder / "run/last.safetensors");
  Recipe recipe = varied_recipe();
  recipe.images *= 2;
  Checkpoint checkpoint = load_checkpoint(folder / "run/last.safetensors");
  for (auto& [name, tensor] : checkpoint.model) {
    if (name == "head.fc.weight") {
      fill_(tensor, 3e38);
    }
  }
  Trainer trainer(recipe, resuming(folder / "run"), checkpoint);
  try {
    trainer.run();
    FAIL("expected an error");
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(text.starts_with("train: the loss became "));
    CHECK(text.ends_with("; a smaller learning rate may help (it is 0.002)"));
  }
  CHECK(read_file(folder / "run/last.safetensors") == before);
}

TEST_CASE("trainer: a disk that fills during a checkpoint is an error and leaves the last one whole") {
  const TemporaryFolder folder;
  {
    const InterruptGuard guard;
    Trainer begun(varied_recipe(), silent(folder / "run"));
    interrupt_in_step(begun, 2);
    begun.run();
  }
  const std::string before = read_file(folder / "run/last.safetensors");
  const Checkpoint checkpoint = load_checkpoint(folder / "run/last.safetensors");
  Trainer resumed(recipe_of(checkpoint), resuming(folder / "run"), checkpoint);
  {
    const test::FileSizeLimit limit(1'000'000);
    CHECK_THROWS_WITH_AS(
        resumed.run(),
        ("safetensors: cannot write " + (folder / "run/last.safetensors").string() + ": File too large").c_str(),
        Error);
  }
  CHECK(read_file(folder / "run/last.safetensors") == before);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path() / "run")) {
    ++files;
  }
  CHECK(files == 3);  // last.safetensors, metrics.csv and summary.csv: no temporary file is left
}

TEST_CASE("trainer: checkpoints that do not fit are errors") {
  Trainer trainer(varied_recipe(), silent());
  Checkpoint checkpoint = trainer.checkpoint();
  checkpoint.step = 7;
  CHECK_THROWS_WITH_AS(Trainer(varied_recipe(), silent(), checkpoint),
                       "train: the checkpoint is at step 7, but the run has only 6", Error);
  Recipe other = varied_recipe();
  other.model = "convnext_femto";
  CHECK_THROWS_WITH_AS(
      Trainer(other, silent(), trainer.checkpoint()),
      "resume: model: the run was started with 'convnext_atto', and cannot go on with 'convnext_femto'", Error);
  checkpoint.options.clear();
  CHECK_THROWS_WITH_AS(recipe_of(checkpoint), "checkpoint: expected the recipe of its run, got none", Error);
}

TEST_CASE("trainer: a number of kept checkpoints below 1 is an error") {
  TrainerOptions options = silent();
  options.keep.history = -1;
  CHECK_THROWS_WITH_AS(Trainer(varied_recipe(), options),
                       "train: checkpoint-hist: expected a whole number from 1 to 1000000, got -1", Error);
}

TEST_CASE("trainer: median") {
  CHECK(median({}) == 0);
  CHECK(median({3}) == 3);
  CHECK(median({9, 1, 2}) == 2);
  CHECK(median({9, 1, 2, 4}) == 3);
}
