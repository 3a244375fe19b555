#include "train/precision.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/device_functions.h"
#include "nn/cast_policy.h"
#include "ops/half/bfloat16.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

namespace norma::train {

namespace {

constexpr const char* kAmpBfloat16 = "amp_bfloat16";
constexpr const char* kAmpFloat16 = "amp_float16";
constexpr const char* kTf32 = "tf32";

}  // namespace

std::vector<std::string> precision_names() {
  return {"float32", kTf32, "float64", "bfloat16", "float16", kAmpBfloat16, kAmpFloat16};
}

Precision parse_precision(const std::string& name, std::string_view cast_policy, const std::string& source) {
  const std::vector<std::string> known = precision_names();
  check(is_in(known, name), "precision", "{}", unknown_name("precision", name, known));
  Precision precision{.name = name};
  if (name == kAmpBfloat16) {
    precision.autocast = DType::bfloat16;
  } else if (name == kAmpFloat16) {
    precision.autocast = DType::float16;
  } else if (name == kTf32) {
    precision.tf32 = true;
  } else {
    precision.dtype = dtype_from_string(name);
  }
  if (!cast_policy.empty() || !source.empty()) {
    check(precision.autocast.has_value(), "precision",
          "cast-policy: expected precision {} or {}, which it is for, got {} (cast policy '{}')", kAmpBfloat16,
          kAmpFloat16, name, source);
    precision.policy = nn::parse_cast_policy(cast_policy, source);
  }
  return precision;
}

void convert_model(nn::Module& model, const Precision& precision) {
  // Running statistics are averages of small steps, which 16-bit numbers would lose.
  is_half(precision.dtype) ? model.parameters_to(precision.dtype) : model.to(precision.dtype);
}

Tensor convert_input(const Tensor& images, const Precision& precision) {
  return to(images, precision.dtype);
}

PrecisionScope::PrecisionScope(const Precision& precision, CastCache* casts) : tf32_(precision.tf32) {
  if (precision.autocast) {
    autocast_.emplace(*precision.autocast, precision.policy, casts);
  }
}

std::string precision_note(const Precision& precision, Device device) {
  if (device_functions.table("precision", device).has_tensor_cores) {
    return "";
  }
  if (precision.tf32) {
    return fmt::format("tf32 is float32 on {}: TF32 is for CUDA", to_string(device));
  }
  const DType computed = precision.autocast.value_or(precision.dtype);
  if (computed == DType::bfloat16 && !bfloat16_is_fast()) {
    return fmt::format("{} is slower than float32 here: {}", precision.name, bfloat16_text());
  }
  if (computed == DType::float16) {
    return fmt::format("{} is slower than float32 here: its products are computed through float32", precision.name);
  }
  return "";
}

}  // namespace norma::train
