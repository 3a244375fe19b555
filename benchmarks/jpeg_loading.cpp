// Loads photographs of a folder with the augmentation of ConvNeXt's recipe, through the loader that training uses, and
// prints one line of JSON. jpeg_loading.py makes the folder and runs it beside torchvision and Pillow. With --psnr it
// compares the pixels of --decode scaled and exact instead.

#include <norma/norma.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace {

struct Options {
  std::string folder;
  int workers = 2;
  int64_t batch = 64;
  int64_t images = 2048;
  std::string decode = "exact";
  bool psnr = false;
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

norma::data::Loader loader_of(const norma::train::Recipe& recipe, int workers) {
  norma::train::check_recipe(recipe);
  return norma::train::make_train_loader(recipe, norma::train::make_dataset(recipe, norma::data::Split::train),
                                         workers);
}

/// The peak signal-to-noise ratio of each image that --decode scaled changes, in decibels, the lowest first: 10 lg(1 /
/// the mean of (x - y)²) with pixels from 0 to 1. The images are cut out, resized and mirrored alone.
std::vector<double> psnr_of(const Options& options) {
  norma::train::Recipe recipe = recipe_of(options);
  recipe.aa.clear();
  recipe.reprob = recipe.mixup = recipe.cutmix = 0;
  norma::data::Loader exact = loader_of(recipe, options.workers);
  recipe.decode = "scaled";
  norma::data::Loader scaled = loader_of(recipe, options.workers);
  const auto deviations = norma::train::make_dataset(recipe, norma::data::Split::train)->info().std;
  std::vector<double> decibels;
  while (const std::optional<norma::data::Batch> batch = exact.next()) {
    const norma::data::Batch other = *scaled.next();
    const int64_t in_channel = recipe.image_size * recipe.image_size;
    const float* x = batch->images.data<float>();
    const float* y = other.images.data<float>();
    for (int64_t image = 0; image < batch->images.size(0); ++image) {
      double squares = 0;
      for (const float deviation : deviations) {
        for (int64_t i = 0; i < in_channel; ++i, ++x, ++y) {
          squares += std::pow(static_cast<double>(*x - *y) * deviation, 2);
        }
      }
      if (squares > 0) {
        decibels.push_back(-10 * std::log10(squares / static_cast<double>(in_channel * std::ssize(deviations))));
      }
    }
  }
  std::sort(decibels.begin(), decibels.end());
  return decibels;
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
  app.add_flag("--psnr", options.psnr, "compare the pixels of --decode scaled and exact");
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.psnr) {
      const std::vector<double> decibels = psnr_of(options);
      const nlohmann::ordered_json line = {{"differ", decibels.size()},
                                           {"lowest", decibels.empty() ? 0 : decibels.front()},
                                           {"median", decibels.empty() ? 0 : decibels[decibels.size() / 2]}};
      std::printf("%s\n", line.dump().c_str());
      return 0;
    }
    const auto start = std::chrono::steady_clock::now();
    norma::data::Loader loader = loader_of(recipe_of(options), options.workers);
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
