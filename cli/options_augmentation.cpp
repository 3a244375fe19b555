#include "cli/options.h"
#include "data/augment/erase.h"
#include "data/augment/mix.h"
#include "train/augmentation.h"
#include "train/ranges.h"

#include <string>

namespace norma::cli {

namespace {

constexpr const char* kAugmentation = "Augmentation of training images";

}  // namespace

void RecipeOptions::add_augmentation(CLI::App& app) {
  constexpr Range<double> probability{0, 1};
  add_flag(app, "--flip,!--no-flip", &train::Recipe::flip, "mirror every second image, by chance").group(kAugmentation);
  add(app, "--random-crop", &train::Recipe::crop_padding, train::ranges::kCropPadding, "N",
      "shift images by up to N pixels, by chance")
      .group(kAugmentation);
  add(app, "--scale", &train::Recipe::scale, kAnyNumber, "a number",
      "cut out a window of this part of the area, by chance, and resize it: 0.08,1", "no window")
      .group(kAugmentation);
  add(app, "--ratio", &train::Recipe::ratio, kAnyNumber, "a number", "width to height of these windows", "0.75,1.3333")
      .group(kAugmentation);
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
