#pragma once

#include "nn/norm/factory.h"

#include <optional>
#include <string>

namespace norma::exporter {

/// A norm in the words of Python. All but `call` may be empty.
struct PythonNorm {
  std::string call;         ///< makes the layer for `channels`
  std::string import;       ///< a line that imports what `call` names
  std::string definition;   ///< of a class that `call` names
  std::string note;         ///< the norm's name, if PyTorch's layer is the same in evaluation alone
  bool drops_bias = false;  ///< the layer's bias is to be removed
};

/// A norm whose choice has all options (models::complete_norm()); none for one that neither PyTorch, torchvision nor
/// timm has. Throws Error for an option that changes evaluation and has no counterpart there.
std::optional<PythonNorm> python_norm(const nn::NormChoice& norm);

}  // namespace norma::exporter
