#include "session/resume.h"
#include "metrics_log.h"
#include "train/two_classes.h"

#include "base/error.h"
#include "core/parallel.h"
#include "core/random.h"
#include "data/safetensors.h"
#include "files.h"
#include "session/trainer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <span>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;

namespace {

/// Twelve images of noise: epochs of three steps.
class Noise final : public test::TwoClasses {
 public:
  Noise() : TwoClasses("twelve_noises", 12, 32) {}
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(info().height, info().width, info().channels);
    Generator generator(static_cast<uint64_t>(index));
    for (uint8_t& pixel : image.pixels) {
      pixel = static_cast<uint8_t>(generator.below(256));
    }
    return index % 2;
  }
};

/// Six steps in two epochs, with evaluations after steps 3 and 6.
Recipe two_epochs() {
  static const bool known = [] {
    data::register_dataset("twelve_noises", "a test's",
                           [](const data::DatasetOptions&) { return std::make_shared<Noise>(); });
    return true;
  }();
  REQUIRE(known);
  Recipe recipe;
  recipe.model = "convnext_atto";
  recipe.patch_size = 4;
  recipe.drop_path = 0.2;
  recipe.dataset = "twelve_noises";
  recipe.batch_size = 4;
  recipe.opt = "sgd";
  recipe.epochs = 2;
  return recipe;
}

/// Stops a run as a kill does: nothing that it has not written is written.
struct Killed {};

TrainerOptions writing_to(const std::filesystem::path& output, bool json = false) {
  return {
      .output = output, .resumed = {}, .workers = 0, .log_interval = 2, .log_json = json, .quiet = true, .label = ""};
}

/// summary.csv and log.jsonl, that without its times.
std::string other_logs(const std::filesystem::path& folder) {
  return read_file(folder / "summary.csv") +
         std::regex_replace(read_file(folder / "log.jsonl"), std::regex("\"images_per_second\": [^,}]*"), "");
}

/// What is in the log of a folder, times aside.
std::string log_of(const std::filesystem::path& folder) {
  return test::without_times(read_file(folder / "metrics.csv"));
}

/// Runs to the end, or up to stage number `last`; goes on from a checkpoint in the folder.
bool run_until(const std::filesystem::path& folder, int last, bool json = false) {
  TrainerOptions options = writing_to(folder, json);
  int stage = 0;
  options.before_stage = [&](std::string_view) {
    if (stage++ == last) {
      throw Killed();
    }
  };
  try {
    if (const auto file = folder / "last.safetensors"; std::filesystem::exists(file)) {
      options.resumed = file;
      const Checkpoint checkpoint = load_checkpoint(file);
      Trainer(recipe_of(checkpoint), options, checkpoint).run();
    } else {
      Trainer(two_epochs(), options).run();
    }
    return true;
  } catch (const Killed&) {
    return false;
  }
}

}  // namespace

TEST_CASE("resume: after a kill between any two stages the log is that of an uninterrupted run" *
          doctest::test_suite("again")) {
  const OneThread one;  // steps so small are not worth a second thread, least of all on a machine that is busy
  const TemporaryFolder folder;
  REQUIRE(run_until(folder / "whole", 1000));
  const std::string whole = log_of(folder / "whole");
  CHECK(std::count(whole.begin(), whole.end(), '\n') == 5);  // the head; steps 2, 3, 4 and 6
  const std::string others = other_logs(folder / "whole");
  CHECK(std::count(others.begin(), others.end(), '\n') == 3);  // the head; two epochs
  int last = 0;
  for (bool done = false; !done; ++last) {
    CAPTURE(last);
    const std::filesystem::path cut = folder / std::to_string(last);
    done = run_until(cut, last);
    CHECK(run_until(cut, 1000));
    CHECK(log_of(cut) == whole);
    CHECK(other_logs(cut) == others);
    CHECK(read_file(cut / "last.safetensors") == read_file(folder / "whole/last.safetensors"));
    std::filesystem::remove_all(cut);
  }
  CHECK(last > 14);
}

TEST_CASE("resume: into another folder, with the rows so far") {
  const OneThread one;
  const TemporaryFolder folder;
  REQUIRE(run_until(folder / "whole", 1000, /* json= */ true));
  CHECK_FALSE(run_until(folder / "cut", 8, /* json= */ true));
  TrainerOptions options = writing_to(folder / "other");
  options.resumed = folder / "cut/last.safetensors";
  const Checkpoint checkpoint = load_checkpoint(options.resumed);
  REQUIRE(checkpoint.step > 0);
  Trainer(recipe_of(checkpoint), options, checkpoint).run();
  CHECK(log_of(folder / "other") == log_of(folder / "whole"));
  CHECK_FALSE(read_file(folder / "other/log.jsonl").empty());  // without being asked for again
  CHECK(other_logs(folder / "other") == other_logs(folder / "whole"));
}

TEST_CASE("resume: the log of a run that was stopped before its first step keeps the weights of the start") {
  const OneThread one;
  const TemporaryFolder folder;
  Recipe recipe = two_epochs();
  const Trainer source(recipe, {.quiet = true});
  data::save_safetensors(folder / "w.safetensors", source.model()->state_dict());
  recipe.initial_checkpoint = (folder / "w.safetensors").string();
  TrainerOptions options = writing_to(folder / "o");
  options.before_stage = [](std::string_view stage) {
    if (stage == "step") {
      throw Killed();
    }
  };
  Trainer stopped(recipe, options);
  CHECK_THROWS_AS(stopped.run(), Killed);
  options.resumed = folder / "o/last.safetensors";
  save_checkpoint(options.resumed, stopped.checkpoint());  // as a signal lets it
  const std::string start = read_file(folder / "o/log.jsonl");
  CHECK(start.starts_with("{\"type\": \"start\", "));
  options.before_stage = {};
  const Checkpoint checkpoint = load_checkpoint(options.resumed);
  REQUIRE(checkpoint.step == 0);
  Trainer(recipe_of(checkpoint), options, checkpoint).run();
  CHECK(read_file(folder / "o/log.jsonl").starts_with(start));
}

TEST_CASE("resume: another network, other data or another precision is another run") {
  // recipe_option_test.cpp goes through all options.
  const auto refused = [](auto&& change) {
    const Recipe before = two_epochs();
    Recipe now = before;
    change(now);
    return error_of([&] { check_same_run(before, now); });
  };
  CHECK(refused([](Recipe& r) { r.model = "resnet18"; }) ==
        "resume: model: the run was started with 'convnext_atto', and cannot go on with 'resnet18'");
  CHECK(refused([](Recipe& r) { r.norm = "batch"; }) ==
        "resume: norm: the run was started with 'layer2d', and cannot go on with 'batch'");
  CHECK(refused([](Recipe& r) { r.norm_policy = "\"a\" = \"none\"", r.norm_policy_file = "p.toml"; }) ==
        "resume: norm-policy: the run was started with none, and cannot go on with that of 'p.toml'");
  CHECK(refused([](Recipe& r) { r.small_stem = true; }) ==
        "resume: small-stem: the run was started with off, and cannot go on with on");
  CHECK(refused([](Recipe& r) { r.layer_scale = 0.5; }) ==
        "resume: layer-scale: the run was started with the model's own, and cannot go on with 0.5");
  CHECK(refused([](Recipe& r) { r.batch_size = 5; }) ==
        "resume: batch-size: the run was started with 4, and cannot go on with 5");
  CHECK(refused([](Recipe& r) { r.cast_policy = "\"a\" = \"keep\"", r.cast_policy_file = "c.toml"; }) ==
        "resume: cast-policy: the run was started with none, and cannot go on with that of 'c.toml'");
  CHECK(refused([](Recipe& r) { r.image_size = 48; }) == "no error");
  Recipe vit = two_epochs();
  vit.model = "vit_tiny";
  vit.norm.clear();
  Recipe larger = vit;
  larger.image_size = 48;
  CHECK(error_of([&] { check_same_run(vit, larger); }) ==
        fmt::format("resume: img-size: the run was started with {}, and cannot go on with 48", vit.image_size));
  // The family's own norm by its name, and what steers the steps to come.
  check_same_run(two_epochs(), [] {
    Recipe recipe = two_epochs();
    recipe.norm = "layer2d";
    recipe.epochs = 7;
    recipe.lr = 0.1;
    recipe.drop_path = 0;
    recipe.flip = true;
    return recipe;
  }());
  Recipe policy = two_epochs();
  policy.norm_policy = "\"a\" = \"none\"";
  policy.norm_policy_file = "p.toml";
  Recipe other = policy;
  other.norm_policy = "\"a\" = \"batch\"";
  CHECK(error_of([&] { check_same_run(policy, other); }) ==
        "resume: norm-policy: the run was started with that of 'p.toml', and cannot go on with another text in that "
        "file");
}

TEST_CASE("resume: a trainer looks at the recipe and the classes of its checkpoint") {
  Trainer trainer(two_epochs(), {.workers = 0, .quiet = true});
  Checkpoint checkpoint = trainer.checkpoint();
  Recipe other = two_epochs();
  other.conv_layer = "std_conv";
  CHECK(error_of([&] { Trainer(other, {.quiet = true}, checkpoint); }) ==
        "resume: conv-layer: the run was started with 'conv', and cannot go on with 'std_conv'");
  checkpoint.options["num_classes"] = "10";
  CHECK(error_of([&] { Trainer(two_epochs(), {.quiet = true}, checkpoint); }) ==
        "resume: num_classes: the run was started with 10, and cannot go on with the 2 of dataset 'twelve_noises'");
  checkpoint.options["num_classes"] = "2";
  for (const char* text : {"", "x", "nan", "inf", "-1", "1 "}) {
    checkpoint.options["loss_sum"] = text;
    CHECK(error_of([&] { Trainer(two_epochs(), {.quiet = true}, checkpoint); }) ==
          fmt::format("checkpoint: loss_sum: expected a number of at least 0, got '{}'", text));
  }
}

TEST_CASE("resume: another number of training images only between epochs of as many batches") {
  const OneThread one;
  const TemporaryFolder folder;
  const auto begun = [&](const char* name, int64_t images) {
    Recipe recipe = two_epochs();
    recipe.images = images;
    Trainer(recipe, writing_to(folder / name)).run();
    return load_checkpoint(folder / name / "last.safetensors");
  };
  const auto text = [](const std::string& reason, int images) {
    return fmt::format(
        "resume: images: the run was trained on {} images, and dataset 'twelve_noises' has 12: {}; put the same images "
        "there again, or begin a new run",
        images, reason);
  };
  Recipe longer = two_epochs();
  longer.epochs = 3;
  const auto refused = [&](const Checkpoint& checkpoint) {
    return error_of([&] { Trainer(longer, {.quiet = true}, checkpoint); });
  };

  Checkpoint inside = begun("inside", 16);
  CHECK(inside.step == 4);
  CHECK(inside.options.at("train_images") == "12");
  CHECK(Trainer(longer, {.quiet = true}, inside).images_change().empty());
  inside.options["train_images"] = "14";
  CHECK(refused(inside) == text("it is 1 of 3 steps into an epoch, whose order is that of 14 images", 14));

  Checkpoint between = begun("between", 12);
  CHECK(between.step == 3);
  between.options["train_images"] = "14";
  CHECK(Trainer(longer, {.quiet = true}, between).images_change() == "images 14 → 12");
  between.options["train_images"] = "4";  // three epochs of it
  between.options["batches_per_epoch"] = "1";
  CHECK(refused(between) == text("its epochs have 1 batches, and would have 3", 4));
  between.options["batches_per_epoch"] = "0";
  CHECK_FALSE(refused(between).empty());

  // Earlier versions kept neither.
  inside.options.erase("train_images");
  inside.options.erase("batches_per_epoch");
  CHECK(Trainer(longer, {.quiet = true}, inside).images_change().empty());
}

TEST_CASE("resume: a rate that jumps, since onecycle ends elsewhere in a longer run, and one that goes on") {
  const OneThread one;
  const TemporaryFolder folder;
  const auto jump = [&](const char* sched) {
    Recipe recipe = two_epochs();
    recipe.sched = sched;
    recipe.epochs = 1;
    Trainer(recipe, writing_to(folder / sched)).run();
    recipe.epochs = 2;
    return Trainer(recipe, {.quiet = true}, load_checkpoint(folder / sched / "last.safetensors")).rate_jump();
  };
  CHECK(jump("step").empty());
  CHECK(jump("onecycle").find(" → ") != std::string::npos);
}
