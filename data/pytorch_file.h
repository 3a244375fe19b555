#pragma once

#include "data/safetensors.h"

#include <filesystem>

namespace norma::data {

/// True iff a file begins as torch.save() has its files begin: a zip archive, or a pickle. Throws Error "weights: …"
/// when it cannot be read.
bool is_pytorch_file(const std::filesystem::path& file);

/// Reads what torch.save() has written: a zip archive with a pickle and the numbers, or, before PyTorch 1.6, pickles
/// with the numbers behind them. Nothing in it is executed. Tensors in dicts and lists get names with dots:
/// "state_dict.conv1.weight". They lie on the CPU, contiguous. Numbers and texts become metadata under such names; None
/// is left out. Throws Error that names the file for anything else in it ("expected tensors, dicts, lists, numbers and
/// texts, got argparse.Namespace"), for dtypes that Norma lacks, for damaged files, and for files that would take far
/// more memory than their size: tensors of more than 32 times the file's bytes, or more than 64 MiB of names and texts.
Safetensors load_pytorch_file(const std::filesystem::path& file);

}  // namespace norma::data
