#include "cli/command.h"
#include "cli/option.h"
#include "core/error.h"
#include "core/nearest_name.h"
#include "data/safetensors.h"
#include "models/registry.h"
#include "models/state_dict_names.h"
#include "train/checkpoint.h"
#include "train/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace norma::cli {

namespace {

struct State {
  std::vector<std::string> inputs;
  std::string from;
  std::string to;
  std::string output;
  bool use_ema = false;
};

models::Dialect dialect_of(const std::string& option, const std::string& text) {
  const std::vector<std::string> names = models::dialect_names();
  const auto found = std::find(names.begin(), names.end(), text);
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
  const models::Dialect from = dialect_of("--from", state.from);
  const models::Dialect to = dialect_of("--to", state.to);
  // Only the weights of a checkpoint are converted: its metadata on the run uses Norma's names.
  const bool is_checkpoint = train::is_checkpoint(input);
  const models::Renamed renamed = models::rename_state_dict(
      train::load_weights(input, state.use_ema ? train::Weights::ema : train::Weights::model), from, to);
  data::save_safetensors(output, renamed.tensors,
                         is_checkpoint ? std::map<std::string, std::string>() : train::weights_metadata(input));
  for (const auto& [before, after] : renamed.changed) {
    train::say("{} → {}\n", before, after);
  }
  for (const std::string& text : renamed.reshaped) {
    train::say("{}\n", text);
  }
  for (const std::string& name : renamed.dropped) {
    train::say("{}: left out\n", name);
  }
  train::say("{} tensors, {} renamed, {} with other sizes: {}\n", renamed.tensors.size(), renamed.changed.size(),
             renamed.reshaped.size(), state.output);
  return kSuccess;
}

}  // namespace

Command add_convert(CLI::App& program) {
  CLI::App& app = add_subcommand(
      program, "convert", "Weights of a ConvNeXt or ResNet under the names of another library",
      "Examples:\n"
      "  norma convert convnext_tiny.safetensors --from torchvision --to timm --output timm.safetensors\n"
      "  norma convert resnet50-0676ba61.pth --from torchvision --to timm --output resnet50.safetensors\n"
      "  norma convert runs/convnext/last.safetensors --from timm --to facebook --output facebook.safetensors\n"
      "Norma's own names are timm's for ConvNeXt and torchvision's, which are also timm's, for ResNet. The wrappers\n"
      "module., model. and _orig_mod. before all names are taken off.");
  auto state = std::make_shared<State>();
  add_words(app, "FILE", state->inputs, "weights (safetensors, or .pth of PyTorch), or a checkpoint");
  add_text(app, "--from", "a name", state->from, "whose names they have: torchvision, timm or facebook")
      .type_name("NAME")
      .required();
  add_text(app, "--to", "a name", state->to, "whose names they get").type_name("NAME").required();
  add_switch(app, "--use-ema", state->use_ema, "the averaged weights in the file");
  add_path(app, "--output", state->output, "the file to write").type_name("FILE.safetensors").required();
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
