#include "base/error.h"
#include "base/excerpt.h"
#include "cli/export.h"
#include "cli/python.h"
#include "data/safetensors.h"
#include "ops/shape/copy.h"
#include "session/output.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <string>
#include <system_error>

namespace norma::cli {

namespace {

constexpr const char* kProgramName = "network.py";

}  // namespace

void write_torch(const ExportedNetwork& network, const std::filesystem::path& folder, TorchLibrary library,
                 bool checked) {
  const Tensor exact = exact_output(network);
  const double limit = error_limit(output_error(network.output, exact));
  const TorchNetwork torch = export_torch(network.recipe.model, train::model_options(network.recipe),
                                          network.model->state_dict(), library, limit, network.about);
  // It becomes the folder at the end, so that a killed export leaves nothing that the next one refuses.
  const std::filesystem::path whole = folder.has_filename() ? folder : folder.parent_path();
  std::filesystem::path partial = whole;
  partial += ".partial";
  const auto status = std::filesystem::symlink_status(partial);
  if (!std::filesystem::is_directory(status) ||
      !train::holds_only(partial, {"weights.safetensors", "example.safetensors", kProgramName})) {
    train::check_new("export", "--output", partial);
  }
  const ScratchFolder scratch("export", partial);
  std::map<std::string, std::string> metadata{{"format", "pt"}, {"norma.recipe", to_toml(network.recipe)}};
  for (const auto& [name, text] : network.about) {
    metadata["norma." + name] = text;
  }
  data::save_safetensors(partial / "weights.safetensors", torch.weights, metadata);
  data::save_safetensors(partial / "example.safetensors",
                         {{"input", network.example}, {"output", to(exact, DType::float32)}}, {{"format", "pt"}});
  train::write_text_file("export", partial / kProgramName, torch.program);
  const std::string program = train::shown(folder / kProgramName);
  std::string said = program + " compares PyTorch with Norma";
  PythonRun ran;
  if (checked) {
    ran = run_python("export", {(partial / kProgramName).string()});
    said = ran.out;
  }
  std::error_code error;
  std::filesystem::rename(partial, whole, error);  // nothing, or empty
  check(!error, "export", "cannot make the folder {}: {}", folder.string(), error.message());
  const size_t line = ran.err.rfind('\n') + 1;  // 0 where there is one line; the last one has the reason
  check(ran.code == 0, "export", "--check: expected {} to end without an error, got: {}", program,
        excerpt(ran.code == 127 ? "there is no Python" : ran.err.substr(line)));
  train::say("{}: weights.safetensors, example.safetensors, {}; {}\n", train::shown(folder), kProgramName, said);
}

}  // namespace norma::cli
