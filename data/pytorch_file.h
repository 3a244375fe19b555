#pragma once

#include "data/safetensors.h"

#include <filesystem>

namespace norma::data {

/// True iff a file begins as torch.save() has its files begin: a zip archive, or a pickle. Throws Error "weights: …"
/// when it cannot be read.
bool is_pytorch_file(const std::filesystem::path& file);

/// Reads what torch.save() has written: a zip archive with a pickle and the numbers, or, before PyTorch 1.6, pickles
/// with the numbers after them. Nothing in it is executed. Tensors in dicts and lists get names with dots:
/// "state_dict.conv1.weight". They lie on the CPU, contiguous, and share their memory where they do in the file; int8
/// and int16 become int32. Numbers and texts become metadata under such names; None is dropped. Anything else is left
/// out and named (Safetensors::left_out): "args (argparse.Namespace)", "x (torch.ComplexFloatStorage)". Throws Error
/// that names the file for a whole module and a TorchScript archive (the text says how to get weights out of it), for
/// damaged files, and for files that would take far more memory than their size.
Safetensors load_pytorch_file(const std::filesystem::path& file);

}  // namespace norma::data
