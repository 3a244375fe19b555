#pragma once

#include "data/safetensors.h"

#include <filesystem>
#include <map>
#include <string>

namespace norma::data {

// Files of tensors in the format of their name: .npy and .npz of NumPy, else safetensors.

/// Reads a whole file; its tensors lie on the CPU. A .npy file has one tensor, named "input". The metadata of a .npz
/// file are those that write_tensor_file() has put into the archive's comment. Throws Error as load_safetensors() and
/// tensor_of_npy() do.
Safetensors read_tensor_file(const std::filesystem::path& file);

/// Writes a file, whole or not at all. A .npy file takes one tensor, and keeps neither its name nor metadata. Throws
/// Error as save_safetensors(), for another number of tensors in a .npy file, for metadata of more than 65,535 bytes in
/// a .npz file, and for bfloat16 in files of NumPy.
void write_tensor_file(const std::filesystem::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace norma::data
