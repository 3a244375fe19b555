#pragma once

#include "core/autocast.h"
#include "core/device.h"
#include "core/parallel.h"
#include "core/tf32.h"
#include "nn/module.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// The dtypes of a network's computation.
struct Precision {
  std::string name = "float32";
  DType dtype = DType::float32;        ///< of parameters and input
  std::optional<DType> autocast = {};  ///< the dtype that ops convert to (core/autocast.h); none: they do not
  CastPolicy policy = {};              ///< the ops that convert; counts with autocast only
  bool tf32 = false;                   ///< float32 products on CUDA may go through TF32 (core/tf32.h)

  /// True iff gradients are float16, so that they need a nn::GradScaler.
  [[nodiscard]] bool scales_gradients() const { return autocast.value_or(dtype) == DType::float16; }
};

/// The names: "float32", "tf32", "float64", "bfloat16", "float16", "amp_bfloat16", "amp_float16".
std::vector<std::string> precision_names();

/// The precision of a name. bfloat16 and float16: parameters and input in that dtype; optimizers keep float32 master
/// weights, and statistics stay float32. amp_bfloat16, amp_float16: parameters and input in float32, ops convert. tf32:
/// float32, but convolutions and matrix products on CUDA may use TF32. `cast_policy` is the text of nn/cast_policy.h,
/// "" for the default; `source` names its file in messages. Throws Error for an unknown name, for a policy without
/// autocast, and for a policy that cannot be read.
Precision parse_precision(const std::string& name, std::string_view cast_policy = "", const std::string& source = "");

/// Converts the parameters, with float64 also the buffers, in place: other handles on them see it.
void convert_model(nn::Module& model, const Precision& precision);
/// A network's input in the dtype of the network.
Tensor convert_input(const Tensor& images, const Precision& precision);

/// Sets autocast while it lives, if the precision has it, and whether TF32 is allowed, and takes subnormal numbers for
/// 0. Put it around forward and loss: backward of ops that ran under autocast needs none. But TF32 must be set for
/// backward, too, by a Tf32Guard of its own, and subnormal numbers cost time there without a FlushDenormalGuard.
/// `casts` keeps converted parameters for the next scope, and must outlive this; null: they end with it.
class PrecisionScope {
 public:
  explicit PrecisionScope(const Precision& precision, CastCache* casts = nullptr);

 private:
  Tf32Guard tf32_;
  FlushDenormalGuard flush_denormal_;
  std::optional<Autocast> autocast_;
};

/// A line for people if the precision is slow on a device, or is not what its name says there; else "".
std::string precision_note(const Precision& precision, Device device);

}  // namespace norma::train
