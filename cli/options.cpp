#include "cli/options.h"

#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/plugins.h"
#include "core/error.h"
#include "core/parallel.h"
#include "nn/cast_policy.h"
#include "nn/conv_factory.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"
#include "nn/plugin.h"
#include "train/augmentation.h"
#include "train/environment.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/ranges.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace norma::cli {

namespace {

constexpr const char* kNetwork = "Network";
constexpr const char* kImages = "Images";
constexpr const char* kRunning = "Running";

}  // namespace

std::string or_list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

std::string describe_norm_specs() {
  return fmt::format(
      "{}; group:8 is 8 groups, group/8 is 8 channels per group; options in brackets: batch[momentum=0.01,eps=1e-3]",
      fmt::join(nn::norm_names(), ", "));
}

std::string describe_conv_layers() {
  return fmt::format("the convolutions: {}", or_list(nn::conv_layer_names()));
}

Option RecipeOptions::add(CLI::App& app, const std::string& name, std::string train::Recipe::*field,
                          const std::string& what, const std::string& type, const std::string& description,
                          const std::string& default_text) {
  const auto take = [this, field](const std::string& text) { note(field, text); };
  note_config(
      name, [field](const train::Recipe& recipe) { return (recipe.*field).empty() ? "" : toml_string(recipe.*field); });
  return add_text(app, name, what, take, description)
      .type_name(type)
      .default_str(default_text.empty() ? defaults_.*field : default_text);
}

Option RecipeOptions::add_or_none(CLI::App& app, const std::string& name, std::string train::Recipe::*field,
                                  const std::string& what, const std::string& type, const std::string& description) {
  const auto take = [this, field](const std::string& text) { note(field, text == kNone ? std::string() : text); };
  note_config(
      name, [field](const train::Recipe& recipe) { return (recipe.*field).empty() ? "" : toml_string(recipe.*field); });
  return add_text(app, name, what + ", or none", take, description).type_name(type).default_str(kNone);
}

Option RecipeOptions::add_flag(CLI::App& app, const std::string& names, bool train::Recipe::*field,
                               const std::string& description) {
  const std::string shown = names.find('!') == std::string::npos ? "" : defaults_.*field ? " [on]" : " [off]";
  note_config(names, [field](const train::Recipe& recipe) { return recipe.*field ? "true" : "false"; });
  return add_switch(
      app, names, [this, field](bool on) { note(field, on); }, description + shown);
}

void RecipeOptions::note_config(const std::string& names, std::function<std::string(const train::Recipe&)> text) {
  const size_t start = names.find("--") + 2;
  config_.emplace_back(names.substr(start, names.find(',', start) - start), std::move(text));
}

std::string RecipeOptions::config_text(const train::Recipe& recipe) const {
  std::string lines;
  for (const auto& [name, text] : config_) {
    const std::string value = text(recipe);
    lines += value.empty() ? "" : fmt::format("{} = {}\n", name, value);
  }
  return lines;
}

std::vector<std::string> RecipeOptions::changes(const train::Recipe& before, const train::Recipe& after) const {
  std::vector<std::string> lines;
  for (const auto& [name, text] : config_) {
    const auto shown = [&, &text = text](const train::Recipe& recipe) {
      const std::string value = text(recipe);
      return value.empty() ? kNone : value;
    };
    if (shown(before) != shown(after)) {
      lines.push_back(fmt::format("{} {} → {}", name, shown(before), shown(after)));
    }
  }
  return lines;
}

void RecipeOptions::add_model(CLI::App& app) {
  add(app, "--model", &train::Recipe::model, "a name", "NAME",
      "resnet18 … resnet152, convnext_atto … convnext_xlarge, convnextv2_atto … convnextv2_huge")
      .group(kNetwork);
  add(app, "--norm", &train::Recipe::norm, "a norm", "SPEC", describe_norm_specs(), "the model's own").group(kNetwork);
}

void RecipeOptions::add_model_details(CLI::App& app) {
  add_norm_policy(app);
  add(app, "--conv-layer", &train::Recipe::conv_layer, "a name", "NAME", describe_conv_layers()).group(kNetwork);
  add_flag(app, "--small-stem,!--no-small-stem", &train::Recipe::small_stem,
           "ResNet: begin with a 3x3 convolution without stride and pooling, for small images")
      .group(kNetwork);
  add(app, "--patch-size", &train::Recipe::patch_size, train::ranges::kPatchSize, "P",
      "ConvNeXt: size and stride of the first convolution", "2 for images below 64 pixels, else 4")
      .group(kNetwork);
  add(app, "--layer-scale", &train::Recipe::layer_scale, train::ranges::kLayerScale, "X",
      "ConvNeXt: start value of each block's scale; 0 leaves it out", "1e-6")
      .group(kNetwork);
  add_flag(app, "--zero-init-last,!--no-zero-init-last", &train::Recipe::zero_init_last,
           "ResNet: start the last norm of each block at 0")
      .group(kNetwork);
  add(app, "--drop-path", &train::Recipe::drop_path, train::ranges::kDropPath, "RATE",
      "chance of leaving out the last block (stochastic depth)")
      .group(kNetwork);
}

void RecipeOptions::add_norm_policy(CLI::App& app) {
  const auto note = [edits = edits_](const std::string& file) {
    edits->push_back([file](train::Recipe& recipe) {
      if (file == kNone) {
        recipe.norm_policy.clear();
        recipe.norm_policy_file.clear();
        return;
      }
      recipe.norm_policy = nn::read_norm_policy(file);
      recipe.norm_policy_file = file;
      nn::parse_norm_policy(recipe.norm_policy, file);
    });
  };
  note_config("--norm-policy", [](const train::Recipe& recipe) {
    return recipe.norm_policy.empty() ? "" : toml_string(recipe.norm_policy_file);
  });
  add_text(app, "--norm-policy", "a path, or none", note,
           "other norms for some layers: a file of lines \"layer4.*\" = \"group:32\"")
      .type_name("FILE.toml")
      .default_str(kNone)
      .group(kNetwork);
}

void RecipeOptions::add_data(CLI::App& app) {
  const std::string datasets =
      "fashion_mnist; shapes (generated, needs no files); with --data-dir: imagefolder (JPEG, PNG, … in train/CLASS "
      "and "
      "val/CLASS), cifar10, cifar100, emnist_letters, idx (any folder with IDX files)";
  if (axes_ != nullptr) {
    add_list(app, "--data,--dataset,--datasets", "a name", axes_->datasets, datasets)
        .type_name("LIST")
        .default_str(defaults_.dataset)
        .group(kImages);
  } else {
    add(app, "--dataset", &train::Recipe::dataset, "a name", "NAME", datasets).group(kImages);
  }
  add(app, "--data-dir", &train::Recipe::data_dir, "a path", "FOLDER", "where the dataset's files are",
      "where its package puts them")
      .group(kImages);
  add_flag(app, "--skip-bad-images,!--no-skip-bad-images", &train::Recipe::skip_bad_images,
           "imagefolder: where an image cannot be decoded, take the next one")
      .group(kImages);
  add_image_shape(app);
  add(app, "--test-images", &train::Recipe::test_images, train::ranges::kImages, "N",
      "evaluate on the first N test images (imagefolder: on N of them)", "0: all of them")
      .group(kImages);
  add(app, "--interpolation", &train::Recipe::interpolation, "a name", "NAME",
      or_list(train::interpolation_names()) + ": of test images that are resized")
      .group(kImages);
  add(app, "--crop-pct", &train::Recipe::crop_pct, data::kCropPct, "X",
      "images that are resized keep this part of their side, in the middle")
      .group(kImages);
}

void RecipeOptions::add_image_shape(CLI::App& app) {
  add(app, "--img-size", &train::Recipe::image_size, train::ranges::kImageSize, "N",
      "height and width; smaller images are padded, larger ones resized")
      .group(kImages);
  if (axes_ != nullptr) {
    add_values(app, "-b,--batch-size,--batch-sizes", train::ranges::kBatchSize, axes_->batch_sizes, "images per step")
        .type_name("LIST")
        .default_str(fmt::format("{}", defaults_.batch_size))
        .group(kImages);
    add_formats(app);
    return;
  }
  add(app, "-b,--batch-size", &train::Recipe::batch_size, train::ranges::kBatchSize, "N", "images per step")
      .group(kImages);
  add_flag(app, "--channels-last,!--no-channels-last", &train::Recipe::channels_last,
           "keep activations in the order N, H, W, C")
      .group(kImages);
}

void RecipeOptions::add_formats(CLI::App& app) {
  const auto take = [axes = axes_](const std::string& name) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      if (to_string(format) == name) {
        axes->formats.push_back(format);
        return true;
      }
    }
    return false;
  };
  add_items(
      app, "--format,--formats", "contiguous or channels_last", [axes = axes_] { axes->formats.clear(); }, take,
      "order of activations in memory: contiguous is N, C, H, W; channels_last is N, H, W, C")
      .type_name("LIST")
      .default_str(defaults_.channels_last ? "channels_last" : "contiguous")
      .group(kImages);
  add_switch(
      app, "--channels-last,!--no-channels-last",
      [axes = axes_](bool on) { axes->formats = {on ? MemoryFormat::channels_last : MemoryFormat::contiguous}; },
      "short for --format channels_last")
      .group(kImages);
  exclude(app, {"--formats", "--channels-last"});
}

void RecipeOptions::add_training_data(CLI::App& app) {
  const auto note_epochs = [this](int64_t epochs) {
    note(&train::Recipe::epochs, epochs);
    note(&train::Recipe::images, int64_t{0});
  };
  note_config("--epochs",
              [](const train::Recipe& recipe) { return recipe.images > 0 ? "" : fmt::format("{}", recipe.epochs); });
  add_value<int64_t>(app, "--epochs", train::ranges::kEpochs, note_epochs,
                     "length of the training in passes over the images")
      .type_name("N")
      .default_str(defaults_.images > 0 ? "see --images" : fmt::format("{}", defaults_.epochs))
      .group(kImages);
  add(app, "--images", &train::Recipe::images, train::ranges::kImages, "N",
      "length of the training in images, instead of --epochs", defaults_.images > 0 ? "" : "0: see --epochs")
      .group(kImages);
  config_.back().second = [](const train::Recipe& recipe) {
    return recipe.images > 0 ? fmt::format("{}", recipe.images) : "";
  };
  exclude(app, {"--epochs", "--images"});
  add_augmentation(app);
}

void RecipeOptions::add_precision(CLI::App& app) {
  const std::string description =
      or_list(train::precision_names()) +
      "; tf32: float32 products with fewer digits, on CUDA; amp: float32 parameters, autocast ops";
  if (axes_ != nullptr) {
    add_list(app, "--precision,--precisions", "a name", axes_->precisions, description)
        .type_name("LIST")
        .default_str(defaults_.precision)
        .group(kRunning);
  } else {
    add(app, "--precision", &train::Recipe::precision, "a name", "NAME", description).group(kRunning);
  }
  const auto note = [edits = edits_](const std::string& file) {
    edits->push_back([file](train::Recipe& recipe) {
      if (file == kNone) {
        recipe.cast_policy.clear();
        recipe.cast_policy_file.clear();
        return;
      }
      recipe.cast_policy = nn::read_cast_policy(file);
      recipe.cast_policy_file = file;
      nn::parse_cast_policy(recipe.cast_policy, file);
    });
  };
  note_config("--cast-policy", [](const train::Recipe& recipe) {
    return recipe.cast_policy.empty() ? "" : toml_string(recipe.cast_policy_file);
  });
  add_text(app, "--cast-policy", "a path, or none", note,
           "amp: what ops compute in, a file of lines \"batch_norm\" = \"float32\"; rules: lower, float32, keep")
      .type_name("FILE.toml")
      .default_str(kNone)
      .group(kRunning);
  const auto casts = std::make_shared<std::vector<std::string>>();
  const auto forget_casts = [edits = edits_, casts] {
    casts->clear();
    edits->push_back([casts](train::Recipe& recipe) { recipe.cast = *casts; });
  };
  const auto take_cast = [casts](const std::string& text) {
    if (text == "none") {
      return casts->empty();
    }
    CastPolicy policy;
    nn::set_cast(policy, text);
    casts->push_back(text);
    return true;
  };
  note_config("--cast", [](const train::Recipe& recipe) {
    std::string list;
    for (const std::string& cast : recipe.cast) {
      list += (list.empty() ? "" : ", ") + toml_string(cast);
    }
    return list.empty() ? list : "[" + list + "]";
  });
  add_items(app, "--cast", "OP=RULE", forget_casts, take_cast,
            "changes of that policy: layer_norm_2d=float32,linear=keep")
      .type_name("LIST")
      .default_str("none")
      .group(kRunning);
}

void print_precision_note(const train::Precision& precision) {
  const std::string text = train::precision_note(precision, default_device());
  if (!text.empty()) {
    train::say("{}\n", text);
  }
}

void RunOptions::add_threads(CLI::App& app) {
  add_value<int64_t>(
      app, "--threads", train::ranges::kThreads, [this](int64_t n) { threads = n; }, "threads for computing")
      .type_name("N")
      .default_str("0: one per core")
      .group(kRunning);
}

void RunOptions::add_device(CLI::App& app) {
  add_text(app, "--device", "a name", device, "where it is computed: cpu, cuda, or cuda-emulated, which is for tests")
      .type_name("DEVICE")
      .default_str("cpu, or NORMA_DEVICE")
      .group(kRunning);
}

void RunOptions::add_plugin(CLI::App& app) {
  add_list(app, "--plugin", "the name of a file", plugins, "shared libraries with norms of your own (docs/plugins.md)")
      .type_name("FILE")
      .group(kNetwork);
}

std::string RunOptions::plugin_words() {
  std::string files;
  for (const nn::PluginRecord& plugin : nn::loaded_plugins()) {
    files += (files.empty() ? " --plugin " : ",") + plugin.file;
  }
  return files;
}

std::string RunOptions::config_text() const {
  const RunOptions defaults;
  std::string text;
  for (const auto& [name, field] : {std::pair("threads", &RunOptions::threads),
                                    {"workers", &RunOptions::workers},
                                    {"log-interval", &RunOptions::log_interval}}) {
    text += this->*field != defaults.*field ? fmt::format("{} = {}\n", name, this->*field) : "";
  }
  text += device.empty() ? "" : fmt::format("device = {}\n", toml_string(device));
  std::string files;
  for (const nn::PluginRecord& plugin : nn::loaded_plugins()) {
    files += (files.empty() ? "" : ", ") + toml_string(recorded_word(plugin));
  }
  return text + (files.empty() ? "" : fmt::format("plugin = [{}]\n", files));
}

void RunOptions::add_workers(CLI::App& app) {
  add_value<int64_t>(
      app, "-j,--workers", train::ranges::kWorkers, [this](int64_t n) { workers = n; },
      "background threads that prepare images")
      .type_name("N")
      .default_str(fmt::format("{}", workers))
      .group(kRunning);
}

void RunOptions::add_display(CLI::App& app) {
  add_value<int64_t>(
      app, "--log-interval", train::ranges::kLogInterval, [this](int64_t n) { log_interval = n; },
      "steps between two lines of the log")
      .type_name("N")
      .default_str(fmt::format("{}", log_interval))
      .group(kRunning);
  add_quiet(app);
}

void RunOptions::add_quiet(CLI::App& app) {
  add_switch(app, "--quiet", quiet, "show no progress").group(kRunning);
}

void RunOptions::add_all(CLI::App& app) {
  add_threads(app);
  add_device(app);
  add_workers(app);
  add_display(app);
}

void RunOptions::apply(std::string_view command) const {
  if (!device.empty()) {
    check_available(command, device_from_string(device));
    set_default_device(device_from_string(device));
  }
  if (threads > 0) {
    set_num_threads(static_cast<int>(threads));
  }
  check_range("threads", "OMP_NUM_THREADS", num_threads(), train::ranges::kThreads);
  // The runtime behind parallel loops ends the program when it does not get a thread, with a text of its own.
  {
    std::mutex until_all_are_there;
    std::vector<std::jthread> trial;
    try {
      const std::lock_guard lock(until_all_are_there);
      for (int i = 1; i < num_threads(); ++i) {
        trial.emplace_back([&] { const std::lock_guard wait(until_all_are_there); });
      }
    } catch (const std::system_error& error) {
      fail("threads", "the system gives {} of {}: {}", trial.size() + 1, num_threads(), error.code().message());
    }
  }
  // It takes its threads now, before other memory takes the room for their stacks, and keeps them.
  parallel_for(0, num_threads(), 1, [](int64_t, int64_t) {});
}

int interrupted_code() {
  const int signal = train::interrupting_signal();
  return signal == SIGPIPE ? kFailure : 128 + signal;
}

std::string new_run_folder(const std::string& kind) {
  const std::string base = "runs/" + kind + "-" + train::local_time(/* compact= */ true);
  std::string folder = base;
  for (int i = 2; train::path_exists("output", folder); ++i) {
    folder = fmt::format("{}-{}", base, i);
  }
  return folder;
}

}  // namespace norma::cli
