#include "ops/libraries/onednn/isa.h"

#include <dnnl.hpp>

namespace norma::onednn {

Bfloat16Support bfloat16_support() {
  // Each x86 instruction set's bits hold those of the sets it includes.
  const auto has = [isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa())](dnnl::cpu_isa wanted) {
    const auto bits = static_cast<unsigned>(wanted);
    return (isa & bits) == bits;
  };
  if (has(dnnl::cpu_isa::avx512_core_bf16)) {
    return Bfloat16Support::native;
  }
  return has(dnnl::cpu_isa::avx512_core) ? Bfloat16Support::emulated : Bfloat16Support::none;
}

}  // namespace norma::onednn
