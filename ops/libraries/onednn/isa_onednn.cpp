#include "ops/libraries/onednn/isa.h"

#include "core/simd/target.h"

#include <dnnl.hpp>

#include <cstdlib>

namespace norma::onednn {

void limit_instruction_sets() {
  static const bool done = [] {
    if (!simd::target_is_forced() || std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr ||
        std::getenv("DNNL_MAX_CPU_ISA") != nullptr) {
      return true;
    }
    const std::string_view target = simd::target();
    if (target == "avx2") {
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    } else if (target == "sse4") {
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    }
    return true;
  }();
  static_cast<void>(done);
}

std::string_view bfloat16_instructions() {
  limit_instruction_sets();
  // Each x86 instruction set's bits hold those of the sets it includes.
  const auto has = [isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa())](dnnl::cpu_isa wanted) {
    const auto bits = static_cast<unsigned>(wanted);
    return (isa & bits) == bits;
  };
  return has(dnnl::cpu_isa::avx512_core_amx)    ? "AMX"
         : has(dnnl::cpu_isa::avx512_core_bf16) ? "AVX512_BF16"
         : has(dnnl::cpu_isa::avx512_core)      ? "AVX-512"
                                                : "";
}

}  // namespace norma::onednn
