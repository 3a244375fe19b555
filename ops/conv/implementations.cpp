#include "core/error.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

namespace norma {

namespace {

using kernels::Conv2dImplementation;

/// Every CPU implementation of this build, in the order they are tried.
const std::vector<const Conv2dImplementation*>& cpu_implementations() {
  static const auto list = [] {
    std::vector<const Conv2dImplementation*> all = {kernels::conv2d_depthwise(), kernels::conv2d_onednn(),
                                                    kernels::conv2d_eigen()};
    std::erase(all, nullptr);
    return all;
  }();
  return list;
}

const Conv2dImplementation* find(const std::string& name) {
  if (name.empty()) {
    return nullptr;
  }
  for (const Conv2dImplementation* implementation : cpu_implementations()) {
    if (implementation->name == name) {
      return implementation;
    }
  }
  fail("conv2d", "implementation: expected one of {}, got {}", fmt::join(conv2d_implementations(), ", "), name);
}

const Conv2dImplementation*& forced() {
  static const Conv2dImplementation* implementation = [] {
    const char* name = std::getenv("NORMA_CONV");
    return find(name == nullptr ? "" : name);
  }();
  return implementation;
}

}  // namespace

std::vector<std::string> conv2d_implementations() {
  std::vector<std::string> names;
  for (const Conv2dImplementation* implementation : cpu_implementations()) {
    names.emplace_back(implementation->name);
  }
  return names;
}

void set_conv2d_implementation(const std::string& name) {
  forced() = find(name);
}

const kernels::Conv2dImplementation& kernels::conv2d_implementation(Device device, const Conv2dCase& conv,
                                                                    Conv2dPass pass) {
  if (device.type == DeviceType::cuda) {
    return *conv2d_cuda();
  }
  Conv2dCase wide = conv;
  wide.dtype = is_half(conv.dtype) ? DType::float32 : conv.dtype;
  if (forced() != nullptr && forced()->supports(wide, pass)) {
    return forced()->supports(conv, pass) ? *forced() : *conv2d_through_float();
  }
  for (const Conv2dImplementation* implementation : cpu_implementations()) {
    if (implementation->supports(conv, pass)) {
      return *implementation;
    }
  }
  return *conv2d_through_float();
}

}  // namespace norma
