#include "train/weights.h"

#include "core/copy.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/sha256.h"
#include "models/convnext.h"
#include "models/registry.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace norma::train {

namespace {

constexpr const char* kOp = "weights";

/// The network of a file: "of resnet50 with norm group:32 (by its metadata)", "of resnet50 (by its names)", or "of no
/// known network".
std::string origin_of(const nn::NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? "" : excerpt(found->second);
  };
  if (const std::string model = text("model"); !model.empty()) {
    const std::string norm = text("norm");
    return fmt::format("of {}{} (by its metadata)", model, norm.empty() ? "" : " with norm " + norm);
  }
  const std::string model = models::recognize_model(tensors);
  return model.empty() ? "of no known network" : fmt::format("of {} (by its names)", model);
}

int64_t count_not_finite(const Tensor& x) {
  const Tensor rows = copy_of(to_device(x, kCpu), MemoryFormat::contiguous);
  return dispatch_any_floating(kOp, rows.dtype(), [&]<class T>(T) {
    const T* values = rows.data<T>();
    int64_t count = 0;
    for (int64_t i = 0; i < rows.numel(); ++i) {
      count += std::isfinite(static_cast<compute_t<T>>(values[i])) ? 0 : 1;
    }
    return count;
  });
}

}  // namespace

void load_model_weights(nn::Module& model, const std::string& name, const std::filesystem::path& file, Weights which) {
  const nn::NamedTensors tensors = load_weights(file, which);
  load_tensors(model, name, file, tensors, tensors);
}

void load_tensors(nn::Module& model, const std::string& name, const std::filesystem::path& file,
                  const nn::NamedTensors& tensors, const nn::NamedTensors& in_file) {
  try {
    model.load_state_dict(tensors);
  } catch (const Error& error) {
    const auto placement = models::recognize_norm_placement(model.state_dict());
    const auto in_blocks = models::recognize_norm_placement(in_file);
    if (placement && in_blocks) {
      check(placement == in_blocks, kOp, "{}: expected weights for the norm placement {}, as of this {}, got {}",
            file.string(), nn::to_string(*placement), name, nn::to_string(*in_blocks));
    }
    fail(kOp, "{}: expected those of this {}, got a file {}: {}", file.string(), name,
         origin_of(in_file, weights_metadata(file)), error.what());
  }
}

std::string sha256_of(const Tensor& x) {
  const Tensor rows = copy_of(to_device(x.detach(), kCpu), MemoryFormat::contiguous);
  return sha256({static_cast<const char*>(rows.raw_data()), static_cast<size_t>(rows.numel()) * size_of(rows.dtype())});
}

void check_finite(std::string_view op, std::string_view where, const nn::NamedTensors& tensors) {
  for (const auto& [name, x] : tensors) {
    if (is_floating(x.dtype())) {
      const int64_t count = count_not_finite(x);
      check(count == 0, op, "{}: tensor '{}': expected finite numbers, got {} of {} that are NaN or infinite", where,
            excerpt(name), count, x.numel());
    }
  }
}

}  // namespace norma::train
