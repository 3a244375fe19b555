#include "base/error.h"
#include "models/parameter_depths.h"
#include "nn/optim/clip.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizers.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "train/recipe_option.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

namespace norma::train {

namespace {

/// timm's default --warmup-lr.
constexpr double kWarmupLr = 1e-5;

/// The factor rises in equal steps to 1; then `schedule` takes over.
nn::Schedule with_warmup(nn::Schedule schedule, int64_t warmup_steps) {
  if (warmup_steps == 0) {
    return schedule;
  }
  return [schedule = std::move(schedule), warmup_steps](int64_t step) {
    const double rise = std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(warmup_steps));
    return rise * schedule(step);
  };
}

/// True for schedules with timm's warm-up even without warmup_lr.
bool is_timm_schedule(const std::string& name) {
  return name == "poly" || name == "multistep";
}

/// True for schedules that end at min_lr.
bool has_end(const std::string& name) {
  return name == "cosine" || name == "poly";
}

void check_schedule(const Recipe& recipe) {
  check(!recipe.warmup_lr || recipe.sched != "onecycle", "train",
        "warmup-lr: expected none with sched 'onecycle', which has its own, got {}", recipe.warmup_lr.value_or(0));
  check(!recipe.warmup_prefix || recipe.warmup_lr || is_timm_schedule(recipe.sched), "train",
        "warmup-prefix: expected a warmup-lr with it, got none");
  for (const auto& [name, value] : {std::pair("min-lr", recipe.min_lr), {"cooldown-epochs", recipe.cooldown_epochs}}) {
    check(value == 0 || has_end(recipe.sched), "train",
          "{}: expected 0 with sched '{}', which has no use for it, got {}", name, recipe.sched, value);
  }
  const std::vector<int64_t>& milestones = recipe.decay_milestones;
  check(!milestones.empty() && std::is_sorted(milestones.begin(), milestones.end(), std::less_equal<>()), "train",
        "decay-milestones: expected epochs, each later than the one before, got {}",
        milestones.empty() ? "none" : fmt::format("{}", fmt::join(milestones, ", ")));
}

/// `epochs` is the length of the run.
void check_cooldown(const Recipe& recipe, double epochs) {
  check(recipe.cooldown_epochs == 0 || recipe.cooldown_epochs + recipe.warmup_epochs < epochs, "train",
        "cooldown-epochs: expected less than the {} epochs of the run minus {} of warm-up, got {}", epochs,
        recipe.warmup_epochs, recipe.cooldown_epochs);
}

/// Checks the settings of an optimizer's averages, which not all optimizers have.
void check_averages(const Recipe& recipe) {
  const std::vector<double>& betas = recipe.opt_betas;
  const bool has_betas = recipe.opt == "adamw" || recipe.opt == "lamb" || recipe.opt == "muon";
  check(betas.empty() || has_betas, "train",
        "opt-betas: expected none with opt '{}', which has no use for them, got {}", recipe.opt,
        fmt::join(betas, ", "));
  check(betas.empty() || betas.size() == 2, "train", "opt-betas: expected two numbers, got {}", betas.size());
  check(!recipe.opt_eps || has_betas || recipe.opt == "rmsproptf", "train",
        "opt-eps: expected none with opt '{}', which has no use for it, got {}", recipe.opt,
        recipe.opt_eps.value_or(0));
}

void decay_by_depth(const Recipe& recipe, const nn::Module& model, std::map<std::string, double>& scales) {
  const std::map<std::string, int64_t> depths = models::parameter_depths(model);
  const auto deeper = [](const auto& a, const auto& b) { return a.second < b.second; };
  const int64_t last = std::ranges::max_element(depths, deeper)->second;
  for (const auto& [name, depth] : depths) {
    scales.try_emplace(name, std::pow(recipe.layer_decay, static_cast<double>(last - depth)));
  }
}

/// The factor on a parameter's learning rate: layer_decay for each step of depth from the head, and for the classifier
/// head_lr / base_lr(); empty: 1 for all.
std::function<double(const std::string&)> lr_scale_of(const Recipe& recipe, const nn::Module& model) {
  if (recipe.layer_decay == 1 && !recipe.head_lr) {
    return {};
  }
  std::map<std::string, double> scales;
  if (recipe.head_lr) {
    const std::string head = models::classifier_path(model) + ".";
    bool is_trained = false;
    for (const auto& [name, x] : model.named_parameters()) {
      if (name.starts_with(head)) {
        scales[name] = *recipe.head_lr / base_lr(recipe);
        is_trained = is_trained || x.requires_grad();
      }
    }
    const std::string last = model.named_parameters().back().first;
    check(!scales.empty(), "train",
          "head-lr: expected a classifier, the module of the last parameter, got the parameter '{}' of no module",
          last);
    check(is_trained, "train", "head-lr: expected a classifier that is trained, got the frozen {}", last);
  }
  if (recipe.layer_decay != 1) {
    decay_by_depth(recipe, model, scales);
  }
  return [scales = std::move(scales)](const std::string& name) {
    const auto found = scales.find(name);
    return found == scales.end() ? 1 : found->second;
  };
}

}  // namespace

std::vector<std::string> optimizer_names() {
  return {"adamw", "sgd", "nesterov", "lamb", "rmsproptf", "muon"};
}

std::vector<std::string> schedule_names() {
  return {"onecycle", "cosine", "step", "constant", "poly", "multistep"};
}

std::vector<std::string> clip_mode_names() {
  return {"norm", "value", "agc"};
}

void check_optimization(const Recipe& recipe) {
  const std::string& scale = recipe.lr_base_scale;
  check(scale.empty() || scale == "linear" || scale == "sqrt", "train",
        "lr-base-scale: expected linear or sqrt, got '{}'", scale);
  check_averages(recipe);
  check_schedule(recipe);
  check(!recipe.bce_target_thresh || recipe.bce_loss, "train",
        "bce-target-thresh: expected bce-loss with it, got none");
}

void check_training(const Recipe& recipe) {
  check(!recipe.head_lr || base_lr(recipe) > 0, "train", "head-lr: expected an lr above 0 with it, got {}",
        base_lr(recipe));
  check(recipe.clip_grad > 0 || recipe.clip_mode == Recipe{}.clip_mode, "train",
        "clip-mode: expected a clip-grad with '{}', got none", recipe.clip_mode);
  check(!recipe.warmup_lr || recipe.warmup_epochs > 0, "train", "warmup-lr: expected warmup-epochs with it, got none");
  check(recipe.min_lr <= base_lr(recipe), "train", "min-lr: expected at most the learning rate, {}, got {}",
        base_lr(recipe), recipe.min_lr);
  if (recipe.images == 0) {
    check_cooldown(recipe, static_cast<double>(recipe.epochs));
  }
}

std::unique_ptr<nn::Optimizer> make_optimizer(const Recipe& recipe, const nn::Module& model) {
  auto groups = nn::parameter_groups(model, recipe.weight_decay,
                                     {.norm_weight_decay = recipe.norm_weight_decay,
                                      .bias_weight_decay = recipe.bias_weight_decay,
                                      .lr_scale = lr_scale_of(recipe, model)});
  const double lr = base_lr(recipe);
  const bool has_betas = recipe.opt_betas.size() == 2;
  const double beta1 = has_betas ? recipe.opt_betas[0] : recipe.momentum;
  const auto made = [&]<class Optimizer, class Options>(std::in_place_type_t<Optimizer>, Options options) {
    if constexpr (requires { options.beta2; }) {
      options.beta2 = has_betas ? recipe.opt_betas[1] : options.beta2;
    }
    options.eps = recipe.opt_eps.value_or(options.eps);
    return std::make_unique<Optimizer>(std::move(groups), options);
  };
  if (recipe.opt == "adamw") {
    return made(std::in_place_type<nn::AdamW>, nn::AdamWOptions{.lr = lr, .beta1 = beta1});
  }
  if (recipe.opt == "lamb") {
    return made(std::in_place_type<nn::Lamb>, nn::LambOptions{.lr = lr, .beta1 = beta1});
  }
  if (recipe.opt == "rmsproptf") {
    return made(std::in_place_type<nn::RmsPropTf>, nn::RmsPropTfOptions{.lr = lr, .momentum = recipe.momentum});
  }
  if (recipe.opt == "muon") {
    nn::MuonOptions options{.lr = lr, .momentum = recipe.momentum};
    options.beta1 = has_betas ? recipe.opt_betas[0] : options.beta1;
    return made(std::in_place_type<nn::Muon>, options);
  }
  recipe_option("opt").check_value(recipe);
  return std::make_unique<nn::Sgd>(
      std::move(groups), nn::SgdOptions{.lr = lr, .momentum = recipe.momentum, .nesterov = recipe.opt == "nesterov"});
}

Tensor training_loss(const Recipe& recipe, const Tensor& logits, const Tensor& target) {
  if (!recipe.bce_loss) {
    return cross_entropy(logits, target, {.label_smoothing = recipe.smoothing});
  }
  BinaryCrossEntropyOptions options{.label_smoothing = recipe.smoothing, .target_threshold = recipe.bce_target_thresh};
  if (target.rank() == 1) {
    return binary_cross_entropy_with_logits(logits, target, options);
  }
  // The shares of mixed images are smoothed as class numbers are.
  const double floor = recipe.smoothing / static_cast<double>(logits.size(1));
  options.label_smoothing = 0;
  return binary_cross_entropy_with_logits(logits, add(mul(target, 1 - recipe.smoothing), floor), options);
}

void clip_gradients(const Recipe& recipe, const nn::Module& model, const nn::Optimizer& optimizer) {
  if (recipe.clip_grad == 0) {
    return;
  }
  const double limit = recipe.clip_grad * optimizer.grad_scale();
  if (recipe.clip_mode == "norm") {
    nn::clip_grad_norm_(optimizer.parameters(), limit);
  } else if (recipe.clip_mode == "value") {
    nn::clip_grad_value_(optimizer.parameters(), limit);
  } else {
    recipe_option("clip-mode").check_value(recipe);
    Tensors parameters = model.parameters();
    parameters.resize(parameters.size() - std::min(parameters.size(), size_t{2}));
    nn::adaptive_clip_grad(parameters, {.factor = limit});
  }
}

double base_lr(const Recipe& recipe) {
  if (recipe.lr_base == 0) {
    return recipe.lr;
  }
  const double ratio =
      static_cast<double>(recipe.batch_size * recipe.grad_accum_steps) / static_cast<double>(recipe.lr_base_size);
  const bool by_root =
      recipe.lr_base_scale.empty() ? recipe.opt == "adamw" || recipe.opt == "lamb" : recipe.lr_base_scale == "sqrt";
  return recipe.lr_base * (by_root ? std::sqrt(ratio) : ratio);
}

Schedules make_schedules(const Recipe& recipe, int64_t steps, int64_t steps_per_epoch) {
  check_cooldown(recipe, static_cast<double>(steps) / static_cast<double>(steps_per_epoch));
  if (!recipe.sched_on_updates) {
    Recipe in_epochs = recipe;
    in_epochs.sched_on_updates = true;
    const Schedules schedules =
        make_schedules(in_epochs, (steps + steps_per_epoch - 1) / steps_per_epoch, /* steps_per_epoch= */ 1);
    return {.lr = nn::epoch_schedule(schedules.lr, steps_per_epoch),
            .momentum = schedules.momentum ? nn::epoch_schedule(schedules.momentum, steps_per_epoch) : nn::Schedule()};
  }
  const auto in_steps = [&](double epochs) {
    return static_cast<int64_t>(std::llround(epochs * static_cast<double>(steps_per_epoch)));
  };
  // A run may end inside its warm-up, whose slope stays; the curve after it has at least its shortest valid length.
  const int64_t warmup_steps = in_steps(recipe.warmup_epochs);
  if (recipe.sched == "onecycle") {
    nn::OneCycleOptions options{.steps = std::max(steps, warmup_steps + 1)};
    if (warmup_steps > 0) {
      options.pct_start = static_cast<double>(warmup_steps) / static_cast<double>(options.steps);
    }
    return {.lr = nn::one_cycle_schedule(options), .momentum = nn::one_cycle_momentum(options)};
  }
  const double end = recipe.min_lr / base_lr(recipe);
  // Parts of epochs are rounded to whole ones, which leaves a step between warm-up and cool-down.
  const int64_t rest = std::max<int64_t>(steps - 1 - warmup_steps, 0);
  int64_t length = steps - std::min(in_steps(recipe.cooldown_epochs), rest);
  const bool as_timm = recipe.warmup_lr || is_timm_schedule(recipe.sched);
  if (recipe.sched == "cosine" && !as_timm) {
    length = std::max(length, warmup_steps);
    return {.lr = nn::cosine_schedule({.steps = length, .warmup_steps = warmup_steps, .final = end}), .momentum = {}};
  }
  const nn::WarmupOptions warmup{.steps = warmup_steps,
                                 .start = recipe.warmup_lr.value_or(kWarmupLr) / base_lr(recipe),
                                 .prefix = recipe.warmup_prefix};
  length = warmup.prefix ? std::max<int64_t>(length - warmup_steps, 1) : length;
  nn::Schedule curve;
  if (recipe.sched == "cosine") {
    curve = nn::cosine_schedule({.steps = length, .final = end});
  } else if (recipe.sched == "poly") {
    curve = nn::poly_schedule({.steps = length, .power = recipe.decay_rate, .final = end});
  } else if (recipe.sched == "step") {
    const double every = recipe.decay_epochs * static_cast<double>(steps_per_epoch);
    curve = nn::step_schedule({.milestones = {}, .every = every, .gamma = recipe.decay_rate});
  } else if (recipe.sched == "multistep") {
    nn::StepOptions options{.milestones = recipe.decay_milestones, .gamma = recipe.decay_rate};
    for (int64_t& milestone : options.milestones) {
      milestone *= steps_per_epoch;
    }
    curve = nn::step_schedule(options);
  } else {
    recipe_option("sched").check_value(recipe);
    curve = nn::constant_schedule();
  }
  return {.lr = as_timm ? nn::warmup_schedule(std::move(curve), warmup) : with_warmup(std::move(curve), warmup_steps),
          .momentum = {}};
}

}  // namespace norma::train
