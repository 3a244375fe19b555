#include "lab/report/repeat_command.h"

#include "core/quoting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace norma::lab {

namespace {

class Words {
 public:
  void put(std::string_view option, std::string_view value) {
    text_ += fmt::format(" {} {}", option, shell_word(value));
  }
  template <class T>
  void put_changed(std::string_view option, const train::Recipe& recipe, T train::Recipe::*field) {
    if (recipe.*field != defaults_.*field) {
      if constexpr (std::is_same_v<T, bool>) {
        text_ += fmt::format(" --{}{}", recipe.*field ? "" : "no-", option.substr(2));
      } else if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>> ||
                           std::is_same_v<T, std::vector<std::string>>) {
        put(option, fmt::format("{}", fmt::join(recipe.*field, ",")));
      } else {
        put(option, fmt::format("{}", recipe.*field));
      }
    }
  }
  template <class T>
  void put_changed(std::string_view option, const train::Recipe& recipe, std::optional<T> train::Recipe::*field) {
    if (recipe.*field) {
      put(option, fmt::format("{}", *(recipe.*field)));
    }
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  train::Recipe defaults_;
};

}  // namespace

std::string repeat_command(const Comparison& comparison, const Cell& cell) {
  using train::Recipe;
  const Recipe recipe = recipe_of(comparison, cell);
  Words words;
  words.put("--model", recipe.model);
  words.put("--norm", recipe.norm);
  words.put_changed("--norm-policy", recipe, &Recipe::norm_policy_file);
  words.put_changed("--conv-layer", recipe, &Recipe::conv_layer);
  words.put_changed("--small-stem", recipe, &Recipe::small_stem);
  words.put_changed("--patch-size", recipe, &Recipe::patch_size);
  words.put_changed("--layer-scale", recipe, &Recipe::layer_scale);
  words.put_changed("--zero-init-last", recipe, &Recipe::zero_init_last);
  words.put_changed("--drop-path", recipe, &Recipe::drop_path);
  words.put_changed("--dataset", recipe, &Recipe::dataset);
  words.put_changed("--data-dir", recipe, &Recipe::data_dir);
  words.put_changed("--skip-bad-images", recipe, &Recipe::skip_bad_images);
  words.put_changed("--img-size", recipe, &Recipe::image_size);
  words.put_changed("--random-crop", recipe, &Recipe::crop_padding);
  words.put_changed("--flip", recipe, &Recipe::flip);
  words.put_changed("--scale", recipe, &Recipe::scale);
  words.put_changed("--ratio", recipe, &Recipe::ratio);
  words.put_changed("--hflip", recipe, &Recipe::hflip);
  words.put_changed("--vflip", recipe, &Recipe::vflip);
  words.put_changed("--color-jitter", recipe, &Recipe::color_jitter);
  words.put_changed("--aa", recipe, &Recipe::aa);
  words.put_changed("--reprob", recipe, &Recipe::reprob);
  words.put_changed("--remode", recipe, &Recipe::remode);
  words.put_changed("--recount", recipe, &Recipe::recount);
  words.put_changed("--train-interpolation", recipe, &Recipe::train_interpolation);
  words.put_changed("--interpolation", recipe, &Recipe::interpolation);
  words.put_changed("--crop-pct", recipe, &Recipe::crop_pct);
  words.put_changed("--mixup", recipe, &Recipe::mixup);
  words.put_changed("--cutmix", recipe, &Recipe::cutmix);
  words.put_changed("--mixup-prob", recipe, &Recipe::mixup_prob);
  words.put_changed("--mixup-switch-prob", recipe, &Recipe::mixup_switch_prob);
  words.put_changed("--aug-repeats", recipe, &Recipe::aug_repeats);
  words.put_changed("--batch-size", recipe, &Recipe::batch_size);
  if (recipe.images == 0) {
    words.put_changed("--epochs", recipe, &Recipe::epochs);
  }
  words.put_changed("--images", recipe, &Recipe::images);
  words.put_changed("--test-images", recipe, &Recipe::test_images);
  words.put_changed("--channels-last", recipe, &Recipe::channels_last);
  words.put_changed("--opt", recipe, &Recipe::opt);
  words.put_changed("--lr", recipe, &Recipe::lr);
  words.put_changed("--weight-decay", recipe, &Recipe::weight_decay);
  words.put_changed("--norm-weight-decay", recipe, &Recipe::norm_weight_decay);
  words.put_changed("--bias-weight-decay", recipe, &Recipe::bias_weight_decay);
  words.put_changed("--layer-decay", recipe, &Recipe::layer_decay);
  words.put_changed("--grad-accum-steps", recipe, &Recipe::grad_accum_steps);
  words.put_changed("--momentum", recipe, &Recipe::momentum);
  words.put_changed("--opt-betas", recipe, &Recipe::opt_betas);
  words.put_changed("--opt-eps", recipe, &Recipe::opt_eps);
  words.put_changed("--sched", recipe, &Recipe::sched);
  words.put_changed("--sched-on-updates", recipe, &Recipe::sched_on_updates);
  words.put_changed("--warmup-epochs", recipe, &Recipe::warmup_epochs);
  words.put_changed("--warmup-lr", recipe, &Recipe::warmup_lr);
  words.put_changed("--warmup-prefix", recipe, &Recipe::warmup_prefix);
  words.put_changed("--min-lr", recipe, &Recipe::min_lr);
  words.put_changed("--cooldown-epochs", recipe, &Recipe::cooldown_epochs);
  words.put_changed("--decay-milestones", recipe, &Recipe::decay_milestones);
  words.put_changed("--decay-epochs", recipe, &Recipe::decay_epochs);
  words.put_changed("--decay-rate", recipe, &Recipe::decay_rate);
  words.put_changed("--smoothing", recipe, &Recipe::smoothing);
  words.put_changed("--bce-loss", recipe, &Recipe::bce_loss);
  words.put_changed("--bce-target-thresh", recipe, &Recipe::bce_target_thresh);
  words.put_changed("--clip-grad", recipe, &Recipe::clip_grad);
  words.put_changed("--clip-mode", recipe, &Recipe::clip_mode);
  words.put_changed("--seed", recipe, &Recipe::seed);
  words.put_changed("--precision", recipe, &Recipe::precision);
  words.put_changed("--cast-policy", recipe, &Recipe::cast_policy_file);
  words.put_changed("--cast", recipe, &Recipe::cast);
  const train::Environment& environment = comparison.environment;
  for (const nn::PluginRecord& plugin : environment.plugins) {
    words.put("--plugin", plugin.file);
  }
  if (!environment.device.empty() && environment.device != "cpu") {
    words.put("--device", environment.device.substr(0, environment.device.find_first_of(":,")));
  }
  if (environment.threads != environment.cores) {
    words.put("--threads", fmt::format("{}", environment.threads));  // bits depend on it
  }
  return "norma train" + words.text();
}

}  // namespace norma::lab
