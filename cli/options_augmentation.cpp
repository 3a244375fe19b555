#include "cli/config_file.h"
#include "cli/options.h"
#include "data/augment/erase.h"
#include "data/augment/mix.h"
#include "train/augmentation.h"
#include "train/ranges.h"

#include <charconv>
#include <memory>
#include <string>
#include <system_error>

namespace norma::cli {

namespace {

constexpr const char* kAugmentation = "Augmentation of training images";

}  // namespace

Option RecipeOptions::add_pair(CLI::App& app, const std::string& name, std::vector<double> train::Recipe::*field,
                               const std::string& description, const std::string& default_text) {
  const auto numbers = std::make_shared<std::vector<double>>();
  const auto begin = [edits = edits_, field, numbers] {
    numbers->clear();
    edits->push_back([field, numbers](train::Recipe& recipe) { recipe.*field = *numbers; });
  };
  const auto take = [numbers](const std::string& item) {
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), numbers->emplace_back());
    return error == std::errc() && end == item.data() + item.size();
  };
  note_config(name, [field](const train::Recipe& recipe) {
    std::string list;
    for (const double number : recipe.*field) {
      list += (list.empty() ? "" : ", ") + toml_number(number);
    }
    return list.empty() ? list : "[" + list + "]";
  });
  return add_items(app, name, "a number", begin, take, description).type_name("LIST").default_str(default_text);
}

void RecipeOptions::add_augmentation(CLI::App& app) {
  constexpr Range<double> probability{0, 1};
  add_flag(app, "--flip,!--no-flip", &train::Recipe::flip, "mirror every second image, by chance").group(kAugmentation);
  add(app, "--random-crop", &train::Recipe::crop_padding, train::ranges::kCropPadding, "N",
      "shift images by up to N pixels, by chance")
      .group(kAugmentation);
  add_pair(app, "--scale", &train::Recipe::scale,
           "cut out a window of this part of the area, by chance, and resize it: 0.08,1", "no window")
      .group(kAugmentation);
  add_pair(app, "--ratio", &train::Recipe::ratio, "width to height of these windows", "3/4,4/3").group(kAugmentation);
  add(app, "--hflip", &train::Recipe::hflip, probability, "X", "mirror with this probability").group(kAugmentation);
  add(app, "--vflip", &train::Recipe::vflip, probability, "X", "turn upside down with this probability")
      .group(kAugmentation);
  add_or_none(
      app, "--color-jitter", &train::Recipe::color_jitter, "a number", "LIST",
      "change brightness, contrast and saturation by up to X (0.4), or each by its own and the hue (0.4,0.4,0.4,0.1)")
      .group(kAugmentation);
  add_or_none(app, "--aa", &train::Recipe::aa, "a name", "NAME",
              "automatic augmentation: ta_wide, or RandAugment as in rand-m9-mstd0.5-inc1")
      .group(kAugmentation);
  add(app, "--reprob", &train::Recipe::reprob, probability, "X", "erase a rectangle with this probability")
      .group(kAugmentation);
  add(app, "--remode", &train::Recipe::remode, "a name", "NAME",
      or_list(data::erasing_mode_names()) + ": what comes in its place")
      .group(kAugmentation);
  add(app, "--recount", &train::Recipe::recount, data::kErasingCount, "N", "erase up to N rectangles")
      .group(kAugmentation);
  add(app, "--train-interpolation", &train::Recipe::train_interpolation, "a name", "NAME",
      or_list(train::train_interpolation_names()) + ": of training images that are resized or moved")
      .group(kAugmentation);
  add(app, "--mixup", &train::Recipe::mixup, data::kMixAlpha, "X",
      "mix the images of a batch in pairs, by shares from Beta(X, X)", "0: no mixing")
      .group(kAugmentation);
  add(app, "--cutmix", &train::Recipe::cutmix, data::kMixAlpha, "X", "put a rectangle of the other image in, likewise",
      "0: no mixing")
      .group(kAugmentation);
  add(app, "--mixup-prob", &train::Recipe::mixup_prob, probability, "X", "of a batch to be mixed").group(kAugmentation);
  add(app, "--mixup-switch-prob", &train::Recipe::mixup_switch_prob, probability, "X",
      "of --cutmix, where --mixup is given too")
      .group(kAugmentation);
  add(app, "--aug-repeats", &train::Recipe::aug_repeats, train::ranges::kAugRepeats, "N",
      "take each image N times in a row, augmented anew; an epoch is no longer and has fewer images", "0: once")
      .group(kAugmentation);
}

}  // namespace norma::cli
