#include "nn/init.h"

#include "core/factory.h"
#include "core/tape.h"

#include <cmath>

namespace norma::nn {
namespace {

double fan_of(std::string_view op, const Tensor& weight, Fan fan) {
  check_defined(op, "weight", weight);
  check(weight.rank() >= 2, op, "weight: expected rank 2 or more, got rank {} (sizes {})", weight.rank(),
        weight.sizes());
  const int64_t dropped = weight.size(fan == Fan::in ? 0 : 1);
  return dropped == 0 ? 1.0 : static_cast<double>(weight.numel()) / static_cast<double>(dropped);
}

}  // namespace

void kaiming_normal_(const Tensor& weight, Fan fan, double gain, Generator& generator) {
  const NoGradGuard no_grad;
  const double std = gain / std::sqrt(fan_of("kaiming_normal_", weight, fan));
  normal_(weight.detach(), /* mean= */ 0, std, generator);
}

void kaiming_uniform_(const Tensor& weight, Fan fan, double gain, Generator& generator) {
  const NoGradGuard no_grad;
  const double bound = gain * std::sqrt(3.0 / fan_of("kaiming_uniform_", weight, fan));
  uniform_(weight.detach(), -bound, bound, generator);
}

void trunc_normal_(const Tensor& weight, double std, Generator& generator) {
  const NoGradGuard no_grad;
  truncated_normal_(weight.detach(), /* mean= */ 0, std, /* low= */ -2, /* high= */ 2, generator);
}

void constant_(const Tensor& x, double value) {
  const NoGradGuard no_grad;
  fill_(x.detach(), value);
}

void default_init_(const Tensor& weight, const Tensor& bias, Generator& generator) {
  const double bound = 1.0 / std::sqrt(fan_of("default_init_", weight, Fan::in));
  kaiming_uniform_(weight, Fan::in, /* gain= */ 1 / std::sqrt(3.0), generator);
  if (bias.defined()) {
    const NoGradGuard no_grad;
    uniform_(bias.detach(), -bound, bound, generator);
  }
}

}  // namespace norma::nn
