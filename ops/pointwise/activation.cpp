#include "ops/pointwise/activation.h"

#include "ops/pointwise/pointwise.h"

namespace norma {

std::string_view to_string(Activation activation) {
  switch (activation) {
    case Activation::identity: return "identity";
    case Activation::relu: return "relu";
    case Activation::gelu: return "gelu";
    case Activation::silu: return "silu";
  }
  return "?";
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::identity: break;
    case Activation::relu: return relu(x);
    case Activation::gelu: return gelu(x);
    case Activation::silu: return silu(x);
  }
  return x;
}

}  // namespace norma
