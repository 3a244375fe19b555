#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"
#include "data/safetensors.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::data {

/// A zip archive that is read, by libzip. Error texts begin with "OP: FILE: ", or are those of InputFile.
class ZipArchive : NotCopied {
 public:
  /// Throws Error "OP: FILE: expected EXPECTED: …" for a file that is no zip archive.
  ZipArchive(std::string_view op, const std::filesystem::path& path, std::string_view expected);
  ~ZipArchive();

  /// The names of its files, by number. They may be any text: errors quote them through excerpt().
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// The bytes of the archive itself.
  [[nodiscard]] uint64_t size() const { return bytes_.size(); }
  /// The bytes of a file. Memory grows with what is there, not with what the archive says. Throws Error for a damaged
  /// file, and for more than `most` bytes.
  [[nodiscard]] std::string read(size_t number, uint64_t most = kMostBytes) const;
  [[nodiscard]] std::string comment() const;

 private:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 30;
  struct Handles;

  std::string op_;
  std::string file_;
  std::string bytes_;  // of the archive
  std::unique_ptr<Handles> handles_;
  std::vector<std::string> names_;
};

// Files of NumPy (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a header that says dtype,
// order and shape, then the elements. NumPy has no bfloat16.

/// x as the content of a .npy file, row-major, whatever its strides and device. Throws Error for bfloat16.
std::string npy_bytes(const Tensor& x);

/// The tensor in the content of a .npy file, on the CPU. A column-major array gets column-major strides. `file` is for
/// error texts. Throws Error "npy: FILE: …" for a damaged header, another dtype (big-endian numbers included), more
/// than 8 axes, and bytes that do not fit the shape.
Tensor tensor_of_npy(std::string_view file, std::string_view bytes);

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

// Files of PyTorch.

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
