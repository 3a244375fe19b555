#include "cli/command.h"
#include "core/device_functions.h"
#include "core/simd/target.h"
#include "data/dataset.h"
#include "lab/report/report.h"
#include "models/registry.h"
#include "nn/norm/factory.h"
#include "ops/conv/conv.h"
#include "ops/half/bfloat16.h"
#include "session/environment.h"
#include "session/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/Version.hpp>

namespace norma::cli {

namespace {

void info_line(std::string_view name, const std::string& value) {
  train::say("{:<18}{}\n", name, value);
}

/// The norms with their options as they are typed: "group:G group/C".
std::string norm_texts() {
  std::vector<std::string> texts;
  for (const std::string& name : nn::norm_names()) {
    texts.push_back(name);
    if (nn::norm_definition(name).takes_groups) {
      texts.push_back(name + ":G");
      texts.push_back(name + "/C");
    }
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

int print_info() {
  const train::Environment e = train::environment();
  info_line("norma", e.norma);
  info_line("devices", fmt::format("{}", fmt::join(e.devices, " ")));
  for (const auto& [name, text] : cuda_facts()) {
    if (name.starts_with("cuda")) {  // the others are among the libraries
      info_line(name, text);
    }
  }
  if (device_functions.emulated != nullptr) {
    info_line("for tests",
              fmt::format("{}: memory that nobody but kernels may touch. The kernels of CUDA, run by the host; "
                          "those of the CPU for convolutions and matrix products",
                          to_string(kCudaEmulated)));
  }
  info_line("cpu", fmt::format("{}, {} cores, {}", e.cpu, e.cores, lab::format_bytes(e.memory)));
  info_line("threads", std::to_string(e.threads));
  info_line("instruction sets", fmt::format("{}", fmt::join(e.instruction_sets, " ")));
  info_line("kernels", fmt::format("for {}, of {}", simd::target(), fmt::join(simd::available_targets(), ", ")));
  info_line("build", fmt::format("{}, {}", e.compiler, e.build));
  info_line("system", e.system);
  for (const auto& [name, version] : e.libraries) {
    info_line(name, version);
  }
  info_line("CLI11", CLI11_VERSION);
  info_line("bfloat16", bfloat16_text());
  info_line("convolutions", fmt::format("{}", fmt::join(conv2d_implementations(), " ")));
  info_line("models", fmt::format("{}", fmt::join(models::model_names(), " ")));
  info_line("norms", norm_texts());
  info_line("datasets", "");
  for (const std::string& name : data::dataset_names()) {
    train::say("  {:<16}{}\n", name, data::dataset_description(name));
  }
  return kSuccess;
}

}  // namespace

Command add_info(CLI::App& program) {
  return {&add_subcommand(program, "info"), print_info};
}

}  // namespace norma::cli
