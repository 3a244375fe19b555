#pragma once

#include "nn/norm/factory.h"

#include <optional>
#include <string>

namespace norma::exporter {

/// A norm in the words of Python. All but `call` may be empty.
struct PythonNorm {
  std::string call;        ///< makes the layer for `channels`
  std::string import;      ///< a line
  std::string definition;  ///< of a class
  std::string note;        ///< what is another norm in training
  bool drops_bias = false;
};

/// A norm whose choice has all options (models::complete_norm()); none for one that neither PyTorch, torchvision nor
/// timm has. Throws Error for an option that changes evaluation and has no counterpart there.
std::optional<PythonNorm> python_norm(const nn::NormChoice& norm);

}  // namespace norma::exporter
