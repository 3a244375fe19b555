#include "base/error.h"
#include "base/excerpt.h"
#include "base/nearest_name.h"
#include "cli/command.h"
#include "cli/options.h"
#include "data/safetensors.h"
#include "models/state_dict_names.h"
#include "session/output.h"
#include "train/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

namespace norma::cli {

namespace {

struct State {
  std::vector<std::string> inputs;
  std::string from;
  std::string to;
  std::string output;
  train::WeightsOptions weights;
};

models::Dialect dialect_of(const std::string& option, const std::string& text) {
  const std::vector<std::string> names = models::dialect_names();
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) {
    fail("convert", "{}: {}", option, unknown_name("library", text, names));
  }
  return static_cast<models::Dialect>(found - names.begin());
}

int run(const State& state) {
  check(state.inputs.size() == 1, "convert", "expected one file, got {}", state.inputs.size());
  const std::filesystem::path input = state.inputs.front();
  const std::filesystem::path output = state.output;
  check(output.extension() == ".safetensors", "convert", "--output: expected a name *.safetensors, got '{}'",
        state.output);
  train::check_new("convert", "--output", output);
  const std::optional<models::Dialect> from =
      state.from.empty() ? std::nullopt : std::optional(dialect_of("--from", state.from));
  const models::Dialect to = dialect_of("--to", state.to);
  const train::LoadedWeights given = train::load_weights(input, state.weights);
  check(given.dialect.has_value(), "convert", "{}: expected names of a ConvNeXt, ResNet or ViT of {}, got {}",
        input.string(), fmt::join(models::dialect_names(), ", "), excerpt_list(given.in_file));
  const std::string library = models::to_string(*given.dialect);
  // A ResNet's names are the same in both.
  check(!from || state.from == library || (library == "torchvision" && state.from == "timm"), "convert",
        "--from: expected {}, whose names '{}' has, got {}", library, state.inputs.front(), state.from);
  data::NamedTensors own;
  std::vector<std::string> in_file;
  std::vector<std::string> left_out;
  for (size_t i = 0; i < given.tensors.size(); ++i) {
    if (models::is_in_network(given.tensors[i].first)) {
      own.push_back(given.tensors[i]);
      in_file.push_back(given.in_file[i]);
    } else {
      left_out.push_back(given.in_file[i]);
    }
  }
  const data::NamedTensors tensors = models::renamed(own, to);
  // Only the weights of a checkpoint are converted: its metadata on the run uses Norma's names.
  data::save_safetensors(output, tensors,
                         train::is_checkpoint(input) ? std::map<std::string, std::string>() : given.metadata);
  size_t changed = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (const std::string& name = tensors[i].first; name != in_file[i]) {
      ++changed;
      train::say("{} → {}\n", excerpt(in_file[i]), excerpt(name));
    }
  }
  train::say("{} tensors, {} renamed: {}; from {}{}{}\n", tensors.size(), changed, state.output, input.string(),
             given.text, left_out.empty() ? "" : "; not of the network, left out: " + excerpt_list(left_out));
  return kSuccess;
}

}  // namespace

Command add_convert(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "convert");
  auto state = std::make_shared<State>();
  add_words(app, "FILE", state->inputs, "weights (safetensors, or .pth of PyTorch), or a checkpoint");
  add_text(app, "--from", "a name", state->from, "whose names they have: torchvision, timm, facebook or huggingface",
           {.value = "NAME", .otherwise = "the library that has them", .choices = models::dialect_names()});
  add_text(app, "--to", "a name", state->to, "whose names they get",
           {.value = "NAME", .choices = models::dialect_names(), .required = true});
  add_weights_options(app, state->weights);
  add_path(app, "--output", state->output, "the file to write", {.value = "FILE.safetensors", .required = true});
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
