#pragma once

#include "cli/options.h"
#include "nn/plugin.h"
#include "train/checkpoint.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// A checkpoint's record of its run.
struct Trained {
  train::Recipe recipe;
  std::vector<std::string> class_names;
  std::vector<nn::PluginRecord> plugins = {};
  std::string normalization = {};  ///< as train::normalization_text(); "": unknown
  bool of_run = true;              ///< false: a file of weights alone
};

/// The recipe with what the command line says. A network's own name, as vit_tiny, leaves timm's name of it in the
/// record, which says a size of patches.
train::Recipe recipe_for(const Trained& trained, const RecipeOptions& options);

/// Warns of a network with another norm, or norm of queries and keys, than that of the run whose weights it
/// gets.
void warn_of_other_norm(std::string_view op, const Trained& trained, const train::Recipe& recipe);

/// Adds --use-ema and --weights-prefix, which say what of a file the weights are.
void add_weights_options(CLI::App& app, train::WeightsOptions& options);

/// The file that `given` names, or the newest checkpoint of a run where it is a folder. Warns of half-written ones.
std::filesystem::path checkpoint_file(std::string_view op, const std::filesystem::path& given);

/// The record of a checkpoint; the defaults of `options` for a file of weights alone. That one says nothing of its
/// network, so `names_model` must be true: the command line has --model. Throws Error otherwise.
Trained trained_in(const std::filesystem::path& file, std::string_view op, const RecipeOptions& options,
                   bool names_model);

}  // namespace norma::cli
