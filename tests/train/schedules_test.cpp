#include "train/recipe.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

using namespace norma;
using norma::test::error_of;
using train::Recipe;

namespace {

constexpr int64_t kEpochs = 10;
constexpr int64_t kStepsPerEpoch = 4;
/// Steps whose learning rates the tables have.
constexpr int64_t kShown[] = {0, 1, 3, 7, 8, 11, 12, 19, 27, 28, 31, 32, 39};

Recipe recipe_of(const std::string& sched, const std::function<void(Recipe&)>& change) {
  Recipe recipe;
  recipe.lr = 0.5;
  recipe.sched = sched;
  change(recipe);
  train::check_recipe(recipe);
  return recipe;
}

void check_rates(const Recipe& recipe, const std::vector<double>& expected) {
  const train::Schedules schedules = train::make_schedules(recipe, kEpochs * kStepsPerEpoch, kStepsPerEpoch);
  CHECK_FALSE(schedules.momentum);
  size_t row = 0;
  for (const int64_t step : kShown) {
    CAPTURE(step);
    CHECK(std::abs(recipe.lr * schedules.lr(step) - expected.at(row++)) <= 1e-15);
  }
  CHECK(row == expected.size());
}

}  // namespace

// The tables are those of tests/reference/make_schedules.py, made by timm.

TEST_CASE("schedules: cosine with timm's warm-up, an end and a cool-down") {
  const auto options = [](Recipe& r) {
    r.warmup_epochs = 2;
    r.warmup_lr = 0.01;
    r.min_lr = 0.02;
    r.cooldown_epochs = 2;
  };
  Recipe recipe = recipe_of("cosine", options);
  check_rates(recipe,
              {0.01, 0.07125, 0.19375, 0.43875, 0.42970562748477137, 0.3731352168382395, 0.3518440237676216,
               0.19033167745892907, 0.04833889655639481, 0.038268912197291186, 0.021155665598672765, 0.02, 0.02});
  recipe.warmup_prefix = true;
  check_rates(recipe,
              {0.01, 0.07125, 0.19375, 0.43875, 0.5, 0.4817310878027088, 0.46784609690826534, 0.2913262861328124,
               0.06959519833010358, 0.052153903091734705, 0.022053233270285508, 0.02, 0.02});
  recipe.warmup_prefix = false;
  recipe.sched_on_updates = false;
  check_rates(recipe, {0.01, 0.01, 0.01, 0.255, 0.42970562748477137, 0.42970562748477137, 0.3518440237676216, 0.26,
                       0.09029437251522861, 0.038268912197291186, 0.038268912197291186, 0.02, 0.02});
}

TEST_CASE("schedules: poly, timm's") {
  check_rates(recipe_of("poly",
                        [](Recipe& r) {
                          r.warmup_epochs = 1;
                          r.decay_rate = 0.9;
                          r.min_lr = 0.01;
                        }),
              {1e-05, 0.1250075, 0.3750025, 0.4221019160127942, 0.41084555156492064, 0.3768599359843119,
               0.36545474499923775, 0.2843717877800142, 0.18819319094429016, 0.17580789633180843, 0.1379853753104325,
               0.12511265642262584, 0.027715037982501092});
  check_rates(
      recipe_of("poly",
                [](Recipe& r) {
                  r.warmup_epochs = 3;
                  r.decay_rate = 2;
                  r.cooldown_epochs = 1;
                  r.sched_on_updates = false;
                }),
      {1e-05, 1e-05, 1e-05, 0.16667333333333334, 0.33333666666666667, 0.33333666666666667, 0.22222222222222227,
       0.154320987654321, 0.055555555555555566, 0.024691358024691357, 0.024691358024691357, 0.006172839506172845, 0});
}

TEST_CASE("schedules: multistep and step, timm's") {
  const auto options = [](Recipe& r) {
    r.warmup_epochs = 2;
    r.decay_milestones = {3, 7};
    r.decay_rate = 0.2;
  };
  Recipe recipe = recipe_of("multistep", options);
  recipe.warmup_lr = 0.1;
  check_rates(recipe, {0.1, 0.15000000000000002, 0.25, 0.45000000000000007, 0.5, 0.1, 0.1, 0.1, 0.020000000000000004,
                       0.020000000000000004, 0.020000000000000004, 0.020000000000000004, 0.020000000000000004});
  recipe.warmup_lr.reset();
  recipe.sched_on_updates = false;
  check_rates(recipe, {1e-05, 1e-05, 1e-05, 0.250005, 0.1, 0.1, 0.1, 0.1, 0.020000000000000004, 0.020000000000000004,
                       0.020000000000000004, 0.020000000000000004, 0.020000000000000004});
  recipe.sched_on_updates = true;
  recipe.warmup_prefix = true;
  check_rates(recipe, {1e-05, 0.06250875, 0.18750625, 0.43750125, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1,
                       0.020000000000000004});
  check_rates(
      recipe_of("step",
                [](Recipe& r) {
                  r.warmup_epochs = 2;
                  r.warmup_lr = 0.1;
                  r.warmup_prefix = true;
                  r.decay_epochs = 3;
                  r.decay_rate = 0.5;
                }),
      {0.1, 0.15000000000000002, 0.25, 0.45000000000000007, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125});
  check_rates(recipe_of("step",
                        [](Recipe& r) {
                          r.sched_on_updates = false;
                          r.decay_epochs = 2.4;
                          r.decay_rate = 0.5;
                        }),
              {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625});
}

TEST_CASE("schedules: without timm's options they are what they were") {
  Recipe recipe;
  recipe.sched = "cosine";
  recipe.warmup_epochs = 2;
  const nn::Schedule cosine = train::make_schedules(recipe, 40, 4).lr;
  const nn::Schedule before = nn::cosine_schedule({.steps = 40, .warmup_steps = 8});
  for (int64_t step = 0; step < 41; ++step) {
    CHECK(cosine(step) == before(step));
  }
}

TEST_CASE("schedules: once an epoch, one-cycle moves rate and momentum by epochs") {
  Recipe recipe;
  recipe.sched_on_updates = false;
  const train::Schedules schedules = train::make_schedules(recipe, 38, 4);  // the last of ten epochs is not whole
  const nn::OneCycleOptions options{.steps = 10};
  for (const int64_t step : {0, 3, 4, 11, 36, 37}) {
    CHECK(schedules.lr(step) == nn::one_cycle_schedule(options)(step / 4));
    CHECK(schedules.momentum(step) == nn::one_cycle_momentum(options)(step / 4));
  }
}

TEST_CASE("schedules: a run shorter than its warm-up ends inside it, at the warm-up's slope") {
  // The first 40 of 80 steps of warm-up, as in a run that is long enough.
  for (const char* sched : {"cosine", "poly", "step", "onecycle"}) {
    for (const int kind : {0, 1, 2}) {  // Norma's own warm-up, timm's, and timm's before the schedule
      if (kind > 0 && std::string(sched) == "onecycle") {
        continue;
      }
      CAPTURE(sched);
      CAPTURE(kind);
      const Recipe recipe = recipe_of(sched, [&](Recipe& r) {
        r.warmup_epochs = 20;
        if (kind > 0) {
          r.warmup_lr = 0.1;
          r.warmup_prefix = kind == 2;
        }
      });
      const nn::Schedule shorter = train::make_schedules(recipe, 40, 4).lr;
      const nn::Schedule longer = train::make_schedules(recipe, 400, 4).lr;
      for (int64_t step = 0; step < 40; ++step) {
        CAPTURE(step);
        CHECK(shorter(step) == doctest::Approx(longer(step)).epsilon(1e-12));
      }
      if (std::string(sched) != "step" || kind > 0) {
        CHECK(shorter(39) < 0.62);
        CHECK(shorter(39) > shorter(38));
      }
    }
  }
}

TEST_CASE("schedules: a cool-down needs a step before it") {
  const auto refused = [](const std::function<void(Recipe&)>& change) {
    return error_of([&] { train::check_training(recipe_of("cosine", change)); });
  };
  CHECK(refused([](Recipe& r) { r.cooldown_epochs = 3; }) ==
        "train: cooldown-epochs: expected less than the 3 epochs of the run minus 0 of warm-up, got 3");
  CHECK(refused([](Recipe& r) {
          r.epochs = 10;
          r.warmup_epochs = 7.5;
          r.cooldown_epochs = 2.5;
        }) == "train: cooldown-epochs: expected less than the 10 epochs of the run minus 7.5 of warm-up, got 2.5");
  const auto content = [](Recipe& r) {
    r.warmup_epochs = 0.5;
    r.cooldown_epochs = 2;
  };
  CHECK(refused(content) == "no error");
  // The length of a run in images is known with its dataset.
  const Recipe in_images = recipe_of("cosine", [&](Recipe& r) {
    content(r);
    r.images = 100;
  });
  train::check_training(in_images);
  CHECK(train::make_schedules(in_images, 11, 4).lr(2) > 0.5);
  CHECK(error_of([&] { train::make_schedules(in_images, 10, 4); }) ==
        "train: cooldown-epochs: expected less than the 2.5 epochs of the run minus 0.5 of warm-up, got 2");
}

TEST_CASE("schedules: options that a run could only ignore are refused, and not in recipes of finished runs") {
  const auto refused = [](const std::function<void(Recipe&)>& change) {
    return error_of([&] { train::check_training(recipe_of("cosine", change)); });
  };
  CHECK(refused([](Recipe& r) { r.clip_mode = "agc"; }) ==
        "train: clip-mode: expected a clip-grad with 'agc', got none");
  CHECK(refused([](Recipe& r) {
          r.clip_mode = "value";
          r.clip_grad = 0.5;
        }) == "no error");
  CHECK(refused([](Recipe& r) { r.warmup_lr = 0; }) == "train: warmup-lr: expected warmup-epochs with it, got none");
  CHECK(refused([](Recipe& r) { r.min_lr = 0.6; }) ==
        "train: min-lr: expected at most the learning rate, 0.5, got 0.6");
  CHECK(refused([](Recipe& r) {
          r.opt = "sgd";
          r.batch_size = 64;
          r.lr_base = 0.5;
          r.min_lr = 0.25;
        }) == "train: min-lr: expected at most the learning rate, 0.125, got 0.25");
  CHECK(refused([](Recipe& r) { r.min_lr = 0.5; }) == "no error");
}

TEST_CASE("schedules: the learning rate for a batch size, timm's rule") {
  Recipe recipe;
  recipe.batch_size = 1024;
  CHECK(train::base_lr(recipe) == recipe.lr);
  recipe.lr_base = 0.125;
  CHECK(train::base_lr(recipe) == 0.25);  // 1024 / 256 images; adamw: by the root
  recipe.opt = "sgd";
  CHECK(train::base_lr(recipe) == 0.5);
  recipe.lr_base_scale = "sqrt";
  CHECK(train::base_lr(recipe) == 0.25);
  recipe.lr_base_size = 4096;
  recipe.lr_base_scale = "linear";
  CHECK(train::base_lr(recipe) == 0.03125);
  const auto model = train::make_model(recipe, 10);
  CHECK(train::make_optimizer(recipe, *model)->lr() == 0.03125);
}

TEST_CASE("schedules: what makes no sense is said") {
  const auto complaint = [](const std::string& sched, const std::function<void(Recipe&)>& change) {
    return error_of([&] { recipe_of(sched, change); });
  };
  CHECK(complaint("onecycle", [](Recipe& r) { r.warmup_lr = 0.1; }) ==
        "train: warmup-lr: expected none with sched 'onecycle', which has its own, got 0.1");
  CHECK(complaint("step", [](Recipe& r) { r.warmup_prefix = true; }) ==
        "train: warmup-prefix: expected a warmup-lr with it, got none");
  CHECK(complaint("step", [](Recipe& r) { r.min_lr = 0.1; }) ==
        "train: min-lr: expected 0 with sched 'step', which has no use for it, got 0.1");
  CHECK(complaint("cosine", [](Recipe& r) { r.min_lr = NAN; }) ==
        "train: min-lr: expected a number from 0 to 1000, got nan");
  CHECK(complaint("constant", [](Recipe& r) { r.cooldown_epochs = 3; }) ==
        "train: cooldown-epochs: expected 0 with sched 'constant', which has no use for it, got 3");
  CHECK(complaint("multistep", [](Recipe& r) {
          r.decay_milestones = {30, 20};
        }) == "train: decay-milestones: expected epochs, each later than the one before, got 30, 20");
  CHECK(complaint("multistep", [](Recipe& r) {
          r.decay_milestones = {5, 5};
        }) == "train: decay-milestones: expected epochs, each later than the one before, got 5, 5");
  CHECK(complaint("multistep", [](Recipe& r) { r.decay_milestones = {}; }) ==
        "train: decay-milestones: expected epochs, each later than the one before, got none");
  CHECK(complaint("cosine", [](Recipe& r) { r.lr_base_scale = "cubic"; }) ==
        "train: lr-base-scale: expected linear or sqrt, got 'cubic'");
  CHECK(complaint("cosine", [](Recipe& r) { r.clip_mode = "norms"; }) ==
        "train: unknown clip mode 'norms'; did you mean 'norm'?");
}
