#include "core/error.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/matmul.h"

#include <fmt/ranges.h>

#include <cstdlib>

namespace norma {

namespace {

using kernels::MatmulImplementation;

/// Every CPU implementation of this build, in the order they are tried.
const std::vector<const MatmulImplementation*>& cpu_implementations() {
  static const auto list = [] {
    std::vector<const MatmulImplementation*> all = {kernels::matmul_onednn(), kernels::matmul_eigen()};
    std::erase(all, nullptr);
    return all;
  }();
  return list;
}

const MatmulImplementation* find(const std::string& name) {
  if (name.empty()) {
    return nullptr;
  }
  for (const MatmulImplementation* implementation : cpu_implementations()) {
    if (implementation->name == name) {
      return implementation;
    }
  }
  fail("matmul", "implementation: expected one of {}, got {}", fmt::join(matmul_implementations(), ", "), name);
}

const MatmulImplementation*& forced() {
  static const MatmulImplementation* implementation = [] {
    const char* name = std::getenv("NORMA_MATMUL");
    return find(name == nullptr ? "" : name);
  }();
  return implementation;
}

}  // namespace

std::vector<std::string> matmul_implementations() {
  std::vector<std::string> names;
  for (const MatmulImplementation* implementation : cpu_implementations()) {
    names.emplace_back(implementation->name);
  }
  return names;
}

void set_matmul_implementation(const std::string& name) {
  forced() = find(name);
}

const kernels::MatmulImplementation& kernels::matmul_implementation(Device device, const MatmulCase& product) {
  if (device.type == DeviceType::cuda) {
    return *matmul_cuda();
  }
  MatmulCase wide = product;
  wide.dtype = is_half(product.dtype) ? DType::float32 : product.dtype;
  if (forced() != nullptr && forced()->supports(wide)) {
    return forced()->supports(product) ? *forced() : *matmul_through_float();
  }
  // A primitive's call costs about as much as Eigen's whole product of small matrices.
  constexpr int64_t kSmall = 16 * 16 * 16;
  const bool small = forced() == nullptr && product.batch * product.m * product.n * product.k <= kSmall;
  for (const MatmulImplementation* implementation : cpu_implementations()) {
    if (implementation->supports(product) && !(small && implementation != cpu_implementations().back())) {
      return *implementation;
    }
  }
  return *matmul_through_float();
}

}  // namespace norma
