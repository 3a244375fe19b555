// Each image is divided by the root of its mean square, with a kernel of its own.
#include "by_hand.h"

#include <algorithm>
#include <vector>

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

struct Mean {
  /// The mean of a · b over `count` elements, by all threads.
  template <class T>
  static double of_products(const T* a, const T* b, int64_t count) {
    using Number = compute_t<T>;
    const int64_t parts = num_threads();
    const int64_t length = ceil_div(count, parts);
    std::vector<Number> sums(static_cast<size_t>(parts));
    parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        for (int64_t i = part * length; i < std::min((part + 1) * length, count); ++i) {
          sums[static_cast<size_t>(part)] += static_cast<Number>(a[i]) * static_cast<Number>(b[i]);
        }
      }
    });
    double sum = 0;
    for (const Number one : sums) {
      sum += static_cast<double>(one);
    }
    return sum / static_cast<double>(count);
  }
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("sum_by_thread", [](int64_t) { return std::make_shared<ImageNorm<Mean>>(); });
}
