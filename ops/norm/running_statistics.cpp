#include "ops/norm/running_statistics.h"

#include "core/copy.h"
#include "core/factory.h"
#include "ops/norm/kernels.h"
#include "ops/pointwise/pointwise.h"

namespace norma::norm_detail {

void update_running(std::string_view op, const Tensor& running, const Tensor& batch, double momentum, double factor) {
  const Tensor before = in_float64(running);
  const Tensor now = in_float64(batch);
  const Tensor after = empty(running.sizes(), {.dtype = DType::float64, .device = running.device()});
  kernels::norm_kernels.at(op, running.device())
      ->update_running(running.numel(), before.device_pointer<double>(), now.device_pointer<double>(), momentum, factor,
                       after.device_pointer<double>());
  copy_into(after, running);
  running.bump_version();
}

void count_batch(Tensor batches) {
  if (batches.defined()) {
    add_(batches, 1);
  }
}

Tensor fixed_stats_of(std::string_view op, const Tensor& mean, const Tensor& var, double eps, DType dtype) {
  const int64_t count = mean.numel();
  const Tensor stats = zeros({kernels::kStatsRows, count}, {.dtype = dtype, .device = mean.device()});
  copy_into(mean, alias(stats, {count}, {1}, kernels::kMeanRow * count));
  const Tensor rstd = alias(stats, {count}, {1}, kernels::kRstdRow * count);
  kernels::norm_kernels.at(op, mean.device())
      ->rstd(dtype, count, in_float64(var).device_pointer<double>(), eps, rstd.device_pointer());
  return stats;
}

}  // namespace norma::norm_detail
