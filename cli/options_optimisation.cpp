#include "cli/options.h"
#include "train/ranges.h"

#include <fmt/ranges.h>

namespace norma::cli {

namespace {

constexpr const char* kOptimisation = "Optimisation";

}  // namespace

void RecipeOptions::add_update(CLI::App& app) {
  add(app, "--opt", &train::Recipe::opt, "a name", "NAME", or_list(train::optimizer_names())).group(kOptimisation);
  add(app, "--weight-decay", &train::Recipe::weight_decay, train::ranges::kWeightDecay, "X",
      "of the weights of convolutions and linear layers")
      .group(kOptimisation);
  add(app, "--norm-weight-decay", &train::Recipe::norm_weight_decay, train::ranges::kWeightDecay, "X",
      "of the weights and biases of norm layers")
      .group(kOptimisation);
  add(app, "--bias-weight-decay", &train::Recipe::bias_weight_decay, train::ranges::kWeightDecay, "X",
      "of the biases of all other layers")
      .group(kOptimisation);
  add(app, "--layer-decay", &train::Recipe::layer_decay, train::ranges::kLayerDecay, "X",
      "learning rate of each block, as a share of the next one's", "1: all the same")
      .group(kOptimisation);
  add(app, "--momentum", &train::Recipe::momentum, train::ranges::kMomentum, "X",
      "of sgd and rmsproptf; beta1 of adamw and lamb; --sched onecycle moves it between 0.85 and 0.95")
      .group(kOptimisation);
  add(app, "--opt-betas", &train::Recipe::opt_betas, kAnyNumber, "a number",
      "beta1 and beta2 of adamw and lamb: 0.9,0.999", "--momentum,0.999")
      .group(kOptimisation);
  add(app, "--opt-eps", &train::Recipe::opt_eps, train::ranges::kOptEps, "X", "eps of adamw, lamb and rmsproptf",
      "1e-8, 1e-6, 1e-10")
      .group(kOptimisation);
  add(app, "--smoothing", &train::Recipe::smoothing, train::ranges::kSmoothing, "X", "label smoothing")
      .group(kOptimisation);
  add(app, "--clip-grad", &train::Recipe::clip_grad, train::ranges::kClipGrad, "X",
      "largest norm of all gradients together, or what --clip-mode says", "0: not clipped")
      .group(kOptimisation);
  add(app, "--clip-mode", &train::Recipe::clip_mode, "a name", "NAME",
      or_list(train::clip_mode_names()) +
          ": --clip-grad is the norm, the largest element, or the largest share of each unit's weights")
      .group(kOptimisation);
}

void RecipeOptions::add_optimisation(CLI::App& app) {
  add_update(app);
  add(app, "--grad-accum-steps", &train::Recipe::grad_accum_steps, train::ranges::kGradAccumSteps, "N",
      "batches whose gradients make one update")
      .group(kOptimisation);
  add_flag(app, "--bce-loss,!--no-bce-loss", &train::Recipe::bce_loss,
           "binary cross entropy over the classes in the place of cross entropy")
      .group(kOptimisation);
  add(app, "--bce-target-thresh", &train::Recipe::bce_target_thresh, train::ranges::kTargetThreshold, "X",
      "with --bce-loss: targets above X become 1, others 0", "targets as they are")
      .group(kOptimisation);
  add_learning_rate(app);
  add_schedule(app);
  if (axes_ == nullptr) {
    add_flag(app, "--skip-nonfinite,!--no-skip-nonfinite", &train::Recipe::skip_nonfinite,
             "leave out a step whose loss or gradients become NaN or infinite, in place of stopping")
        .group(kOptimisation);
    add(app, "--max-nonfinite", &train::Recipe::max_nonfinite, train::ranges::kSteps, "N",
        "with --skip-nonfinite: stop after N such steps in a row")
        .group(kOptimisation);
    add_model_ema(app);
  }
}

void RecipeOptions::add_model_ema(CLI::App& app) {
  add_flag(app, "--model-ema,!--no-model-ema", &train::Recipe::model_ema,
           "keep a moving average of the weights, and evaluate it, too")
      .group(kOptimisation);
  add(app, "--model-ema-decay", &train::Recipe::model_ema_decay, train::ranges::kEmaDecay, "X",
      "share of the average that an update keeps")
      .group(kOptimisation);
  add_flag(app, "--model-ema-warmup,!--no-model-ema-warmup", &train::Recipe::model_ema_warmup,
           "let that share rise from 0")
      .group(kOptimisation);
}

void RecipeOptions::add_learning_rate(CLI::App& app) {
  const std::string rate = "learning rate at its highest";
  if (axes_ != nullptr) {
    add_values(app, "--lr,--lrs", train::ranges::kLr, axes_->lrs, rate)
        .type_name("LIST")
        .default_str(fmt::format("{}", defaults_.lr))
        .group(kOptimisation);
    return;
  }
  const auto note_lr = [this](double lr) {
    note(&train::Recipe::lr, lr);
    note(&train::Recipe::lr_base, 0.0);
  };
  note_config("--lr", [](const train::Recipe& recipe) { return recipe.lr_base > 0 ? "" : toml_number(recipe.lr); });
  add_value<double>(app, "--lr", train::ranges::kLr, note_lr, rate)
      .type_name("X")
      .default_str(fmt::format("{}", defaults_.lr))
      .group(kOptimisation);
  add(app, "--lr-base", &train::Recipe::lr_base, train::ranges::kLrOrNone, "X",
      "learning rate for --lr-base-size images per update, instead of --lr", "0: see --lr")
      .group(kOptimisation);
  config_.back().second = [](const train::Recipe& recipe) {
    return recipe.lr_base > 0 ? toml_number(recipe.lr_base) : "";
  };
  exclude(app, {"--lr", "--lr-base"});
  add(app, "--lr-base-size", &train::Recipe::lr_base_size, train::ranges::kBatchSize, "N",
      "images per update that --lr-base is for")
      .group(kOptimisation);
  add(app, "--lr-base-scale", &train::Recipe::lr_base_scale, "a name", "NAME",
      "linear or sqrt: how --lr-base follows the images per update", "sqrt for adamw and lamb, else linear")
      .group(kOptimisation);
}

void RecipeOptions::add_schedule(CLI::App& app) {
  add(app, "--sched", &train::Recipe::sched, "a name", "NAME",
      or_list(train::schedule_names()) + ": how the learning rate moves")
      .group(kOptimisation);
  add_flag(app, "--sched-on-updates,!--no-sched-on-updates", &train::Recipe::sched_on_updates,
           "move it with every step, not once an epoch")
      .group(kOptimisation);
  add(app, "--warmup-epochs", &train::Recipe::warmup_epochs, train::ranges::kWarmupEpochs, "X",
      "the learning rate rises for so long", "0; onecycle: 30 % of the run")
      .group(kOptimisation);
  add(app, "--warmup-lr", &train::Recipe::warmup_lr, train::ranges::kLrOrNone, "X",
      "where it begins to rise; the warm-up is timm's then", "poly, multistep: 1e-5; others: docs/training.md")
      .group(kOptimisation);
  add_flag(app, "--warmup-prefix,!--no-warmup-prefix", &train::Recipe::warmup_prefix,
           "with --warmup-lr: the schedule begins after the warm-up, not with it")
      .group(kOptimisation);
  add(app, "--min-lr", &train::Recipe::min_lr, train::ranges::kLrOrNone, "X",
      "sched cosine, poly: learning rate at the end")
      .group(kOptimisation);
  add(app, "--cooldown-epochs", &train::Recipe::cooldown_epochs, train::ranges::kCooldownEpochs, "X",
      "sched cosine, poly: stay at --min-lr for so long at the end")
      .group(kOptimisation);
  add(app, "--decay-epochs", &train::Recipe::decay_epochs, train::ranges::kDecayEpochs, "X",
      "sched step: epochs between two decays")
      .group(kOptimisation);
  add(app, "--decay-milestones", &train::Recipe::decay_milestones, train::ranges::kMilestone,
      to_string(train::ranges::kMilestone), "sched multistep: epochs, counted from 1, that have a decay, as in timm",
      fmt::format("{}", fmt::join(defaults_.decay_milestones, ",")))
      .group(kOptimisation);
  add(app, "--decay-rate", &train::Recipe::decay_rate, train::ranges::kDecayRate, "X",
      "sched step, multistep: factor of each decay; poly: its power")
      .group(kOptimisation);
}

void RecipeOptions::add_seed(CLI::App& app) {
  add(app, "--seed", &train::Recipe::seed, train::ranges::kSeed, "N",
      "of start values, image order and dropping; same seed, same bits")
      .group(kOptimisation);
}

}  // namespace norma::cli
