// Runs one step of a network for each line on standard input and prints its seconds, so that a script can let programs
// take turns step by step. peers.py runs it beside PyTorch. Under mpirun, processes share each batch, and the first of
// them reads and prints.

#include "cli/spin_briefly.h"
#include "lab/bench/step.h"
#include "parallel/process_group.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

namespace {

/// Whether standard input, the first process's, has another line.
bool is_told(norma::parallel::ProcessGroup* group) {
  std::string line;
  bool told = (group == nullptr || group->rank() == 0) && std::getline(std::cin, line);
  if (group != nullptr) {
    told = !group->all_gather_text(told ? "step" : "").front().empty();
  }
  return told;
}

}  // namespace

int main(int argc, char** argv) {
  norma::spin_briefly(argv);
  namespace bench = norma::lab::bench;
  bench::StepOptions options{.recipe = {.model = "resnet50",
                                        .image_size = 224,
                                        .batch_size = 8,
                                        .channels_last = false,
                                        .lr = 1e-4,
                                        .weight_decay = 0.05}};
  norma::train::Recipe& recipe = options.recipe;
  std::string mode = "train";
  CLI::App app("Does one step of a network for each line on standard input and prints its seconds.");
  app.add_option("--model", recipe.model)->capture_default_str();
  app.add_option("--norm", recipe.norm, "norm spec; the model's own by default");
  app.add_option("--bench", mode)->capture_default_str()->check(CLI::IsMember({"train", "infer"}));
  app.add_option("-b,--batch-size", recipe.batch_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--img-size", recipe.image_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--patch-size", recipe.patch_size)->check(CLI::PositiveNumber);
  app.add_option("--precision", recipe.precision)->capture_default_str();
  app.add_flag("--channels-last", recipe.channels_last);
  app.add_flag("--fold", options.fold, "inference: fold batch norms into the convolutions before them");
  app.add_flag("--grad-checkpointing", recipe.grad_checkpointing, "training: blocks are computed again in backward");
  app.add_flag("--recompute-norms", recipe.recompute_norms, "training: norms are computed again in backward");
  CLI11_PARSE(app, argc, argv);
  options.mode = mode == "train" ? bench::Mode::train : bench::Mode::infer;
  try {
    constexpr double kLongestTurn = 3600;  // seconds, of the others
    if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
      options.group = norma::parallel::make_mpi_group({.timeout = kLongestTurn});
    }
    bench::Step step(options);
    while (is_told(options.group.get())) {
      const double seconds = step.run().total();
      if (options.group == nullptr || options.group->rank() == 0) {
        fmt::print("{}\n", seconds);
        std::fflush(stdout);
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "turns: %s\n", e.what());
    return 1;
  }
}
