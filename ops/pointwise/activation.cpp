#include "ops/pointwise/activation.h"

#include "core/op.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

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

Tensor activate(const Tensor& y, const ActOptions& then, std::string_view op) {
  if (!then.residual.defined()) {
    return activate(y, then.activation);
  }
  const Op frame(op, "normalize");
  const Tensor residual = frame.like(y, then.residual);
  const DType dtype = compute_dtype(y.dtype());
  check_like(op, "residual", residual, y.sizes(), y);
  if (then.activation == Activation::identity) {
    return add(y, residual);
  }
  const Tensor z = add(to(y, dtype), to(residual, dtype));
  if (then.activation == Activation::relu) {
    return relu(to(z, y.dtype()));  // relu keeps its output, in y's dtype
  }
  return to(activate(z, then.activation), y.dtype());
}

}  // namespace norma
