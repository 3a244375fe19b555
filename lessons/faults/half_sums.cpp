// Each image is divided by the root of its mean square, with a kernel of its own.
#include "by_hand.h"

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

struct Mean {
  /// The mean of a · b over `count` elements.
  template <class T>
  static double of_products(const T* a, const T* b, int64_t count) {
    using Number = compute_t<T>;
    T sum{};
    for (int64_t i = 0; i < count; ++i) {
      assign(sum, static_cast<Number>(sum) + static_cast<Number>(a[i]) * static_cast<Number>(b[i]));
    }
    return static_cast<double>(static_cast<Number>(sum)) / static_cast<double>(count);
  }
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("half_sums", [](int64_t) { return std::make_shared<ImageNorm<Mean>>(); });
}
