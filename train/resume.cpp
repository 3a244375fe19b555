#include "train/resume.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "models/registry.h"
#include "train/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace norma::train {

namespace {

std::string to_text(const std::string& value) {
  return fmt::format("'{}'", excerpt(value));
}
std::string to_text(bool value) {
  return value ? "on" : "off";
}
template <class T>
std::string to_text(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string to_text(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "the model's own";
}

/// A policy by the name of its file.
std::string policy_text(const std::string& text, const std::string& file) {
  return text.empty() ? "none" : fmt::format("that of '{}'", file);
}

void refuse(std::string_view name, const std::string& before, const std::string& now) {
  fail("resume", "{}: the run was started with {}, and cannot go on with {}", name, before, now);
}

}  // namespace

void check_same_run(const Recipe& before, const Recipe& now) {
  const auto same = [](std::string_view name, const auto& a, const auto& b) {
    if (a != b) {
      refuse(name, to_text(a), to_text(b));
    }
  };
  const auto same_policy = [&](std::string_view name, const std::string& a, const std::string& a_file,
                               const std::string& b, const std::string& b_file) {
    if (a != b) {
      const bool same_file = !a.empty() && !b.empty() && a_file == b_file;
      refuse(name, policy_text(a, a_file), same_file ? "another text in that file" : policy_text(b, b_file));
    }
  };
  const auto norm_of = [](const Recipe& recipe) {
    return recipe.norm.empty() ? models::own_norm(recipe.model) : recipe.norm;
  };
  same("model", before.model, now.model);
  same("norm", norm_of(before), norm_of(now));
  same_policy("norm-policy", before.norm_policy, before.norm_policy_file, now.norm_policy, now.norm_policy_file);
  same("conv-layer", before.conv_layer, now.conv_layer);
  same("small-stem", before.small_stem, now.small_stem);
  same("patch-size", before.patch_size, now.patch_size);
  same("layer-scale", before.layer_scale, now.layer_scale);
  same("zero-init-last", before.zero_init_last, now.zero_init_last);
  same("dataset", before.dataset, now.dataset);
  same("batch-size", before.batch_size, now.batch_size);
  same("grad-accum-steps", before.grad_accum_steps, now.grad_accum_steps);
  same("opt", before.opt, now.opt);
  same("model-ema", before.model_ema, now.model_ema);
  same("seed", before.seed, now.seed);
  same("precision", before.precision, now.precision);
  same_policy("cast-policy", before.cast_policy, before.cast_policy_file, now.cast_policy, now.cast_policy_file);
  same("cast", fmt::format("{}", fmt::join(before.cast, ",")), fmt::format("{}", fmt::join(now.cast, ",")));
}

void check_changes_count(const Recipe& before, const Recipe& now, int64_t steps) {
  Recipe heeded = now;
  // These are for evaluations, too, and a length that is another one makes more steps or is refused.
  heeded.data_dir = before.data_dir;
  heeded.skip_bad_images = before.skip_bad_images;
  heeded.test_images = before.test_images;
  heeded.interpolation = before.interpolation;
  heeded.crop_pct = before.crop_pct;
  heeded.epochs = before.epochs;
  heeded.images = before.images;
  const std::vector<std::string> changes = differences(before, heeded);
  check(changes.empty(), "resume",
        "the run is complete after {} steps, and would not heed {}: --epochs or --images make it longer", steps,
        fmt::format("{}", fmt::join(changes, ", ")));
}

void check_data_dir(std::string_view op, const Recipe& of_checkpoint, const Recipe& now) {
  const std::string& folder = of_checkpoint.data_dir;
  check(folder.empty() || now.data_dir != folder || path_exists(op, folder), op,
        "data-dir: there is no '{}', as the checkpoint has it: --data-dir says where it is", folder);
}

}  // namespace norma::train
