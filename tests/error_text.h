#pragma once

#include "core/device_functions.h"
#include "support.h"

#include <string>

namespace norma::test {

/// The text of the Error that f() throws; "no error" when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// What `op` says of CUDA's tensors: that the build has no CUDA, or, in one that has, that there is no GPU ("no error"
/// where there is one).
inline std::string no_cuda_text(const std::string& op, Device cuda = {.type = DeviceType::cuda}) {
  return device_functions.cuda == nullptr ? op + ": this build of Norma has no CUDA"
                                          : error_of([&] { check_available(op, cuda); });
}

/// What an op says that has no kernels for CUDA.
inline std::string no_kernels_text(const std::string& op) {
  return op + (device_functions.cuda == nullptr ? ": this build of Norma has no CUDA"
                                                : ": not yet on CUDA; --device cpu has it");
}

}  // namespace norma::test
