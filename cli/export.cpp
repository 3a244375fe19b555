#include "cli/export.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/onnxruntime.h"
#include "cli/options.h"
#include "cli/plugins.h"
#include "cli/trained.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/random.h"
#include "core/tape.h"
#include "data/atomic_file.h"
#include "data/json.h"
#include "export/onnx.h"
#include "export/torch.h"
#include "models/registry.h"
#include "nn/norm/convert.h"
#include "ops/shape/copy.h"
#include "session/output.h"
#include "session/trainer.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace norma::cli {

namespace {

struct State {
  RecipeOptions recipe{{}};
  RunOptions running;
  std::string checkpoint;
  std::string output;
  Option model;
  Option opset_option;
  bool torch = false;
  std::optional<TorchLibrary> library = {};  ///< none: timm
  int64_t num_classes = models::ModelOptions{}.num_classes;
  int64_t opset = OnnxOptions{}.opset;
  int64_t batch_size = 1;
  bool dynamic_batch = false;
  bool external_data = false;
  bool fold = false;
  train::WeightsOptions weights;
  bool check = false;
};

/// The recipe gets what the file says of the network.
std::shared_ptr<nn::Module> make_network(const State& state, train::Recipe& recipe, const Trained& trained,
                                         const std::filesystem::path& file) {
  const int64_t classes =
      trained.class_names.empty() ? state.num_classes : static_cast<int64_t>(trained.class_names.size());
  const bool channels_last = std::exchange(recipe.channels_last, false);
  const auto model = train::load_network("export", recipe, classes, file, state.weights,
                                         [](const std::string& line) { train::say("{}\n", line); });
  recipe.channels_last = channels_last;
  model->eval();
  return model;
}

void check_options(const State& state) {
  const std::filesystem::path output = state.output;
  check(state.torch || output.extension() == ".onnx", "export", "--output: expected a name *.onnx, got '{}'",
        state.output);
  train::check_new("export", "--output", output);
  check(!state.torch || !(state.fold || state.dynamic_batch || state.external_data || state.opset_option.given()),
        "export", "--fold, --dynamic-batch, --external-data, --opset: expected --format onnx, got torch");
  check(state.torch || !state.library, "export", "--library: expected --format torch, got onnx");
}

/// True iff the weights are so large that one file, of less than 2 GiB, may not hold them.
bool needs_data_file(const nn::Module& model) {
  constexpr double kLargest = 2e9;  // the rest is for nodes, names and what is computed from weights
  double bytes = 0;
  for (const auto& [name, x] : model.state_dict()) {
    bytes += bytes_of(x);
  }
  return bytes > kLargest;
}

/// Writes the file, and a second one for large weights. Where onnxruntime is installed, it checks what is written.
void write_onnx(const State& state, const ExportedNetwork& network) {
  const std::filesystem::path output = state.output;
  data::AtomicFile written("export", output);  // before the work, which would be lost
  OnnxOptions options{.opset = state.opset, .dynamic_batch = state.dynamic_batch};
  std::optional<data::AtomicFile> data;
  if (state.external_data || needs_data_file(*network.model)) {
    options.data_file = output.filename().string() + ".data";
    const std::filesystem::path file = output.parent_path() / options.data_file;
    train::check_new("export", "--output", file);
    data.emplace("export", file);
  }
  OnnxModel model = export_onnx(*network.model, network.example, options);
  add_metadata(model, "norma.recipe", to_toml(network.recipe));
  for (const auto& [name, text] : network.about) {
    add_metadata(model, "norma." + name, text);
  }
  const std::optional<OnnxRuntimeResult> other = run_onnxruntime(model, network.example, network.output.sizes());
  check(other.has_value() || !state.check, "export",
        "--check: expected onnxruntime for Python, got none; install it with: pip install onnxruntime");
  std::string compared = "onnxruntime for Python is not installed, which would check it";
  if (other) {
    const Tensor exact = exact_output(network);
    const OutputError theirs = output_error(other->output, exact);
    const OutputError own = output_error(network.output, exact);
    check(!state.check || theirs.rms <= error_limit(own), "export",
          "--check: expected an error of at most {:.2g}, from float32's rounding, got {:.2g} (root mean squares, as a "
          "share of the output's)",
          error_limit(own), theirs.rms);
    compared = fmt::format("{}: largest error {:.2g} of the largest output, Norma's {:.2g}", other->version,
                           theirs.largest, own.largest);
    add_metadata(model, "norma.largest_error", compared);
  }
  if (!model.data_file.empty()) {
    data->write(model.data.data(), model.data.size());
  }
  written.write(model.bytes.data(), model.bytes.size());
  if (!model.data_file.empty()) {  // first, so that the other never stands there without it
    data->commit();
  }
  written.commit();
  train::say("{}: {:.1f} MB{}, opset {}; {}\n", train::shown(output), static_cast<double>(model.bytes.size()) / 1e6,
             model.data_file.empty() ? ""
                                     : fmt::format(", {}: {:.1f} MB", train::shown(model.data_file),
                                                   static_cast<double>(model.data.size()) / 1e6),
             state.opset, compared);
}

int run(const State& state) {
  state.running.apply("export");
  set_default_device(kCpu);  // the file is the same for every device
  check_options(state);
  const std::filesystem::path file = checkpoint_file("export", state.checkpoint);
  const Trained trained = trained_in(file, "export", state.recipe, state.model.given());
  train::Recipe recipe = recipe_for(trained, state.recipe);
  check_norms_are_loaded("export", {recipe.norm, recipe.qk_norm}, trained.plugins, "checkpoint", state.checkpoint);
  warn_of_other_norm("export", trained, recipe);
  train::check_recipe(recipe, /* with_weights= */ true);
  Generator generator(0);
  const int64_t size = recipe.image_size;
  const auto model = make_network(state, recipe, trained, file);
  ExportedNetwork network{.recipe = recipe,
                          .model = model,
                          .example = randn({state.batch_size, 3, size, size}, {.device = kCpu}, generator),
                          .output = {}};
  network.about = {
      {"image_size", std::to_string(size)},
      {"class_names", trained.class_names.empty() ? "" : data::json_text(nlohmann::json(trained.class_names))},
      {"normalization", trained.normalization}};
  std::erase_if(network.about, [](const auto& text) { return text.second.empty(); });
  const NoGradGuard no_grad;
  if (state.fold) {
    const int64_t folded = nn::fold_batch_norm(*network.model, network.example);
    train::say("{} batch norms are folded into the convolutions before them\n", folded);
  }
  network.output = (*network.model)(network.example);
  if (state.torch) {
    write_torch(network, state.output, state.library.value_or(TorchLibrary::timm), state.check);
  } else {
    write_onnx(state, network);
  }
  return kSuccess;
}

}  // namespace

OutputError output_error(const Tensor& found, const Tensor& expected) {
  const std::vector<double> a = found.to_vector<double>();
  const std::vector<double> b = expected.to_vector<double>();
  double difference = 0;
  double size = 0;
  double squares = 0;
  double all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]);
    difference = std::isfinite(distance) ? std::max(difference, distance) : INFINITY;
    size = std::max(size, std::abs(b[i]));
    squares += distance * distance;
    all += b[i] * b[i];
  }
  return {.largest = difference / size, .rms = std::sqrt(squares / all)};
}

double error_limit(const OutputError& own) {
  constexpr double kTimes = 4;
  constexpr double kFloat32 = 0x1p-20;  // of small networks, where Norma may have hardly any error
  return kTimes * own.rms + kFloat32;
}

Tensor exact_output(const ExportedNetwork& network) {
  network.model->to(DType::float64);
  const Tensor output = (*network.model)(to(network.example, DType::float64));
  network.model->to(DType::float32);  // the weights have the same bits again
  return output;
}

Command add_export(CLI::App& program) {
  CLI::App& app = add_subcommand(
      program, "export", "A trained network as an ONNX file or for PyTorch",
      "Examples:\n"
      "  norma export --checkpoint runs/mine --output mine.onnx\n"
      "  norma export --checkpoint runs/mine --fold --dynamic-batch --check --output mine.onnx\n"
      "  norma export --checkpoint weights.safetensors --model resnet50 --img-size 224 --output resnet50.onnx\n"
      "  norma export --checkpoint runs/mine --format torch --output mine\n"
      "  norma export --checkpoint runs/mine --format torch --library torchvision --check --output mine\n"
      "A checkpoint of 'norma train' knows its network; a file of weights alone needs --model. Where onnxruntime for\n"
      "Python is installed, an ONNX file is run once, and its largest error stands in its metadata. --format torch "
      "makes\n"
      "a folder: weights, an example, and network.py, which builds the network with timm or torchvision and compares "
      "it\n"
      "with Norma.");
  auto state = std::make_shared<State>();
  add_path(app, "--checkpoint", state->checkpoint, "the file, or the folder of a run for its newest one")
      .type_name("PATH")
      .required();
  add_path(app, "-o,--output", state->output, "the file to write; the folder, for torch").type_name("PATH").required();
  add_item(
      app, "--format", "onnx or torch",
      [s = state.get()](const std::string& text) {
        s->torch = text == "torch";
        return s->torch || text == "onnx";
      },
      "onnx or torch: what is written")
      .type_name("NAME")
      .default_str("onnx")
      .choices({"onnx", "torch"});
  add_item(
      app, "--library", "timm or torchvision",
      [s = state.get()](const std::string& text) {
        s->library = text == "timm" ? TorchLibrary::timm : TorchLibrary::torchvision;
        return text == to_string(*s->library);
      },
      "for torch: timm or torchvision, which builds the network")
      .type_name("NAME")
      .default_str(to_string(TorchLibrary::timm))
      .choices({"timm", "torchvision"});
  state->opset_option = add_value(app, "--opset", {.low = 18, .high = 21}, state->opset,
                                  "version of ONNX's ops; from 20 on gelu, from 21 on group norm are ops of their own")
                            .type_name("N")
                            .default_str(std::to_string(state->opset));
  add_value(app, "-b,--batch-size", train::ranges::kSteps, state->batch_size, "images of an input")
      .type_name("N")
      .default_str("1");
  add_switch(app, "--dynamic-batch", state->dynamic_batch, "inputs may have any number of images");
  add_switch(app, "--external-data", state->external_data,
             "weights go to a second file, OUTPUT.data, as those of 2 GB and more always do");
  add_switch(app, "--fold", state->fold, "first fold batch norms into the convolutions before them");
  add_weights_options(app, state->weights);
  add_switch(app, "--check", state->check,
             "exit with an error unless onnxruntime, or PyTorch, agrees to float32's rounding");
  add_value(app, "--num-classes", train::ranges::kClasses, state->num_classes, "classes of a file of weights alone")
      .type_name("K")
      .default_str(std::to_string(state->num_classes));
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::model, Part::network, Part::shape}, {"batch-size", "channels-last"});
  state->running.add_plugin(app);
  state->running.add(app);
  state->model = option_of(app, "--model");
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
