#include "nn/dropout.h"

#include "ops/random/dropout.h"

namespace norma::nn {
namespace {

double checked_rate(std::string_view op, double rate) {
  check(rate >= 0 && rate <= 1, op, "rate: expected a value in [0, 1], got {}", rate);
  return rate;
}

}  // namespace

Dropout::Dropout(double rate) : rate_(checked_rate("Dropout", rate)) {}
Tensor Dropout::forward(const Tensor& x) {
  return dropout(x, rate_, is_training());
}

DropPath::DropPath(double rate) : rate_(checked_rate("DropPath", rate)) {}
Tensor DropPath::forward(const Tensor& x) {
  return drop_path(x, rate_, is_training());
}

}  // namespace norma::nn
