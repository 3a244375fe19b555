#include "train/recipe.h"

#include <fmt/format.h>

namespace norma::train {

std::vector<std::string> without_effect(const Recipe& recipe) {
  const Recipe defaults;
  std::vector<std::string> lines;
  const auto look = [&](const char* option, auto Recipe::*field, bool used, const char* needed) {
    if (!used && recipe.*field != defaults.*field) {
      lines.push_back(fmt::format("{} has no effect without {}", option, needed));
    }
  };
  const bool mixup = recipe.mixup > 0;
  const bool cutmix = recipe.cutmix > 0;
  look("skip-bad-images", &Recipe::skip_bad_images, recipe.dataset == "imagefolder", "dataset imagefolder");
  look("ratio", &Recipe::ratio, !recipe.scale.empty(), "scale");
  look("remode", &Recipe::remode, recipe.reprob > 0, "reprob");
  look("recount", &Recipe::recount, recipe.reprob > 0, "reprob");
  look("mixup-prob", &Recipe::mixup_prob, mixup || cutmix, "mixup or cutmix");
  look("mixup-switch-prob", &Recipe::mixup_switch_prob, mixup && cutmix, "both mixup and cutmix");
  look("lr-base-size", &Recipe::lr_base_size, recipe.lr_base > 0, "lr-base");
  look("lr-base-scale", &Recipe::lr_base_scale, recipe.lr_base > 0, "lr-base");
  look("decay-epochs", &Recipe::decay_epochs, recipe.sched == "step", "sched step");
  look("decay-milestones", &Recipe::decay_milestones, recipe.sched == "multistep", "sched multistep");
  look("decay-rate", &Recipe::decay_rate,
       recipe.sched == "step" || recipe.sched == "multistep" || recipe.sched == "poly",
       "sched step, multistep or poly");
  look("max-nonfinite", &Recipe::max_nonfinite, recipe.skip_nonfinite, "skip-nonfinite");
  look("model-ema-decay", &Recipe::model_ema_decay, recipe.model_ema, "model-ema");
  look("model-ema-warmup", &Recipe::model_ema_warmup, recipe.model_ema, "model-ema");
  return lines;
}

}  // namespace norma::train
