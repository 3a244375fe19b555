#include "ops/half/bfloat16.h"

#include "core/error.h"
#include "ops/libraries/onednn/isa.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

namespace norma {

namespace {

void check_choice(bool use) {
  check(!use || has_bfloat16_primitives(), "bfloat16",
        "primitives: expected oneDNN and a CPU with AVX-512, which this build or machine lacks");
}

bool choice_of_environment() {
  const char* text = std::getenv("NORMA_BFLOAT16");
  const std::string_view name = text == nullptr ? "" : text;
  if (name.empty()) {
    return onednn::bfloat16_primitives().faster;
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

bool has_bfloat16_primitives() {
  return !onednn::bfloat16_primitives().instructions.empty();
}

bool uses_bfloat16_primitives() {
  return choice();
}

void set_bfloat16_primitives(bool use) {
  check_choice(use);
  choice() = use;
}

bool bfloat16_is_fast() {
  return choice() && onednn::bfloat16_primitives().faster;
}

std::string bfloat16_text() {
  const onednn::Bfloat16Primitives primitives = onednn::bfloat16_primitives();
  const std::string_view forced = choice() == primitives.faster ? "" : ", as NORMA_BFLOAT16 asks";
  if (choice()) {
    return fmt::format("oneDNN's primitives ({}){}", primitives.instructions, forced);
  }
  return primitives.instructions.empty() ? "through float32: needs oneDNN and a CPU with AMX or AVX512_BF16"
         : primitives.faster             ? fmt::format("through float32{}", forced)
                             : fmt::format("through float32: {} is slower on this CPU", primitives.instructions);
}

}  // namespace norma
