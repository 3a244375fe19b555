#pragma once

#include "core/tensor.h"
#include "export/onnx.h"

#include <optional>
#include <string>

namespace norma::cli {

/// What onnxruntime makes of an ONNX file.
struct OnnxRuntimeResult {
  Tensor output;
  std::string version;  ///< "onnxruntime 1.23.0"
};

/// Runs a model with one input and one output by onnxruntime for Python (NORMA_PYTHON, or
/// python3 in PATH), which it starts as a process of its own. The output has the dtype of `input`. Returns nothing
/// where Python or onnxruntime is not installed. Throws Error with onnxruntime's words where it refuses the model.
std::optional<OnnxRuntimeResult> run_onnxruntime(const OnnxModel& model, const Tensor& input,
                                                 const Sizes& output_sizes);

}  // namespace norma::cli
