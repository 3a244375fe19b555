#include "ops/half/bfloat16.h"

#include "core/error.h"
#include "ops/libraries/onednn/isa.h"

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
    return bfloat16_in_hardware();
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

bool bfloat16_in_hardware() {
  return onednn::bfloat16_support() == onednn::Bfloat16Support::fast;
}

bool has_bfloat16_primitives() {
  return onednn::bfloat16_support() != onednn::Bfloat16Support::none;
}

bool uses_bfloat16_primitives() {
  return choice();
}

void set_bfloat16_primitives(bool use) {
  check_choice(use);
  choice() = use;
}

}  // namespace norma
