#pragma once

#include "core/tensor.h"
#include "export/torch.h"
#include "nn/module.h"
#include "train/recipe.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace norma::cli {

/// A network that is to be exported: on the CPU, float32, in evaluation.
struct ExportedNetwork {
  train::Recipe recipe;
  std::shared_ptr<nn::Module> model;
  Tensor example;  ///< an input
  Tensor output;   ///< of the example
  /// What a program needs beside the network: "image_size", "class_names" and "normalization" as JSON.
  std::map<std::string, std::string> about = {};
};

/// How far an output a is from the expected one, b.
struct OutputError {
  double largest = 0;  ///< |a - b| as a share of the largest |b|
  double rms = 0;      ///< root mean square of a - b, as a share of that of b
};
OutputError output_error(const Tensor& found, const Tensor& expected);
/// The largest `rms` of another library that float32's rounding explains, from Norma's own. Convolutions of another
/// library add up in another order, which costs no more digits than ours.
double error_limit(const OutputError& own);

/// The output of the example, computed in float64.
Tensor exact_output(const ExportedNetwork& network);

/// Makes the folder of `norma export --format torch`, whole or not at all. `checked`: PyTorch must compute the same;
/// where it does not, the folder stays for a look at it.
void write_torch(const ExportedNetwork& network, const std::filesystem::path& folder, TorchLibrary library,
                 bool checked);

}  // namespace norma::cli
