#include "ops/half/bfloat16.h"

#include "base/error.h"
#include "ops/libraries/onednn/isa.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace norma {

namespace {

/// The dot products of AVX512_BF16 do two multiplications per lane. AMD's processors start as many of them per cycle as
/// multiply-adds of float32, Intel's half as many.
struct Measured {
  std::string_view maker;
  int family;
  bool faster;
};
constexpr std::array<Measured, 3> kMeasured = {{
    {"AMD", 25, true},    // Zen 4 (model 17): ResNet-50 trains 1.82 times as fast as in float32
    {"AMD", 26, true},    // Zen 5: ResNet-50's convolutions, 1.6 (weight gradients) to 2.1 times
    {"Intel", 6, false},  // model 207, held to AVX512_BF16: 0.7 times as fast as through float32
}};

/// What avx512_bf16_is_faster() says of this processor.
std::optional<bool> avx512_bf16_is_faster_here() {
#if defined(__x86_64__)
  unsigned version = 0;
  unsigned unused = 0;
  __get_cpuid(1, &version, &unused, &unused, &unused);
  const unsigned family = (version >> 8 & 15) + (version >> 20 & 255);
  return avx512_bf16_is_faster(__builtin_cpu_is("amd") != 0     ? "AMD"
                               : __builtin_cpu_is("intel") != 0 ? "Intel"
                                                                : "",
                               static_cast<int>(family));
#else
  return std::nullopt;
#endif
}

bool primitives_are_faster() {
  static const bool faster = [instructions = onednn::bfloat16_instructions()] {
    return instructions == "AMX" || (instructions == "AVX512_BF16" && avx512_bf16_is_faster_here().value_or(false));
  }();
  return faster;
}

void check_choice(bool use) {
  check(!use || has_bfloat16_primitives(), "bfloat16",
        "primitives: expected oneDNN and a CPU with AVX-512, which this build or machine lacks");
}

bool choice_of_environment() {
  const char* text = std::getenv("NORMA_BFLOAT16");
  const std::string_view name = text == nullptr ? "" : text;
  if (name.empty()) {
    return primitives_are_faster();
  }
  check(name == "primitives" || name == "through_float", "bfloat16",
        "NORMA_BFLOAT16: expected primitives or through_float, got {}", name);
  check_choice(name == "primitives");
  return name == "primitives";
}

bool& choice() {
  static bool primitives = choice_of_environment();
  return primitives;
}

}  // namespace

std::optional<bool> avx512_bf16_is_faster(std::string_view maker, int family) {
  for (const Measured& processor : kMeasured) {
    if (processor.maker == maker && processor.family == family) {
      return processor.faster;
    }
  }
  return std::nullopt;
}

bool has_bfloat16_primitives() {
  return !onednn::bfloat16_instructions().empty();
}

bool uses_bfloat16_primitives() {
  return choice();
}

void set_bfloat16_primitives(bool use) {
  check_choice(use);
  choice() = use;
}

bool bfloat16_is_fast() {
  return choice() && primitives_are_faster();
}

std::string bfloat16_text() {
  const std::string_view instructions = onednn::bfloat16_instructions();
  const bool faster = primitives_are_faster();
  const std::string_view forced = choice() == faster ? "" : ", as NORMA_BFLOAT16 asks";
  if (choice()) {
    return fmt::format("oneDNN's primitives ({}){}", instructions, forced);
  }
  if (faster) {
    return fmt::format("through float32{}", forced);
  }
  if (instructions.empty()) {
    return "through float32: needs oneDNN and a CPU with AMX or AVX512_BF16";
  }
  return instructions == "AVX512_BF16" && !avx512_bf16_is_faster_here()
             ? "through float32: AVX512_BF16 of this CPU was not measured (NORMA_BFLOAT16=primitives takes it)"
             : fmt::format("through float32: {} is slower on this CPU", instructions);
}

}  // namespace norma
