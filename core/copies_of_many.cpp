#include "core/base_ops.h"
#include "core/copy.h"
#include "core/kernels.h"
#include "core/op_profile.h"

#include <map>
#include <tuple>
#include <vector>

namespace norma {

namespace {

/// The pairs that one call of a kernel's function takes, by their device and the dtypes of both.
using Batches = std::map<std::tuple<Device, DType, DType>, std::vector<kernels::CopyItem>>;

void add_to(Batches& batches, const Tensor& from, const Tensor& to) {
  batches[{to.device(), to.dtype(), from.dtype()}].push_back(
      {.count = to.numel(), .to = to.device_pointer(), .from = from.device_pointer()});
}

bool lie_alike(const Tensor& a, const Tensor& b) {
  return a.device() == b.device() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         is_non_overlapping_and_dense(a);
}

}  // namespace

void copy_all_into(const Tensors& from, const Tensors& to) {
  copy_all_into(from, to, Tensor());
}

void copy_all_into(const Tensors& from, const Tensors& to, const Tensor& factor) {
  check(from.size() == to.size(), "copy_all_into", "to: expected {} tensors, got {}", from.size(), to.size());
  Batches batches;
  double bytes = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool is_simple =
        from[i].dtype() == to[i].dtype() || (is_floating(from[i].dtype()) && is_floating(to[i].dtype()));
    if (is_simple && lie_alike(from[i], to[i])) {
      add_to(batches, from[i], to[i]);
      bytes += bytes_of(from[i], to[i]);
      to[i].bump_version();
      continue;
    }
    check(!factor.defined(), "copy_all_into", "from: expected dense tensors that lie as those of `to`, got {} for {}",
          describe(from[i]), describe(to[i]));
    copy_into(from[i], to[i]);
  }
  if (batches.empty()) {
    return;
  }
  const OpScope scope([&] { return OpWork{.op = "copy", .bytes = bytes}; });
  const auto* by = factor.defined() ? factor.device_pointer<double>() : nullptr;
  for (const auto& [key, items] : batches) {
    const auto& [device, to_dtype, from_dtype] = key;
    kernels::tensor_kernels.at("copy_all_into", device)->copy_all(to_dtype, from_dtype, by, items);
  }
}

void accumulate_all_into(const Tensors& sums, const Tensors& xs) {
  Batches batches;
  double bytes = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (lie_alike(sums[i], xs[i]) && sums[i].dtype() == xs[i].dtype()) {
      add_to(batches, xs[i], sums[i]);
      bytes += bytes_of(sums[i], sums[i], xs[i]);
      sums[i].bump_version();
    } else {
      accumulate_into(sums[i], xs[i]);
    }
  }
  if (batches.empty()) {
    return;
  }
  const OpScope scope([&] { return OpWork{.op = "accumulate", .bytes = bytes}; });
  for (const auto& [key, items] : batches) {
    kernels::tensor_kernels.at("accumulate", std::get<Device>(key))->add_all(std::get<1>(key), items);
  }
}

}  // namespace norma
