#include "cli/options.h"

#include "core/error.h"
#include "core/parallel.h"
#include "nn/cast_policy.h"
#include "nn/conv_factory.h"
#include "nn/norm_factory.h"
#include "nn/norm_policy.h"
#include "train/environment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace norma::cli {

namespace {

constexpr const char* kNetwork = "Network";
constexpr const char* kImages = "Images";
constexpr const char* kOptimisation = "Optimisation";
constexpr const char* kRunning = "Running";

std::string or_list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

}  // namespace

std::string describe_norm_specs() {
  return fmt::format(
      "{}; group:8 is 8 groups, group/8 is 8 channels per group; options in brackets: batch[momentum=0.01,eps=1e-3]",
      fmt::join(nn::norm_names(), ", "));
}

std::string describe_conv_layers() {
  return fmt::format("the convolutions: {}", or_list(nn::conv_layer_names()));
}

CLI::Validator norm_given() {
  return {[](const std::string& text) { return std::string(text.empty() ? "expected a norm, got an empty text" : ""); },
          ""};
}

template <class T>
CLI::Option* RecipeOptions::add(CLI::App& app, const std::string& name, T train::Recipe::*field,
                                const std::string& type, const std::string& description,
                                const std::string& default_text) {
  const std::string shown = default_text.empty() ? fmt::format("{}", defaults_.*field) : default_text;
  const auto note = [edits = edits_, field](const T& value) {
    edits->push_back([field, value](train::Recipe& recipe) { recipe.*field = value; });
  };
  return app.add_option_function<T>(name, note, description)
      ->type_name(type)
      ->default_str(shown)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

template <class T>
CLI::Option* RecipeOptions::add(CLI::App& app, const std::string& name, std::optional<T> train::Recipe::*field,
                                const std::string& type, const std::string& description,
                                const std::string& default_text) {
  const auto note = [edits = edits_, field](const T& value) {
    edits->push_back([field, value](train::Recipe& recipe) { recipe.*field = value; });
  };
  return app.add_option_function<T>(name, note, description)
      ->type_name(type)
      ->default_str(default_text)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

CLI::Option* RecipeOptions::add_switch(CLI::App& app, const std::string& names, bool train::Recipe::*field,
                                       const std::string& description) {
  const std::function<void(int64_t)> note = [edits = edits_, field](int64_t count) {
    edits->push_back([field, on = count > 0](train::Recipe& recipe) { recipe.*field = on; });
  };
  const std::string shown = names.find('!') == std::string::npos ? "" : defaults_.*field ? " [on]" : " [off]";
  return app.add_flag_function(names, note, description + shown);
}

void RecipeOptions::add_model(CLI::App& app) {
  add(app, "--model", &train::Recipe::model, "NAME",
      "resnet18 … resnet152, convnext_atto … convnext_xlarge, convnextv2_atto … convnextv2_huge")
      ->group(kNetwork);
  add(app, "--norm", &train::Recipe::norm, "SPEC", describe_norm_specs(), "the model's own")
      ->check(norm_given())
      ->group(kNetwork);
}

void RecipeOptions::add_model_details(CLI::App& app) {
  add_norm_policy(app);
  add(app, "--conv-layer", &train::Recipe::conv_layer, "NAME", describe_conv_layers())->group(kNetwork);
  add_switch(app, "--small-stem,!--no-small-stem", &train::Recipe::small_stem,
             "ResNet: begin with a 3x3 convolution without stride and pooling, for small images")
      ->group(kNetwork);
  add(app, "--patch-size", &train::Recipe::patch_size, "P", "ConvNeXt: size and stride of the first convolution",
      "2 for images below 64 pixels, else 4")
      ->group(kNetwork);
  add(app, "--layer-scale", &train::Recipe::layer_scale, "X",
      "ConvNeXt: start value of each block's scale; 0 leaves it out", "1e-6")
      ->group(kNetwork);
  add_switch(app, "--zero-init-last,!--no-zero-init-last", &train::Recipe::zero_init_last,
             "ResNet: start the last norm of each block at 0")
      ->group(kNetwork);
  add(app, "--drop-path", &train::Recipe::drop_path, "RATE", "chance of leaving out the last block (stochastic depth)")
      ->group(kNetwork);
}

void RecipeOptions::add_norm_policy(CLI::App& app) {
  const auto note = [edits = edits_](const std::string& file) {
    edits->push_back([file](train::Recipe& recipe) {
      recipe.norm_policy = nn::read_norm_policy(file);
      recipe.norm_policy_file = file;
      nn::parse_norm_policy(recipe.norm_policy, file);
    });
  };
  app.add_option_function<std::string>("--norm-policy", note,
                                       "other norms for some layers: a file of lines \"layer4.*\" = \"group:32\"")
      ->type_name("FILE.toml")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(kNetwork);
}

void RecipeOptions::add_data(CLI::App& app) {
  add(app, "--dataset", &train::Recipe::dataset, "NAME",
      "fashion_mnist; idx (any folder with IDX files, with --data-dir); shapes (generated, needs no files)")
      ->group(kImages);
  add(app, "--data-dir", &train::Recipe::data_dir, "FOLDER", "where the dataset's files are",
      "where its package puts them")
      ->group(kImages);
  add_image_shape(app);
  add(app, "--test-images", &train::Recipe::test_images, "N", "evaluate on the first N test images", "0: all of them")
      ->group(kImages);
}

void RecipeOptions::add_image_shape(CLI::App& app) {
  add(app, "--img-size", &train::Recipe::image_size, "N", "height and width; smaller images are padded")
      ->group(kImages);
  add(app, "-b,--batch-size", &train::Recipe::batch_size, "N", "images per step")->group(kImages);
  add_switch(app, "--channels-last,!--no-channels-last", &train::Recipe::channels_last,
             "keep activations in the order N, H, W, C")
      ->group(kImages);
}

void RecipeOptions::add_training_data(CLI::App& app) {
  // Before --images, which counts where both are given.
  app.add_option_function<int64_t>(
         "--epochs",
         [edits = edits_](const int64_t& epochs) {
           edits->push_back([epochs](train::Recipe& recipe) {
             recipe.epochs = epochs;
             recipe.images = 0;
           });
         },
         "length of the training in passes over the images")
      ->type_name("N")
      ->default_str(defaults_.images > 0 ? "see --images" : fmt::format("{}", defaults_.epochs))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(kImages);
  add(app, "--images", &train::Recipe::images, "N", "length of the training in images, instead of --epochs",
      defaults_.images > 0 ? "" : "0: see --epochs")
      ->group(kImages);
  add_switch(app, "--flip,!--no-flip", &train::Recipe::flip, "mirror training images, by chance")->group(kImages);
  add(app, "--random-crop", &train::Recipe::crop_padding, "N", "shift training images by up to N pixels, by chance")
      ->group(kImages);
}

void RecipeOptions::add_update(CLI::App& app) {
  add(app, "--opt", &train::Recipe::opt, "NAME", or_list(train::optimizer_names()))->group(kOptimisation);
  add(app, "--weight-decay", &train::Recipe::weight_decay, "X", "not applied to norms and biases")
      ->group(kOptimisation);
  add(app, "--momentum", &train::Recipe::momentum, "X",
      "of sgd; beta1 of adamw; --sched onecycle moves it between 0.85 and 0.95")
      ->group(kOptimisation);
  add(app, "--smoothing", &train::Recipe::smoothing, "X", "label smoothing")->group(kOptimisation);
  add(app, "--clip-grad", &train::Recipe::clip_grad, "X", "largest norm of all gradients together", "0: not clipped")
      ->group(kOptimisation);
}

void RecipeOptions::add_optimisation(CLI::App& app) {
  add_update(app);
  add(app, "--lr", &train::Recipe::lr, "X", "learning rate at its highest")->group(kOptimisation);
  add(app, "--sched", &train::Recipe::sched, "NAME", or_list(train::schedule_names()) + ": how the learning rate moves")
      ->group(kOptimisation);
  add(app, "--warmup-epochs", &train::Recipe::warmup_epochs, "X", "the learning rate rises for so long",
      "0; onecycle: 30 % of the run")
      ->group(kOptimisation);
  add(app, "--decay-epochs", &train::Recipe::decay_epochs, "X", "sched step: epochs between two decays")
      ->group(kOptimisation);
  add(app, "--decay-rate", &train::Recipe::decay_rate, "X", "sched step: factor of each decay")->group(kOptimisation);
}

void RecipeOptions::add_seed(CLI::App& app) {
  add(app, "--seed", &train::Recipe::seed, "N", "of start values, image order and dropping; same seed, same bits")
      ->group(kOptimisation);
}

void RecipeOptions::add_precision(CLI::App& app, const std::vector<std::string>& names) {
  add(app, "--precision", &train::Recipe::precision, "NAME", or_list(names) + "; amp: float32 parameters, autocast ops")
      ->group(kRunning);
  const auto note = [edits = edits_](const std::string& file) {
    edits->push_back([file](train::Recipe& recipe) {
      recipe.cast_policy = nn::read_cast_policy(file);
      recipe.cast_policy_file = file;
      nn::parse_cast_policy(recipe.cast_policy, file);
    });
  };
  app.add_option_function<std::string>("--cast-policy", note,
                                       "amp: what ops compute in, a file of lines \"batch_norm\" = \"float32\"; rules: "
                                       "lower, float32, keep")
      ->type_name("FILE.toml")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(kRunning);
}

void print_if_slow(const train::Precision& precision) {
  const std::string text = train::slow_precision_text(precision);
  if (!text.empty()) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
}

void RunOptions::add_threads(CLI::App& app) {
  app.add_option("--threads", threads, "threads for computing")
      ->type_name("N")
      ->default_str("0: one per core")
      ->group(kRunning);
}

void RunOptions::add_workers(CLI::App& app) {
  app.add_option("-j,--workers", workers, "background threads that prepare images")
      ->type_name("N")
      ->capture_default_str()
      ->group(kRunning);
}

void RunOptions::add_display(CLI::App& app) {
  app.add_option("--log-interval", log_interval, "steps between two lines of the log")
      ->type_name("N")
      ->capture_default_str()
      ->group(kRunning);
  app.add_flag("--quiet", quiet, "show no progress")->group(kRunning);
}

void RunOptions::add_all(CLI::App& app) {
  add_threads(app);
  add_workers(app);
  add_display(app);
}

void RunOptions::apply() const {
  check(workers >= 0, "workers", "expected at least 0, got {}", workers);
  check(threads >= 0, "threads", "expected at least 0, got {}", threads);
  check(log_interval >= 1, "log-interval", "expected at least 1, got {}", log_interval);
  if (threads > 0) {
    set_num_threads(threads);
  }
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth <= 0) {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

std::vector<std::string> split_lists(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const std::string& text : texts) {
    const std::vector<std::string> some = split_list(text);
    items.insert(items.end(), some.begin(), some.end());
  }
  return items;
}

std::string new_run_folder(const std::string& kind) {
  const std::string base = "runs/" + kind + "-" + train::local_time(/* compact= */ true);
  std::string folder = base;
  for (int i = 2; std::filesystem::exists(folder); ++i) {
    folder = fmt::format("{}-{}", base, i);
  }
  return folder;
}

}  // namespace norma::cli
