#include "base/excerpt.h"
#include "cli/command.h"
#include "cli/options.h"
#include "core/factory.h"
#include "data/image_file.h"
#include "data/survey.h"
#include "data/transform.h"
#include "ops/shape/view.h"
#include "session/output.h"
#include "train/evaluate.h"
#include "train/recipe.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <thread>

namespace norma::cli {

namespace {

constexpr Range<int64_t> kCount{1, 4096};
/// The most pixels of a picture, over all its images.
constexpr int64_t kMaxPixels = int64_t{1} << 25;
/// The most image files to load per split: half a minute on two cores.
constexpr int64_t kLookedAt = 20'000;
constexpr int64_t kFaultsSaid = 5;

struct State {
  RecipeOptions recipe{{}};
  std::string show;
  int64_t count = 64;
  int64_t epoch = 0;
  bool time = false;
};

void say_line(std::string_view name, const std::string& value) {
  train::say("{:<14}{}\n", name, value);
}

/// Undoes the normalization of an image, to bytes.
data::Image bytes_of(const Tensor& normalized, const data::DatasetInfo& info) {
  std::vector<float> values = normalized.to_vector<float>();
  const auto channels = static_cast<size_t>(normalized.size(0));
  const size_t plane = values.size() / channels;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t c = std::min(i / plane, info.mean.size() - 1);
    values[i] = values[i] * info.std[c] + info.mean[c];
  }
  return data::tensor_to_image(from_vector(values, normalized.sizes()));
}

/// The first training images of an epoch, as a network gets them.
std::vector<data::Image> training_images(const State& state, train::Recipe recipe,
                                         const std::shared_ptr<const data::Dataset>& dataset) {
  // Batches that are not full are left out. The order of images does not depend on their size, but mixing does.
  recipe.batch_size = train::mix_options(recipe).any() ? std::min(recipe.batch_size, dataset->info().size) : 1;
  recipe.images = 0;
  recipe.epochs = state.epoch + 1;
  const int64_t per_epoch = train::make_train_loader(recipe, dataset, 0).batches_per_epoch();
  data::Loader loader = train::make_train_loader(recipe, dataset, 0, state.epoch * per_epoch);
  std::vector<data::Image> images;
  while (std::optional<data::Batch> batch = loader.next()) {
    for (int64_t i = 0; i < batch->images.size(0); ++i) {
      images.push_back(bytes_of(select(batch->images, 0, i), dataset->info()));
      if (static_cast<int64_t>(images.size()) == state.count) {
        return images;
      }
    }
  }
  return images;
}

/// Loads image files and prints what was found: the dataset knows nothing of them before.
void say_what_files_hold(train::Recipe recipe, const data::DatasetInfo& info) {
  recipe.skip_bad_images = false;  // so that no other image replaces a bad one
  const bool turns = std::exchange(recipe.exif_orientation, false);
  for (const data::Split split : {data::Split::train, data::Split::test}) {
    const auto dataset = train::make_dataset(recipe, split);
    const data::Survey found = data::survey(*dataset, kLookedAt);
    const auto count = static_cast<int64_t>(found.faults.size());
    const std::string of = found.looked_at == dataset->info().size
                               ? fmt::format("{}", found.looked_at)
                               : fmt::format("{} of {} looked at", found.looked_at, dataset->info().size);
    for (const std::string& text : dataset->left_out()) {
      say_line("left out", fmt::format("{}: {}", data::to_string(split), text));
    }
    if (found.turned > 0) {
      say_line("turned",
               fmt::format("{} of the {} {} images by their EXIF data; {}", found.turned, of, data::to_string(split),
                           turns ? "they are turned upright" : "--exif-orientation turns them upright"));
    }
    if (count > 0) {
      say_line("unreadable", fmt::format("{} of the {} {} images ({})", count, of, data::to_string(split),
                                         "a run ends there, or takes the next one for it with --skip-bad-images"));
      for (int64_t i = 0; i < std::min(count, kFaultsSaid); ++i) {
        const std::string& text = found.faults[static_cast<size_t>(i)];
        say_line("", text.substr(0, text.find(" (--skip-bad-images")));
      }
      if (count > kFaultsSaid) {
        say_line("", fmt::format("and {} more", count - kFaultsSaid));
      }
    }
    if (split == data::Split::train && !found.mean.empty()) {
      say_line("mean, std", fmt::format("{:.4f}; {:.4f} of the {} train images", fmt::join(found.mean, " "),
                                        fmt::join(found.std, " "), of));
    }
  }
  say_line("normalized by",
           fmt::format("{:.4f}; {:.4f}, ImageNet's", fmt::join(info.mean, " "), fmt::join(info.std, " ")));
}

/// Says how long the stages of a training image take, and how many images the loader makes.
void say_times(train::Recipe recipe, const std::shared_ptr<const data::Dataset>& dataset) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  constexpr Seconds kLongest(2);  // of each measurement
  const data::DatasetInfo& info = dataset->info();
  const data::Transform transform(info, train::train_transform(recipe));
  const int64_t size = recipe.image_size;
  const Tensor shown = empty({transform.options().channels, size, size});
  data::Image image;
  int64_t images = 0;
  Seconds loading{};
  Seconds transforming{};
  for (const auto begin = Clock::now(); Clock::now() - begin < kLongest; ++images) {
    const int64_t index = images * 7919 % info.size;  // a prime number, so that classes take turns
    const data::AugmentationKey key{.seed = recipe.seed, .epoch = 0, .index = index};
    data::Rectangle window;
    const auto start = Clock::now();
    transform.load(*dataset, index, key, image, window);
    const auto loaded = Clock::now();
    transform.apply(image, key, shown.data<float>(), {size * size, size, 1}, &window);
    loading += loaded - start;
    transforming += Clock::now() - loaded;
  }
  const auto milliseconds = [&](Seconds total) { return 1e3 * total.count() / static_cast<double>(images); };
  say_line("an image", fmt::format("{:.3g} ms to load, {:.3g} ms to augment and resize, on one core",
                                   milliseconds(loading), milliseconds(transforming)));
  recipe.batch_size = std::min(recipe.batch_size, info.size);
  recipe.images = 0;
  recipe.epochs = train::ranges::kEpochs.high;
  std::vector<std::string> rates;
  for (const int workers : std::set<int>{1, static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))}) {
    data::Loader loader = train::make_train_loader(recipe, dataset, workers);
    loader.next();  // the workers have begun
    const auto begin = Clock::now();
    int64_t made = 0;
    while (Clock::now() - begin < kLongest) {
      made += loader.next()->images.size(0);
    }
    rates.push_back(fmt::format("{:.0f} images/s with --workers {}",
                                static_cast<double>(made) / Seconds(Clock::now() - begin).count(), workers));
  }
  say_line("loader", fmt::format("{}", fmt::join(rates, ", ")));
}

int run(const State& state) {
  const std::filesystem::path file = state.show;
  if (!file.empty()) {
    train::check_new("data", "--show", file);
  }
  const train::Recipe recipe = state.recipe.applied_to(state.recipe.defaults());
  train::check_recipe(recipe);
  const int64_t most = std::max<int64_t>(1, kMaxPixels / (recipe.image_size * recipe.image_size));
  check(file.empty() || state.count <= most, "data", "--count: expected at most {} images of {} x {}, got {}", most,
        recipe.image_size, recipe.image_size, state.count);
  const auto training = train::make_dataset(recipe, data::Split::train);
  const auto test = train::make_dataset(recipe, data::Split::test);
  const data::DatasetInfo& info = training->info();
  say_line("dataset", info.name);
  say_line("training", fmt::format("{} images{}", info.size, info.endless ? " an epoch, new ones in each" : ""));
  say_line("test", fmt::format("{} images", test->info().size));
  say_line("sizes", fmt::format("{}, {} channel{}",
                                info.height == 0 ? "of many kinds" : fmt::format("{} x {}", info.height, info.width),
                                info.channels, info.channels == 1 ? "" : "s"));
  say_line("classes", fmt::format("{}: {}", info.num_classes(), excerpt_list(info.class_names)));
  if (const std::string text = train::empty_classes_text(test->info()); !text.empty()) {
    say_line("", text);
  }
  if (info.height == 0) {
    say_what_files_hold(recipe, info);
  } else {
    say_line("mean, std", fmt::format("{:.4f}; {:.4f}", fmt::join(info.mean, " "), fmt::join(info.std, " ")));
  }
  say_line("augmentation", train::augmentation_text(recipe));
  if (!file.empty()) {
    const std::vector<data::Image> images = training_images(state, recipe, training);
    data::write_png(file, data::contact_sheet(images, {.least_side = 64}));
    say_line("picture", fmt::format("{}: {} training images of epoch {}", state.show, images.size(), state.epoch));
  }
  if (state.time) {
    say_times(recipe, training);
  }
  return kSuccess;
}

}  // namespace

Command add_data(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "data");
  auto state = std::make_shared<State>();
  add_path(app, "--show", state->show, "write a PNG: the first training images of an epoch, augmented and mixed",
           {.value = "FILE", .otherwise = "none"});
  add_value(app, "--count", kCount, state->count, "images in it", {.value = "N", .otherwise = "64"});
  add_value(app, "--epoch", {0, train::ranges::kEpochs.high - 1}, state->epoch, "of this epoch, from 0",
            {.value = "N", .otherwise = "0"});
  add_switch(app, "--time", state->time, "measure for some seconds how long an image takes, and what the loader makes");
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::data, Part::shape, Part::augmentation, Part::seed});
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
