#include "core/cuda/version_cublaslt.h"

#include <cublasLt.h>
#include <fmt/format.h>

namespace norma::cuda {

std::string cublaslt_text() {
  const auto text = [](size_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  };
  return fmt::format("{}, built with {}", text(cublasLtGetVersion()), text(CUBLAS_VERSION));
}

}  // namespace norma::cuda
