#pragma once

#include "core/autocast.h"
#include "nn/module.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// What a network computes in.
struct Precision {
  std::string name = "float32";
  DType dtype = DType::float32;        ///< of its parameters and input
  std::optional<DType> autocast = {};  ///< what ops convert to (core/autocast.h); none: they do not
  CastPolicy policy = {};              ///< which ops; counts with autocast only
};

/// "float32", "float64", "bfloat16", "float16", "amp_bfloat16".
std::vector<std::string> precision_names();
/// The same without float16, whose gradients underflow unless the loss is scaled.
std::vector<std::string> training_precision_names();

/// bfloat16 and float16: parameters and input in that dtype; optimizers keep float32 master weights, and statistics
/// stay float32. amp_bfloat16: parameters and input in float32, ops convert. `cast_policy` is the text of
/// nn/cast_policy.h, "" for the default one; `source` names its file in messages. Throws Error for an unknown name, for
/// a policy without autocast, and for a policy that cannot be read.
Precision parse_precision(const std::string& name, std::string_view cast_policy = "", const std::string& source = "");

/// Converts the parameters; with float64 the buffers too. Other handles on them see it.
void convert_model(nn::Module& model, const Precision& precision);
/// A network's input in the dtype of the network.
Tensor convert_input(const Tensor& images, const Precision& precision);

/// Autocast while it lives, if the precision has it. Around forward and loss.
class PrecisionScope {
 public:
  explicit PrecisionScope(const Precision& precision);

 private:
  std::optional<Autocast> autocast_;
};

/// How bfloat16 is computed here, in a few words.
std::string bfloat16_text();
/// One line for people when the precision is slow on this machine, else "".
std::string slow_precision_text(const Precision& precision);

}  // namespace norma::train
