#include "cli/export.h"
#include "cli/python.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "data/atomic_file.h"
#include "data/safetensors.h"
#include "ops/shape/copy.h"
#include "train/output.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <string>
#include <system_error>

namespace norma::cli {

namespace {

constexpr const char* kProgramName = "network.py";

void write_text(const std::filesystem::path& file, const std::string& text) {
  data::AtomicFile written("export", file);
  written.write(text.data(), text.size());
  written.commit();
}

/// What PyTorch says to the program. Throws Error where it does not compute the same.
std::string checked_by_pytorch(const std::filesystem::path& folder) {
  const PythonRun ran = run_python("export", {(folder / kProgramName).string()});
  const size_t line = ran.err.rfind('\n') + 1;  // 0 where there is one line; the last one has the reason
  check(ran.code == 0, "export", "--check: expected {} to end without an error, got: {}",
        (folder / kProgramName).string(), excerpt(ran.code == 127 ? "there is no Python" : ran.err.substr(line)));
  return ran.out;
}

}  // namespace

void write_torch(const ExportedNetwork& network, const std::filesystem::path& folder, TorchLibrary library,
                 bool checked) {
  const Tensor exact = exact_output(network);
  const double limit = error_limit(output_error(network.output, exact));
  const TorchNetwork torch = export_torch(network.recipe.model, train::model_options(network.recipe),
                                          network.model->state_dict(), library, limit, network.about);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "export", "cannot make the folder {}: {}", folder.string(), error.message());
  std::map<std::string, std::string> metadata{{"format", "pt"}, {"norma.recipe", to_toml(network.recipe)}};
  for (const auto& [name, text] : network.about) {
    metadata["norma." + name] = text;
  }
  data::save_safetensors(folder / "weights.safetensors", torch.weights, metadata);
  data::save_safetensors(folder / "example.safetensors",
                         {{"input", network.example}, {"output", to(exact, DType::float32)}}, {{"format", "pt"}});
  write_text(folder / kProgramName, torch.program);
  const std::string said = checked ? checked_by_pytorch(folder)
                                   : fmt::format("{} compares PyTorch with Norma", (folder / kProgramName).string());
  train::say("{}: weights.safetensors, example.safetensors, {}; {}\n", folder.string(), kProgramName, said);
}

}  // namespace norma::cli
