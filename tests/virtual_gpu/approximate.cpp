#include "virtual_gpu/float.h"
#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <cmath>
#include <numbers>

// What PTX gives with an error: ex2, lg2, sin, cos, tanh and rsqrt of floats are computed in double and rounded once,
// so that their error is a little over half a unit in the last place, less than the bound of PTX for each (ex2: 2
// units, rsqrt: 2^-22.9, tanh: 2^-11, lg2, sin and cos: 2^-20.5 and more). rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64
// keep the upper half of a double, as a GPU does: a program makes them exact with steps of its own.

namespace virtual_gpu {

namespace {

/// 2^x of a double that is a float, with a relative error of about 1e-15. It has no branches, so that lanes become
/// vectors.
inline double power_of_two(double x) {
  const double limited = x < -1020 ? -1020 : x > 1020 ? 1020 : x;
  const double whole = __builtin_rint(limited);
  const double t = (limited - whole) * std::numbers::ln2;  // |t| <= 0.35
  double sum = 1.0 / 6227020800;
  sum = sum * t + 1.0 / 479001600;
  sum = sum * t + 1.0 / 39916800;
  sum = sum * t + 1.0 / 3628800;
  sum = sum * t + 1.0 / 362880;
  sum = sum * t + 1.0 / 40320;
  sum = sum * t + 1.0 / 5040;
  sum = sum * t + 1.0 / 720;
  sum = sum * t + 1.0 / 120;
  sum = sum * t + 1.0 / 24;
  sum = sum * t + 1.0 / 6;
  sum = sum * t + 0.5;
  sum = sum * t + 1.0;
  sum = sum * t + 1.0;
  const int64_t exponent = static_cast<int64_t>(static_cast<int32_t>(whole)) + 1023;
  return sum * std::bit_cast<double>(exponent << 52);
}

template <bool kFlush>
struct Exp2 {
  static float apply(float x) {
    const float a = flushed<kFlush>(x);
    const float result = static_cast<float>(power_of_two(static_cast<double>(a)));
    return a != a ? canonical(a) : flushed<kFlush>(result);
  }
};

template <bool kFlush, double (*kFunction)(double)>
struct InDouble {
  static float apply(float x) {
    return canonical(flushed<kFlush>(static_cast<float>(kFunction(static_cast<double>(flushed<kFlush>(x))))));
  }
};

double log_of_two(double x) {
  return std::log2(x);
}
double sine(double x) {
  return std::sin(x);
}
double cosine(double x) {
  return std::cos(x);
}
double tangent(double x) {
  return std::tanh(x);
}
double reciprocal_root(double x) {
  return 1.0 / std::sqrt(x);
}

double upper_half(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0xffffffff00000000);
}

/// Rounds a double to its upper 32 bits, and subnormal numbers to zero.
double rounded_to_upper_half(double x) {
  if (x != x) {
    return x;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const bool number = (bits & FloatBits<double>::kExponent) != FloatBits<double>::kExponent;
  return flushed<true>(upper_half(std::bit_cast<double>(number ? bits + 0x80000000 : bits)));
}

struct GrossReciprocal {
  static double apply(double x) { return rounded_to_upper_half(1.0 / flushed<true>(upper_half(x))); }
};
struct GrossReciprocalRoot {
  static double apply(double x) { return rounded_to_upper_half(1.0 / std::sqrt(flushed<true>(upper_half(x)))); }
};

template <bool kFlush>
Choice choose(const Opcode& opcode) {
  const std::string_view name = opcode.name;
  if (name == "ex2") {
    return {unary<Exp2<kFlush>, float, float>, {4, 4}};
  }
  if (name == "lg2") {
    return {unary<InDouble<kFlush, log_of_two>, float, float>, {4, 4}};
  }
  if (name == "sin") {
    return {unary<InDouble<kFlush, sine>, float, float>, {4, 4}};
  }
  if (name == "cos") {
    return {unary<InDouble<kFlush, cosine>, float, float>, {4, 4}};
  }
  if (name == "tanh") {
    return {unary<InDouble<kFlush, tangent>, float, float>, {4, 4}};
  }
  if (name == "rsqrt") {
    return {unary<InDouble<kFlush, reciprocal_root>, float, float>, {4, 4}};
  }
  return {};
}

}  // namespace

Choice approximate_choice(const Opcode& opcode) {
  if (!opcode.has("approx") || opcode.types.size() != 1) {
    return {};
  }
  if (opcode.type() == Type::kF32) {
    return opcode.has("ftz") ? choose<true>(opcode) : choose<false>(opcode);
  }
  if (opcode.text == "rcp.approx.ftz.f64") {
    return {unary<GrossReciprocal, double, double>, {8, 8}};
  }
  if (opcode.text == "rsqrt.approx.ftz.f64") {
    return {unary<GrossReciprocalRoot, double, double>, {8, 8}};
  }
  return {};
}

}  // namespace virtual_gpu
