#include "virtual_gpu/float.h"

#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <cmath>

// Arithmetic of float and double that PTX defines to the bit. No two operations are contracted into one
// (-ffp-contract=off).

namespace virtual_gpu {

namespace {

template <bool kFlush>
struct Add {
  template <class F>
  static F apply(F a, F b) {
    return canonical(flushed<kFlush>(flushed<kFlush>(a) + flushed<kFlush>(b)));
  }
};
template <bool kFlush>
struct Subtract {
  template <class F>
  static F apply(F a, F b) {
    return canonical(flushed<kFlush>(flushed<kFlush>(a) - flushed<kFlush>(b)));
  }
};
template <bool kFlush>
struct Multiply {
  template <class F>
  static F apply(F a, F b) {
    return canonical(flushed<kFlush>(flushed<kFlush>(a) * flushed<kFlush>(b)));
  }
};
template <bool kFlush>
struct Divide {
  template <class F>
  static F apply(F a, F b) {
    return canonical(flushed<kFlush>(flushed<kFlush>(a) / flushed<kFlush>(b)));
  }
};
template <bool kFlush>
struct MultiplyAdd {
  template <class F>
  static F apply(F a, F b, F c) {
    if constexpr (std::is_same_v<F, float>) {
      return canonical(flushed<kFlush>(__builtin_fmaf(flushed<kFlush>(a), flushed<kFlush>(b), flushed<kFlush>(c))));
    } else {
      return __builtin_fma(a, b, c);
    }
  }
};
template <bool kFlush>
struct SquareRoot {
  template <class F>
  static F apply(F a) {
    return canonical(flushed<kFlush>(static_cast<F>(std::sqrt(flushed<kFlush>(a)))));
  }
};
template <bool kFlush>
struct Reciprocal {
  template <class F>
  static F apply(F a) {
    return canonical(flushed<kFlush>(F{1} / flushed<kFlush>(a)));
  }
};

/// The smaller number: that of two of which one is NaN, and -0 before +0. With ".NaN", NaN wins.
template <bool kFlush, bool kNan, bool kMaximum>
struct Extreme {
  template <class F>
  static F apply(F x, F y) {
    const F a = flushed<kFlush>(x);
    const F b = flushed<kFlush>(y);
    const bool first = a == b ? std::signbit(a) != kMaximum : kMaximum ? a > b : a < b;
    const F chosen = first ? a : b;
    const bool a_nan = a != a;
    const bool b_nan = b != b;
    const F nan = std::bit_cast<F>(std::is_same_v<F, float> ? FloatBits<F>::kNan : FloatBits<F>::kNan);
    if constexpr (kNan) {
      return a_nan || b_nan ? nan : chosen;
    } else {
      return a_nan && b_nan ? nan : a_nan ? b : b_nan ? a : chosen;
    }
  }
};

template <bool kFlush>
struct Negate {
  template <class F>
  static F apply(F a) {
    return -flushed<kFlush>(a);
  }
};
template <bool kFlush>
struct Absolute {
  template <class F>
  static F apply(F a) {
    return std::abs(flushed<kFlush>(a));
  }
};
struct CopySign {
  template <class F>
  static F apply(F sign, F value) {
    return std::copysign(value, sign);
  }
};

/// Clamps a result to [0, 1]; NaN becomes +0.
template <class Op>
struct Saturated {
  template <class... F>
  static float apply(F... x) {
    const float result = Op::apply(x...);
    return result > 0.0F ? (result < 1.0F ? result : 1.0F) : 0.0F;
  }
};

/// a * b + c of floats, rounded once, in a direction other than to the nearest. The product is exact in double, and
/// what the sum leaves out is known exactly.
template <Rounding kRounding, bool kFlush>
struct DirectedMultiplyAdd {
  static float apply(float x, float y, float z) {
    const double product = static_cast<double>(flushed<kFlush>(x)) * static_cast<double>(flushed<kFlush>(y));
    const double c = static_cast<double>(flushed<kFlush>(z));
    const double sum = product + c;
    const double c_part = sum - product;
    const double error = (product - (sum - c_part)) + (c - c_part);
    float result = rounded<kRounding>(sum, error);
    if constexpr (kRounding == Rounding::kDown) {  // numbers that cancel give -0
      const bool cancelled = sum == 0 && (product != 0 || std::signbit(product) != std::signbit(c));
      result = cancelled ? -0.0F : result;
    }
    return canonical(flushed<kFlush>(result));
  }
};
template <Rounding kRounding, bool kFlush>
struct DirectedAdd {
  static float apply(float a, float b) { return DirectedMultiplyAdd<kRounding, kFlush>::apply(a, 1.0F, b); }
};
template <Rounding kRounding, bool kFlush>
struct DirectedSubtract {
  static float apply(float a, float b) { return DirectedMultiplyAdd<kRounding, kFlush>::apply(a, 1.0F, -b); }
};
template <Rounding kRounding, bool kFlush>
struct DirectedMultiply {
  static float apply(float a, float b) {  // adds a zero of the product's sign
    const bool negative = std::signbit(a) != std::signbit(b);
    return DirectedMultiplyAdd<kRounding, kFlush>::apply(a, b, negative ? -0.0F : 0.0F);
  }
};

template <class Op, class F>
Choice one(bool saturate) {
  const int bytes = sizeof(F);
  if (saturate) {
    return std::is_same_v<F, float> ? Choice{unary<Saturated<Op>, float, float>, {4, 4}} : Choice{};
  }
  return {unary<Op, F, F>, {bytes, bytes}};
}

template <class Op, class F>
Choice two(bool saturate) {
  const int bytes = sizeof(F);
  if (saturate) {
    return std::is_same_v<F, float> ? Choice{binary<Saturated<Op>, float, float, float>, {4, 4, 4}} : Choice{};
  }
  return {binary<Op, F, F, F>, {bytes, bytes, bytes}};
}

template <class Op, class F>
Choice three(bool saturate) {
  const int bytes = sizeof(F);
  if (saturate) {
    return std::is_same_v<F, float> ? Choice{ternary<Saturated<Op>, float, float, float, float>, {4, 4, 4, 4}}
                                    : Choice{};
  }
  return {ternary<Op, F, F, F, F>, {bytes, bytes, bytes, bytes}};
}

template <Rounding kRounding, bool kFlush>
Choice directed(const Opcode& opcode, bool saturate) {
  if (opcode.type() != Type::kF32) {
    return {};
  }
  if (opcode.name == "fma" || opcode.name == "mad") {
    return three<DirectedMultiplyAdd<kRounding, kFlush>, float>(saturate);
  }
  if (opcode.name == "add") {
    return two<DirectedAdd<kRounding, kFlush>, float>(saturate);
  }
  if (opcode.name == "sub") {
    return two<DirectedSubtract<kRounding, kFlush>, float>(saturate);
  }
  if (opcode.name == "mul") {
    return two<DirectedMultiply<kRounding, kFlush>, float>(saturate);
  }
  return {};
}

template <bool kFlush, bool kMaximum, class F>
Choice extreme(const Opcode& opcode) {
  if (opcode.has("xorsign")) {
    return {};
  }
  return opcode.has("NaN") ? two<Extreme<kFlush, true, kMaximum>, F>(false)
                           : two<Extreme<kFlush, false, kMaximum>, F>(false);
}

template <class F, bool kFlush>
Choice choose(const Opcode& opcode) {
  const std::string_view name = opcode.name;
  const bool saturate = opcode.has("sat");
  if (name == "neg") {
    return one<Negate<kFlush>, F>(false);
  }
  if (name == "abs") {
    return one<Absolute<kFlush>, F>(false);
  }
  if (name == "copysign") {
    return two<CopySign, F>(false);
  }
  if (name == "min") {
    return extreme<kFlush, false, F>(opcode);
  }
  if (name == "max") {
    return extreme<kFlush, true, F>(opcode);
  }
  if (opcode.has("rz")) {
    return directed<Rounding::kZero, kFlush>(opcode, saturate);
  }
  if (opcode.has("rm")) {
    return directed<Rounding::kDown, kFlush>(opcode, saturate);
  }
  if (opcode.has("rp")) {
    return directed<Rounding::kUp, kFlush>(opcode, saturate);
  }
  if (name == "add") {
    return two<Add<kFlush>, F>(saturate);
  }
  if (name == "sub") {
    return two<Subtract<kFlush>, F>(saturate);
  }
  if (name == "mul") {
    return two<Multiply<kFlush>, F>(saturate);
  }
  if (name == "fma" || name == "mad") {
    return three<MultiplyAdd<kFlush>, F>(saturate);
  }
  // The quotients and roots that PTX only bounds are rounded exactly as well: docs of the virtual GPU say so.
  const bool exact = opcode.has("rn") || (std::is_same_v<F, float> && (opcode.has("approx") || opcode.has("full")));
  if (exact && name == "div") {
    return two<Divide<kFlush>, F>(false);
  }
  if (exact && name == "sqrt") {
    return one<SquareRoot<kFlush>, F>(false);
  }
  if (exact && name == "rcp") {
    return one<Reciprocal<kFlush>, F>(false);
  }
  return {};
}

}  // namespace

Choice float_choice(const Opcode& opcode) {
  if (opcode.types.size() != 1) {
    return {};
  }
  switch (opcode.type()) {
    case Type::kF32: return opcode.has("ftz") ? choose<float, true>(opcode) : choose<float, false>(opcode);
    case Type::kF64: return opcode.has("ftz") ? Choice{} : choose<double, false>(opcode);
    default: return {};
  }
}

}  // namespace virtual_gpu
