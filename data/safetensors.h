#pragma once

#include "core/tensor.h"
#include "nn/module.h"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace norma::data {

/// Tensors with their names, in a fixed order.
using NamedTensors = nn::NamedTensors;

/// The tensor with this name; undefined if there is none.
Tensor tensor_named(const NamedTensors& tensors, std::string_view name);

/// The content of a safetensors file (https://github.com/huggingface/safetensors).
struct Safetensors {
  NamedTensors tensors;                         ///< in the order in which they lie in the file, contiguous
  std::map<std::string, std::string> metadata;  ///< the texts under "__metadata__"
  std::vector<std::string> left_out = {};       ///< what has no dtype of Norma's: "scale (F8_E4M3)"

  [[nodiscard]] Tensor find(std::string_view name) const { return tensor_named(tensors, name); }
};

/// Writes tensors of any dtype, strides and device, in the file always row-major. Tensors of wide dtypes come first, so
/// that each lies aligned; otherwise the order is kept.
///
/// The file appears under its name only when all of it is on the disk. Until then it is a temporary file in the same
/// folder, which is removed on failure, and an older file of this name stays. Throws Error that names the file when it
/// cannot be written (no such folder, disk full, …), for a name that comes twice or is not UTF-8, and for an undefined
/// tensor.
void save_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Reads a whole file; its tensors lie on the CPU. Numbers of 8 and 16 bits with a sign become int32; those of the
/// format's other dtypes that Norma lacks are left out. Throws Error that names the file, and the tensor if there is
/// one, unless the header fits the file, and the data covers the rest of the file without gaps or overlaps.
Safetensors load_safetensors(const std::filesystem::path& file);

/// Writes numbers with a sign, of 1 or 2 bytes each, little-endian, as int32.
void widen_integers(std::string_view bytes, size_t element, int32_t* to);

/// The texts under "__metadata__" of such a file, read without its data. Throws Error as load_safetensors() does.
std::map<std::string, std::string> load_safetensors_metadata(const std::filesystem::path& file);

}  // namespace norma::data
