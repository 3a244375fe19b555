#pragma once

#include "virtual_gpu/fault.h"
#include "virtual_gpu/launch.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

// Runs PTX that a test wrote.

namespace virtual_gpu::test {

template <class T>
std::vector<std::byte> bytes_of_value(const T& value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

/// Global memory with the values that a test puts there.
class TestMemory {
 public:
  /// Memory of `count` values, never written.
  template <class T>
  uint64_t empty(size_t count) {
    return memory.allocate(count * sizeof(T));
  }
  template <class T>
  uint64_t of(const std::vector<T>& values) {
    const uint64_t address = empty<T>(values.size());
    const Allocation* const allocation = memory.find(address);
    std::memcpy(allocation->data, values.data(), values.size() * sizeof(T));
    std::memset(allocation->written.data(), 1, allocation->written.size());
    return address;
  }
  template <class T>
  std::vector<T> read(uint64_t address, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), memory.find(address)->data, count * sizeof(T));
    return values;
  }

  Memory memory{uint64_t{1} << 30U};
};

/// "name" with parameters of 8 bytes, p0, p1, and so on. The registers %r0… (32 bits), %rd0…, %rs0…, %f0…, %fd0… and
/// %p0… are declared.
inline std::string kernel_text(size_t parameters, std::string_view body, std::string_view before = "") {
  std::string list;
  for (size_t k = 0; k < parameters; ++k) {
    list += fmt::format("{}.param .u64 p{}", k == 0 ? "" : ",\n", k);
  }
  return fmt::format(R"(.version 9.0
.target sm_90
.address_size 64
.file 1 "kernel.cu"
{}
.visible .entry _Z4namePf(
{}
)
{{
.reg .pred %p<16>;
.reg .b16 %rs<32>;
.reg .b32 %r<32>;
.reg .b64 %rd<32>;
.reg .f32 %f<32>;
.reg .f64 %fd<32>;
{}
}}
)",
                     before, list, body);
}

struct Shape {
  uint32_t threads = 32;
  uint32_t blocks = 1;
  uint64_t shared_bytes = 0;
};

/// Launches kernel_text(…) with these parameters.
template <class... Parameter>
Counters run_ptx(TestMemory& memory, const std::string& text, Shape shape, Parameter... parameters) {
  Module module(text);
  Launch launch;
  launch.kernel = &module.kernel("_Z4namePf");
  launch.grid.x = shape.blocks;
  launch.block.x = shape.threads;
  launch.dynamic_shared_bytes = shape.shared_bytes;
  launch.arguments = {bytes_of_value<uint64_t>(parameters)...};
  return run(launch, memory.memory, Properties{});
}

/// The text of the Fault of `kind` that `f` throws; another kind or none is a failure.
template <class F>
std::string fault_of(Fault::Kind kind, F&& f) {
  try {
    f();
  } catch (const Fault& fault) {
    CHECK(fault.kind() == kind);
    return fault.what();
  }
  return "no fault";
}

template <class T>
constexpr std::string_view bits_name() {
  return sizeof(T) == 1 ? "b8" : sizeof(T) == 2 ? "b16" : sizeof(T) == 4 ? "b32" : "b64";
}

/// Runs `code`, which makes %d of %a, %b, %c (and has registers %p, %q, %x of 32 bits and %y of 64), for each lane.
/// The inputs have one length, of at most 1024. Every length but a multiple of 32 also tries masks.
template <class R, class... In>
std::vector<R> compute(const std::string& code, const std::vector<In>&... inputs) {
  TestMemory memory;
  const std::array<std::string, 3> names = {"%a", "%b", "%c"};
  std::string body = ".reg .pred %p, %q;\n.reg .b32 %x;\n.reg .b64 %y;\nmov.u32 %r0, %tid.x;\ncvt.u64.u32 %rd0, %r0;\n";
  size_t k = 0;
  size_t count = 0;
  std::vector<std::vector<std::byte>> arguments;
  const auto load = [&]<class T>(const std::vector<T>& input) {
    count = input.size();
    body += fmt::format(
        ".reg .{0} {1};\nld.param.u64 %rd1, [p{2}];\nmul.lo.s64 %rd2, %rd0, {3};\nadd.s64 %rd1, %rd1, %rd2;\n"
        "ld.global.{0} {1}, [%rd1];\n",
        bits_name<T>(), names.at(k), k, sizeof(T));
    arguments.push_back(bytes_of_value(memory.of(input)));
    ++k;
  };
  (load(inputs), ...);
  const uint64_t output = memory.empty<R>(count);
  arguments.push_back(bytes_of_value(output));
  body += fmt::format(
      ".reg .{0} %d;\n{1}\nld.param.u64 %rd1, [p{2}];\nmul.lo.s64 %rd2, %rd0, {3};\nadd.s64 %rd1, %rd1, %rd2;\n"
      "st.global.{0} [%rd1], %d;\nret;\n",
      bits_name<R>(), code, k, sizeof(R));
  Module module(kernel_text(k + 1, body));
  Launch launch;
  launch.kernel = &module.kernel("_Z4namePf");
  launch.block.x = static_cast<uint32_t>(count);
  launch.arguments = arguments;
  run(launch, memory.memory, Properties{});
  return memory.read<R>(output, count);
}

/// Equal to the bit, which NaN and -0 are not by ==.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// All pairs of the values: the first of each, and the second.
template <class T>
struct Pairs {
  std::vector<T> first;
  std::vector<T> second;

  explicit Pairs(const std::vector<T>& values) {
    for (const T a : values) {
      for (const T b : values) {
        first.push_back(a);
        second.push_back(b);
      }
    }
  }
  template <class R, class F>
  std::vector<R> map(F&& f) const {
    std::vector<R> results;
    for (size_t k = 0; k < first.size(); ++k) {
      results.push_back(static_cast<R>(f(first[k], second[k])));
    }
    return results;
  }
};

template <class R, class T, class F>
std::vector<R> map(const std::vector<T>& values, F&& f) {
  std::vector<R> results;
  for (const T value : values) {
    results.push_back(static_cast<R>(f(value)));
  }
  return results;
}

inline float float_of_bits(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bits_of_float(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace virtual_gpu::test
