#include "ops/loss/classes.h"

#include "core/error.h"
#include "ops/loss/kernels.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <string>

namespace norma {

bool check_classes(std::string_view op, const Tensor& classes, int64_t count, std::optional<int64_t> ignored) {
  const auto find = kernels::loss_kernels.table(op, classes.device()).find_no_class;
  if (find == nullptr) {
    return false;
  }
  const Tensor dense = contiguous(classes);
  const int64_t ignore_index = ignored.value_or(0);  // 0 is a class, so no other number passes
  const int64_t row =
      find({.rows = dense.numel(), .classes = count, .ignore_index = ignore_index}, dense.device_pointer<int64_t>());
  if (row >= 0) {
    const std::string or_ignored = ignored ? fmt::format(" or {}", *ignored) : "";
    fail(op, "target: expected classes in [0, {}){}, got {} at index {}", count, or_ignored,
         select(dense, 0, row).item<int64_t>(), row);
  }
  return true;
}

}  // namespace norma
