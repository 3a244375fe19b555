#pragma once

#include "base/error.h"
#include "core/half.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace norma {

enum class DType : uint8_t { float32, float64, float16, bfloat16, int64, int32, uint8, boolean };

/// Bytes of one element.
size_t size_of(DType dtype);
/// "float32", …; boolean is "bool".
std::string_view to_string(DType dtype);
/// Inverse of to_string. Throws Error for an unknown name.
DType dtype_from_string(std::string_view name);

/// float32, float64, float16, bfloat16.
bool is_floating(DType dtype);
/// float16, bfloat16.
bool is_half(DType dtype);

/// Throws an Error of `op` and `argument` for a number that an integer dtype does not hold after its fraction is cut
/// off. Floating dtypes and boolean hold any number.
void check_holds(std::string_view op, std::string_view argument, DType dtype, double value);

/// The dtype of a result of operands `a` and `b`, as in PyTorch: a floating dtype wins over an integer,
/// the wider wins, float16 with bfloat16 gives float32, uint8 with int32 gives int32.
DType promote(DType a, DType b);

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::float32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::float64;
}
template <>
constexpr DType dtype_of<float16>() {
  return DType::float16;
}
template <>
constexpr DType dtype_of<bfloat16>() {
  return DType::bfloat16;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::int64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::int32;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::uint8;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::boolean;
}

/// The type in which arithmetic on T is done: float for the half types, T itself otherwise.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, T>;

/// The dtype in which arithmetic on `dtype` is done: float32 for the half types, `dtype` itself otherwise.
inline DType compute_dtype(DType dtype) {
  return is_half(dtype) ? DType::float32 : dtype;
}

/// to = value, rounded to nearest even for the half types.
template <class T>
void assign(T& to, compute_t<T> value) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    to = value;
  } else {
    to.bits = T(value).bits;
  }
}

/// Calls f(T{}) with the C++ type of any dtype.
template <class F>
decltype(auto) dispatch_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::float16: return f(float16{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::int64: return f(int64_t{});
    case DType::int32: return f(int32_t{});
    case DType::uint8: return f(uint8_t{});
    case DType::boolean: return f(bool{});
  }
  fail("dispatch_all", "unknown dtype {}", static_cast<int>(dtype));
}

/// Calls f(Word{}) with the unsigned integer of 1, 2, 4 or 8 bytes, which may stand for any element of that size.
template <class F>
decltype(auto) dispatch_word(std::string_view op, size_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: fail(op, "expected elements of 1, 2, 4 or 8 bytes, got {}", bytes);
  }
}

/// Calls f(T{}) for float32 and float64; throws an Error that names `op` for any other dtype.
template <class F>
decltype(auto) dispatch_floating(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    default: fail(op, "expected dtype float32 or float64, got {}", to_string(dtype));
  }
}

/// Calls f(T{}) for every floating dtype, including the half types, which compute in compute_t; throws an Error that
/// names `op` for any other dtype.
template <class F>
decltype(auto) dispatch_any_floating(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    default: fail(op, "expected dtype float32, float64, bfloat16 or float16, got {}", to_string(dtype));
  }
}

/// Calls f(T{}) for every floating dtype, int64 and int32; throws an Error that names `op` otherwise.
template <class F>
decltype(auto) dispatch_numeric(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    case DType::int64: return f(int64_t{});
    case DType::int32: return f(int32_t{});
    default: fail(op, "expected dtype float32, float64, bfloat16, float16, int64 or int32, got {}", to_string(dtype));
  }
}

}  // namespace norma
