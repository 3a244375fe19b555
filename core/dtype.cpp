#include "core/dtype.h"

#include <array>
#include <cmath>

namespace norma {
namespace {

struct DTypeEntry {
  DType dtype;
  std::string_view name;
  size_t size;
  int rank;  // among all: one of a higher rank can hold those of a lower
};

constexpr std::array kDTypes{
    DTypeEntry{DType::float32, "float32", 4, 5}, DTypeEntry{DType::float64, "float64", 8, 6},
    DTypeEntry{DType::float16, "float16", 2, 4}, DTypeEntry{DType::bfloat16, "bfloat16", 2, 4},
    DTypeEntry{DType::int64, "int64", 8, 3},     DTypeEntry{DType::int32, "int32", 4, 2},
    DTypeEntry{DType::uint8, "uint8", 1, 1},     DTypeEntry{DType::boolean, "bool", 1, 0},
};

const DTypeEntry& entry(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)];
}

int rank(DType dtype) {
  return entry(dtype).rank;
}

}  // namespace

size_t size_of(DType dtype) {
  return entry(dtype).size;
}

std::string_view to_string(DType dtype) {
  return entry(dtype).name;
}

DType dtype_from_string(std::string_view name) {
  for (const DTypeEntry& candidate : kDTypes) {
    if (candidate.name == name) {
      return candidate.dtype;
    }
  }
  fail("dtype", "expected float32, float64, float16, bfloat16, int64, int32, uint8 or bool, got '{}'", name);
}

bool is_floating(DType dtype) {
  return rank(dtype) >= rank(DType::float16);
}

bool is_half(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

void check_holds(std::string_view op, std::string_view argument, DType dtype, double value) {
  if (is_floating(dtype) || dtype == DType::boolean) {
    return;
  }
  const double limit = dtype == DType::int64 ? 0x1p63 : dtype == DType::int32 ? 0x1p31 : 0x1p8;
  const double lowest = dtype == DType::uint8 ? 0 : -limit;
  const double whole = std::trunc(value);
  check(whole >= lowest && whole < limit, op, "{}: expected a number in [{}, {}) for {}, got {}", argument, lowest,
        limit, to_string(dtype), value);
}

DType promote(DType a, DType b) {
  if (a == b) {
    return a;
  }
  if (rank(a) == rank(b)) {  // float16 with bfloat16: neither holds the other
    return DType::float32;
  }
  return rank(a) > rank(b) ? a : b;
}

}  // namespace norma
