// Loads photographs of a folder with the augmentation of ConvNeXt's recipe, through the loader that training uses, and
// prints one line of JSON. jpeg_loading.py makes the folder and runs it beside torchvision and Pillow.

#include <norma/norma.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

namespace {

struct Options {
  std::string folder;
  int workers = 2;
  int64_t batch = 64;
  int64_t images = 2048;
  std::string decode = "exact";
};

/// The settings of recipes/convnext_tiny.toml.
norma::train::Recipe recipe_of(const Options& options) {
  norma::train::Recipe recipe;
  recipe.dataset = "imagefolder";
  recipe.data_dir = options.folder;
  recipe.decode = options.decode;
  recipe.image_size = 224;
  recipe.train_interpolation = "bicubic";
  recipe.scale = {0.08, 1};
  recipe.hflip = 0.5;
  recipe.aa = "rand-m9-mstd0.5-inc1";
  recipe.reprob = 0.25;
  recipe.remode = "pixel";
  recipe.mixup = 0.8;
  recipe.cutmix = 1;
  recipe.batch_size = options.batch;
  recipe.images = options.images;
  return recipe;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Loads photographs with ConvNeXt's augmentation and prints one line of JSON.");
  app.add_option("folder", options.folder, "with train/CLASS/FILE.jpg")->required();
  app.add_option("-j,--workers", options.workers)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("-b,--batch-size", options.batch)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--images", options.images)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--decode", options.decode)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    const norma::train::Recipe recipe = recipe_of(options);
    norma::train::check_recipe(recipe);
    const auto dataset = norma::train::make_dataset(recipe, norma::data::Split::train);
    const auto start = std::chrono::steady_clock::now();
    norma::data::Loader loader = norma::train::make_train_loader(recipe, dataset, options.workers);
    int64_t images = 0;
    double sum = 0;  // so that the images are looked at
    while (const std::optional<norma::data::Batch> batch = loader.next()) {
      images += batch->images.size(0);
      sum += batch->images.data<float>()[0];
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const nlohmann::ordered_json line = {{"program", "norma " + std::string(norma::version())},
                                         {"images", images},
                                         {"seconds", taken.count()},
                                         {"sum", sum}};
    std::printf("%s\n", line.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "jpeg_loading: %s\n", e.what());
    return 1;
  }
}
