#include "core/base_ops.h"
#include "core/copy.h"
#include "core/kernels.h"
#include "core/op_profile.h"

#include <utility>

namespace norma {

namespace {

/// The pairs of one device and two dtypes that lie alike, which one call of a kernel's function takes.
struct Batch {
  Device device;
  DType to_dtype;
  DType from_dtype;
  std::vector<kernels::CopyItem> items;
};

class Batches {
 public:
  void add(const Tensor& from, const Tensor& to) {
    const kernels::CopyItem item{.count = to.numel(), .to = to.device_pointer(), .from = from.device_pointer()};
    for (Batch& batch : batches_) {
      if (batch.device == to.device() && batch.to_dtype == to.dtype() && batch.from_dtype == from.dtype()) {
        batch.items.push_back(item);
        return;
      }
    }
    batches_.push_back({.device = to.device(), .to_dtype = to.dtype(), .from_dtype = from.dtype(), .items = {item}});
  }
  [[nodiscard]] bool empty() const { return batches_.empty(); }
  [[nodiscard]] auto begin() const { return batches_.begin(); }
  [[nodiscard]] auto end() const { return batches_.end(); }

 private:
  std::vector<Batch> batches_;
};

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
      batches.add(from[i], to[i]);
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
  for (const Batch& batch : batches) {
    kernels::tensor_kernels.at("copy_all_into", batch.device)
        ->copy_all(batch.to_dtype, batch.from_dtype, by, batch.items);
  }
}

void accumulate_all_into(const Tensors& sums, const Tensors& xs) {
  Batches batches;
  double bytes = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (lie_alike(sums[i], xs[i]) && sums[i].dtype() == xs[i].dtype()) {
      batches.add(xs[i], sums[i]);
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
  for (const Batch& batch : batches) {
    kernels::tensor_kernels.at("accumulate", batch.device)->add_all(batch.to_dtype, batch.items);
  }
}

}  // namespace norma
