#pragma once

#include "nn/module.h"
#include "train/checkpoint.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace norma::train {

/// Loads the model's tensors from a checkpoint, or any other safetensors file, into `model`, a network named `name`.
/// Throws Error "weights: FILE: …" when they do not fit: with the file's own network, the number of names that differ,
/// and the first of them.
void load_model_weights(nn::Module& model, const std::string& name, const std::filesystem::path& file,
                        Weights which = Weights::model);

/// The same with `tensors`, which are made of the file's, `in_file`.
void load_tensors(nn::Module& model, const std::string& name, const std::filesystem::path& file,
                  const nn::NamedTensors& tensors, const nn::NamedTensors& in_file);

/// The SHA-256 of a tensor's elements in row-major order, in its dtype and this machine's byte order.
std::string sha256_of(const Tensor& x);

/// Throws Error "op: where: tensor 'fc.weight': expected finite numbers, got 3 that are NaN or infinite" for the first
/// tensor that is not finite.
void check_finite(std::string_view op, std::string_view where, const nn::NamedTensors& tensors);

}  // namespace norma::train
