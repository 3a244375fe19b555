#include "nn/pool.h"

namespace norma::nn {
namespace {

std::string pool_name(std::string_view type, const Pool2dOptions& options) {
  const Pair stride(options.stride.h == 0 ? options.kernel.h : options.stride.h,
                    options.stride.w == 0 ? options.kernel.w : options.stride.w);
  return fmt::format("{}(kernel=({}, {}), stride=({}, {}), padding=({}, {}))", type, options.kernel.h, options.kernel.w,
                     stride.h, stride.w, options.padding.h, options.padding.w);
}

}  // namespace

std::string MaxPool2d::name() const {
  return pool_name("MaxPool2d", options_);
}
std::string AvgPool2d::name() const {
  return pool_name("AvgPool2d", options_);
}
std::string AdaptiveAvgPool2d::name() const {
  return fmt::format("AdaptiveAvgPool2d(({}, {}))", output_.h, output_.w);
}

}  // namespace norma::nn
