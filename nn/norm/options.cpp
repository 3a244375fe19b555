#include "nn/norm/options.h"

#include "base/error.h"
#include "base/parse_number.h"
#include "nn/norm/factory.h"

#include <fmt/format.h>

namespace norma::nn {

std::string norm_option_text(bool affine, Statistics statistics, bool bias, bool offset) {
  std::string text = !affine ? ", affine=false" : !bias ? ", bias=false" : "";
  text += offset ? ", offset=true" : "";
  if (statistics != Statistics::stable) {
    text += fmt::format(", statistics={}", to_string(statistics));
  }
  return text;
}

int64_t least_channels(const NormChoice& choice) {
  const auto option = choice.options.find("groups");
  const int64_t by_option = option == choice.options.end() ? 1 : parse_number<int64_t>(option->second).value_or(1);
  return choice.groups.value_or(choice.channels_per_group.value_or(by_option));
}

void check_eps(std::string_view layer, double eps) {
  check(eps >= 0, layer, "eps: expected a value >= 0, got {}", eps);
}

void check_momentum(std::string_view layer, double momentum) {
  check(momentum >= 0 && momentum <= 1, layer, "momentum: expected a value in [0, 1], got {}", momentum);
}

void check_momentum(std::string_view layer, std::optional<double> momentum) {
  check(!momentum || (*momentum >= 0 && *momentum <= 1), layer, "momentum: expected a value in [0, 1] or none, got {}",
        momentum.value_or(0));
}

void check_offset(std::string_view layer, bool affine, bool offset) {
  check(affine || !offset, layer, "offset: expected false where affine=false leaves out the weight, got true");
}

void check_norm_input(std::string_view op, const Tensor& x, int64_t channels, int64_t low, int64_t high) {
  check_defined(op, "x", x);
  if (low == high) {
    check_rank(op, "x", x, low);
  }
  check(x.rank() >= low && x.rank() <= high, op, "x: expected rank {} to {}, got rank {} (sizes {})", low, high,
        x.rank(), x.sizes());
  check(x.size(1) == channels, op, "x: expected {} channels, got {} (sizes {})", channels, x.size(1), x.sizes());
}

}  // namespace norma::nn
