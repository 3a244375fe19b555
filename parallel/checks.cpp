#include "parallel/checks.h"

#include "base/error.h"
#include "core/memory_format.h"

namespace norma::parallel {

void check_dense(std::string_view op, const Tensor& x) {
  check_defined(op, "x", x);
  check(is_non_overlapping_and_dense(x), op, "x: expected elements side by side, got sizes {} with strides {}",
        to_string(x.sizes()), to_string(x.strides()));
}

void check_summand(const Tensor& x) {
  check_dense("all_reduce", x);
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, "all_reduce",
        "x: expected float32 or float64, got {}", to_string(x.dtype()));
}

void check_root(int root, int ranks) {
  check(root >= 0 && root < ranks, "broadcast", "root: expected a rank from 0 to {}, got {}", ranks - 1, root);
}

}  // namespace norma::parallel
