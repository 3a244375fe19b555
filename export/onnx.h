#pragma once

#include "core/tensor.h"
#include "nn/module.h"

#include <cstdint>
#include <string>

namespace norma {

struct OnnxOptions {
  int64_t opset = 18;  ///< 18 to 23. From 20 on gelu, from 21 group norm, from 23 attention and RMS norm are ops.
  bool dynamic_batch = false;  ///< the first axis of input and output is "batch", of any size; else that of the example
  /// The name, without a folder, of a second file beside the first. Weights of 1 KiB and more lie there. "": there is
  /// one file.
  std::string data_file = {};
};

/// A network as ONNX.
struct OnnxModel {
  std::string bytes;      ///< of the file
  std::string data_file;  ///< the name of the second file, "" if there is none
  std::string data;       ///< its bytes
};

/// `module` in evaluation mode as an ONNX file, for inputs of the sizes and dtype of `example`: (N, C, H,
/// W), float32 or float64, which is also the dtype of the module. The input is called "input", the output "output", and
/// weights have their names in the state dict (those called like the input or the output end in a number). Forward
/// passes of the example and of another input show what the module does. Norms become BatchNormalization,
/// LayerNormalization, InstanceNormalization and GroupNormalization where those mean the same, and plain ops where not;
/// what does not depend on the input becomes a constant. Throws Error for an op without a counterpart in ONNX (with its
/// name), for a module of another dtype, for a module whose work depends on the input's values or, with dynamic_batch,
/// on the number of images, for a file of 2 GiB and more without a data_file, and where libonnx is not in this build.
OnnxModel export_onnx(nn::Module& module, const Tensor& example, const OnnxOptions& options = {});

/// The file keeps `text` under `name` from now on, beside what it holds. ONNX takes each name once.
void add_metadata(OnnxModel& model, const std::string& name, const std::string& text);

/// False: export_onnx() throws.
bool has_onnx();

}  // namespace norma
