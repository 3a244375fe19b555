#include "ops/optimizer/optimizer.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace norma {
namespace {

/// What one call of a kernel's function takes: the items of one dtype on one device.
template <class Item>
using Batches = std::map<std::pair<Device, DType>, std::vector<Item>>;

template <class Item>
void add_to(Batches<Item>& batches, const Tensor& like, const Item& item) {
  batches[{like.device(), like.dtype()}].push_back(item);
}

const double* numbers_or_null(const Tensor& x) {
  return x.defined() ? x.device_pointer<double>() : nullptr;
}

/// Calls change(table, dtype, items) for each batch, with one entry in a profile: bytes(x) for each x of `all`.
template <class Item, class All, class Bytes, class Change>
void run(const Op& op, const Batches<Item>& batches, const All& all, const Bytes& bytes, const Change& change) {
  const OpScope scope([&] {
    OpWork work{.op = std::string(op)};
    for (const auto& x : all) {
      work.bytes += bytes(x);
    }
    return work;
  });
  for (const auto& [key, items] : batches) {
    change(kernels::optimizer_kernels.at(op, key.first), key.second, items);
  }
}

/// What a step reads and writes: only the gradient is not written.
template <class Update>
double bytes_of_update(const Update& update) {
  return 2 * bytes_of(update.parameter, update.average, update.square_average) + bytes_of(update.gradient);
}

/// An update as kernels take it.
template <class Step>
kernels::StepItem<Step> item_of(const Op& op, const StepUpdate<Step>& update) {
  check_device(op, "gradient", update.gradient, update.parameter.device());
  return {.count = update.parameter.numel(),
          .p = update.parameter.device_pointer(),
          .gradient = update.gradient.device_pointer(),
          .m = pointer_or_null(update.average),
          .v = pointer_or_null(update.square_average),
          .result = update.parameter.device_pointer(),
          .step = update.step,
          .changing = update.changing};
}

/// One step by this kernel.
template <class Step, class Kernel>
void make_step(const Op& op, const std::vector<StepUpdate<Step>>& updates, const Tensor& guard, Kernel kernel) {
  Batches<kernels::StepItem<Step>> batches;
  for (const StepUpdate<Step>& update : updates) {
    add_to(batches, update.parameter, item_of(op, update));
  }
  run(op, batches, updates, bytes_of_update<StepUpdate<Step>>, [&](const auto& table, DType dtype, const auto& items) {
    ((*table).*kernel)(dtype, items, numbers_or_null(guard));
  });
}

/// Calls change(table, dtype, items) on the elements of all tensors, and writes them back where they do not lie side by
/// side.
template <class F>
void change_in_place(const Op& op, const Tensors& xs, const F& change) {
  Tensors dense;
  Batches<kernels::ChangedItem> batches;
  for (const Tensor& x : xs) {
    check_floating(op, "x", x);
    dense.push_back(is_non_overlapping_and_dense(x) ? x : copy_of(x));
    add_to(batches, x, {.count = x.numel(), .x = dense.back().device_pointer()});
  }
  run(
      op, batches, dense, [](const Tensor& x) { return bytes_of(x, x); }, change);
  for (size_t i = 0; i < xs.size(); ++i) {
    if (dense[i].is_same(xs[i])) {
      xs[i].bump_version();
    } else {
      copy_into(dense[i], xs[i]);
    }
  }
}

}  // namespace

void sgd_step(const std::vector<SgdUpdate>& updates, const Tensor& guard) {
  make_step(Op("sgd"), updates, guard, &kernels::OptimizerKernels::sgd);
}

void adamw_step(const std::vector<AdamWUpdate>& updates, const Tensor& guard) {
  make_step(Op("adamw"), updates, guard, &kernels::OptimizerKernels::adamw);
}

void average_into(const Tensors& averages, const Tensors& values, const Tensor& share, const Tensor& guard) {
  const Op op("average");
  Batches<kernels::CopyItem> batches;
  for (size_t i = 0; i < averages.size(); ++i) {
    const Tensor& average = averages[i];
    const Tensor& value = values.at(i);
    check_sizes(op, "value", value, average.sizes());
    check_dtype(op, "value", value, average.dtype());
    check_device(op, "value", value, share.device());
    check(is_non_overlapping_and_dense(average) && average.strides() == value.strides(), op,
          "value: expected dense strides, those of the average, got {} for {}", describe(value), describe(average));
    add_to(batches, average,
           {.count = average.numel(), .to = average.device_pointer(), .from = value.device_pointer()});
    average.bump_version();
  }
  run(
      op, batches, averages, [](const Tensor& average) { return bytes_of(average, average, average); },
      [&](const auto& table, DType dtype, const auto& items) {
        table->average(dtype, share.device_pointer<double>(), items, numbers_or_null(guard));
      });
}

Tensor sums_of_squares(const Tensors& xs, Device device) {
  const Op op("sum_of_squares");
  const Tensor sums = empty({static_cast<int64_t>(xs.size())}, {.dtype = DType::float64, .device = device});
  auto* sum = sums.device_pointer<double>();
  Tensors dense;
  Batches<kernels::SquaresItem> batches;
  for (const Tensor& x : xs) {
    check_floating(op, "x", x);
    check_device(op, "x", x, device);
    dense.push_back(is_non_overlapping_and_dense(x) ? x : copy_of(x));
    add_to(batches, x, {.count = x.numel(), .x = dense.back().device_pointer(), .sum = sum++});
  }
  run(
      op, batches, dense, [](const Tensor& x) { return bytes_of(x); },
      [](const auto& table, DType dtype, const auto& items) { table->sums_of_squares(dtype, items); });
  return sums;
}

namespace {

/// One step for updates whose directions fit into memory at once.
void lamb_step_of(std::span<const LambUpdate> updates, const Tensor& divisor, const Tensor& guard) {
  const Op op("lamb");
  Batches<kernels::LambItem> batches;
  Tensors directions;  // until the kernels have been launched
  const Device device = updates[0].parameter.device();
  const Tensor squares = empty({2 * static_cast<int64_t>(updates.size())}, {.dtype = DType::float64, .device = device});
  auto* square = squares.device_pointer<double>();
  for (const LambUpdate& update : updates) {
    check_device(op, "parameter", update.parameter, device);
    kernels::LambItem item = item_of(op, update);
    // The sums of squares read directions that a guard has left out.
    directions.push_back(guard.defined() ? zeros_like(update.parameter) : empty_like(update.parameter));
    item.result = directions.back().device_pointer();
    item.divisor = numbers_or_null(divisor);
    item.squares = square;
    add_to(batches, update.parameter, item);
    square += 2;
  }
  run(op, batches, updates, bytes_of_update<LambUpdate>, [&](const auto& table, DType dtype, const auto& items) {
    table->lamb_direction(dtype, items, numbers_or_null(guard));
    std::vector<kernels::SquaresItem> both;
    for (const kernels::LambItem& item : items) {
      both.push_back({.count = item.count, .x = item.p, .sum = item.squares});
      both.push_back({.count = item.count, .x = item.result, .sum = item.squares + 1});
    }
    table->sums_of_squares(dtype, both);
    table->lamb_move(dtype, items, numbers_or_null(guard));
  });
}

}  // namespace

void lamb_step(const std::vector<LambUpdate>& updates, const Tensor& divisor, const Tensor& guard) {
  if (divisor.defined() && !updates.empty()) {
    check_device("lamb", "divisor", divisor, updates[0].parameter.device());
  }
  // Directions need as much memory as their parameters: they are made and followed in groups.
  constexpr double kMostDirections = 64 << 20;
  double bytes = 0;
  size_t first = 0;
  for (size_t i = 0; i < updates.size(); ++i) {
    bytes += bytes_of(updates[i].parameter);
    if (bytes >= kMostDirections || i + 1 == updates.size()) {
      lamb_step_of(std::span(updates).subspan(first, i + 1 - first), divisor, guard);
      first = i + 1;
      bytes = 0;
    }
  }
}

Tensor clipping_of(const Tensor& sums, double max_norm) {
  const Tensor norm_and_factor = empty({2}, {.dtype = DType::float64, .device = sums.device()});
  kernels::optimizer_kernels.at("clipping", sums.device())
      ->clipping(sums.numel(), sums.device_pointer<double>(), max_norm, norm_and_factor.device_pointer<double>());
  return norm_and_factor;
}

void scale_in_place(std::string_view name, const Tensors& xs, const Tensor& factor) {
  const Op op(name);
  for (const Tensor& x : xs) {
    check_device(op, "x", x, factor.device());
  }
  change_in_place(op, xs, [&](const auto& table, DType dtype, const auto& items) {
    table->scale(dtype, factor.device_pointer<double>(), items);
  });
}

void cut_off_in_place(std::string_view name, const Tensors& xs, double limit) {
  change_in_place(Op(name), xs,
                  [&](const auto& table, DType dtype, const auto& items) { table->cut_off(dtype, limit, items); });
}

}  // namespace norma
