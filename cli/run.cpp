#include "cli/command.h"
#include "cli/options.h"
#include "core/factory.h"
#include "core/tape.h"
#include "data/tensor_file.h"
#include "models/registry.h"
#include "nn/norm/factory.h"
#include "ops/shape/copy.h"
#include "session/output.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <optional>

namespace norma::cli {

namespace {

constexpr const char* kResultKey = "norma_run";  // in the metadata of what is written

struct State {
  RecipeOptions recipe{{}};
  int64_t num_classes = models::ModelOptions{}.num_classes;
  int64_t in_channels = models::ModelOptions{}.in_channels;
  std::optional<int64_t> patch_size;
  std::string weights;
  train::WeightsOptions of_file;
  std::string input;
  std::string output;
  bool train = false;
  bool backward = false;
  bool channels_last = false;
  RunOptions running;
};

/// A tensor of the input file, converted, on the default device. Throws Error when it is not there or has other than
/// four (two) axes.
Tensor take(const data::Safetensors& file, const std::string& path, const std::string& name, int64_t rank,
            DType dtype) {
  const Tensor x = file.find(name);
  check(x.defined(), "run", "input: expected a tensor '{}' in '{}', got none", name, path);
  check_rank("run", name, x, rank);
  return to(to(x, dtype), default_device()).detach();
}

/// Refuses to write over what this command reads, and over what it has not written.
void check_output(const State& state) {
  train::check_other_file("run", "--output", state.output, "--weights", state.weights);
  train::check_other_file("run", "--output", state.output, "--input", state.input);
  std::error_code error;
  if (std::filesystem::exists(state.output, error)) {
    bool is_former = false;
    try {
      is_former = data::read_tensor_file(state.output).metadata.contains(kResultKey);
    } catch (const Error&) {  // of another format
    }
    check(is_former, "run", "--output: '{}' {}: remove it, or choose another name", state.output,
          state.output.ends_with(".npy") ? "is there, and a .npy file does not say what wrote it"
                                         : "is not a result of 'norma run'");
  }
}

int run(const State& state) {
  state.running.apply("run");
  check_output(state);
  check(!state.output.ends_with(".npy") || (!state.backward && !state.train), "run",
        "--output: expected a .npz or .safetensors file for several results, got '{}'", state.output);
  const train::Recipe recipe = state.recipe.applied_to({});
  const train::Precision precision = train::precision_of(recipe);
  const DType dtype = precision.dtype;
  print_precision_note(precision);
  const MemoryFormat format = state.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;

  const data::Safetensors file = data::read_tensor_file(state.input);
  const Tensor images = take(file, state.input, "input", 4, dtype);
  models::ModelOptions options = train::model_options(recipe);
  options.image_size = images.size(2);
  options.num_classes = state.num_classes;
  options.in_channels = state.in_channels;
  options.patch_size = state.patch_size;
  options.initialize = false;
  const auto model = models::create_model(recipe.model, options);
  if (nn::has_lazy_norms()) {
    nn::make_lazy_parameters(*model, images.sizes());
  }
  train::convert_model(*model, precision);  // before the weights arrive, so that float64 ones keep all their digits
  model->to(format);
  train::WeightsOptions of_file = state.of_file;
  of_file.model = recipe.model;
  const train::LoadedWeights weights = train::load_weights(state.weights, of_file);
  if (const std::string line = train::load_model_weights("run", *model, recipe, state.weights, weights);
      !line.empty()) {
    train::say("{}\n", line);
  }
  model->train(state.train);

  Tensor input = to(images, format).detach();
  check(input.size(1) == state.in_channels, "run", "input: expected sizes [N, {}, H, W], got {}", state.in_channels,
        to_string(input.sizes()));
  Tensor grad_output;
  if (state.backward) {
    grad_output = take(file, state.input, "grad_output", 2, dtype);
    check_sizes("run", "grad_output", grad_output, {input.size(0), state.num_classes});
    input.set_requires_grad();
  }

  const std::optional<NoGradGuard> no_grad = state.backward ? std::nullopt : std::optional<NoGradGuard>(std::in_place);
  const Tf32Guard tf32(precision.tf32);  // backward too
  Tensor output;
  {
    const train::PrecisionScope scope(precision);
    output = (*model)(input);
  }
  data::NamedTensors result = {{"output", output.detach()}};
  if (state.backward) {
    backward(output, to(grad_output, output.dtype()));
    result.emplace_back("grad.input", input.grad());
    for (const auto& [name, parameter] : model->named_parameters()) {
      result.emplace_back("grad." + name, parameter.grad().defined() ? parameter.grad() : zeros_like(parameter));
    }
  }
  if (state.train) {
    for (const auto& [name, buffer] : model->named_buffers()) {
      if (is_floating(buffer.dtype())) {  // num_batches_tracked is no statistic
        result.emplace_back("buffer." + name, buffer);
      }
    }
  }
  for (auto& [name, x] : result) {
    x = to(x.detach(), compute_dtype(x.dtype()));
  }
  data::write_tensor_file(state.output, result, {{kResultKey, "1"}});
  return kSuccess;
}

}  // namespace

Command add_run(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "run");
  auto state = std::make_shared<State>();
  const auto add_size = [&](const std::string& name, const Range<int64_t>& range, auto& size, const std::string& type,
                            const std::string& shown, const std::string& description) {
    add_value(app, name, range, size, description, {.value = type, .otherwise = shown});
  };
  add_size("--num-classes", train::ranges::kClasses, state->num_classes, "K", std::to_string(state->num_classes),
           "length of the output");
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::model, Part::network, Part::precision}, {"patch-size", "zero-init-last", "drop-path"});
  option_of(app, "--model").require();
  add_path(app, "--weights", state->weights, "state dict", {.value = "W.safetensors", .required = true});
  add_weights_options(app, state->of_file);
  add_path(app, "--input", state->input, "input and output gradient", {.value = "X.safetensors", .required = true});
  add_path(app, "--output", state->output, "where the results go", {.value = "Y.safetensors", .required = true});
  add_switch(app, "--train", state->train, "training mode: batch statistics");
  add_switch(app, "--backward", state->backward, "also compute all gradients");
  add_switch(app, "--channels-last", state->channels_last, "keep activations in the order N, H, W, C");
  add_size("--in-chans", train::ranges::kChannels, state->in_channels, "C", std::to_string(state->in_channels),
           "channels of the input");
  add_size("--patch-size", {1, 1024}, state->patch_size, "P", "4; ViT: 16",
           "ConvNeXt, ViT: size and stride of the first convolution");
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
