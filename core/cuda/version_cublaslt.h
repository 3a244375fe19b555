#pragma once

#include <string>

namespace norma::cuda {

/// "13.1.0, built with 13.1.0"
std::string cublaslt_text();

}  // namespace norma::cuda
