#include "ops/optimizer/optimizer.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"

#include <span>
#include <string>

namespace norma {
namespace {

/// What one call of a kernel's function takes: the items of one dtype on one device.
template <class Item>
struct Batch {
  Device device;
  DType dtype;
  std::vector<Item> items;
};
template <class Item>
class Batches {
 public:
  void add(const Tensor& like, const Item& item) {
    for (Batch<Item>& batch : batches_) {
      if (batch.device == like.device() && batch.dtype == like.dtype()) {
        batch.items.push_back(item);
        return;
      }
    }
    batches_.push_back({.device = like.device(), .dtype = like.dtype(), .items = {item}});
  }
  [[nodiscard]] auto begin() const { return batches_.begin(); }
  [[nodiscard]] auto end() const { return batches_.end(); }

 private:
  std::vector<Batch<Item>> batches_;
};

const double* numbers_or_null(const Tensor& x) {
  return x.defined() ? x.device_pointer<double>() : nullptr;
}

/// Calls change(table, batch) for each batch, with one entry in a profile: bytes(x) for each x of `all`.
template <class Item, class All, class Bytes, class Change>
void run(const Op& op, const Batches<Item>& batches, const All& all, const Bytes& bytes, const Change& change) {
  const OpScope scope([&] {
    OpWork work{.op = std::string(op)};
    for (const auto& x : all) {
      work.bytes += bytes(x);
    }
    return work;
  });
  for (const Batch<Item>& batch : batches) {
    change(kernels::optimizer_kernels.at(op, batch.device), batch);
  }
}

/// What a step of AdamW or LAMB reads and writes.
template <class Update>
double bytes_of_update(const Update& update) {
  return 2 * bytes_of(update.parameter, update.average, update.square_average) + bytes_of(update.gradient);
}

/// Calls change(table, batch) on the elements of all tensors, and writes them back where they do not lie side by side.
template <class F>
void change_in_place(const Op& op, const Tensors& xs, const F& change) {
  Tensors dense;
  Batches<kernels::ChangedItem> batches;
  for (const Tensor& x : xs) {
    check_floating(op, "x", x);
    dense.push_back(is_non_overlapping_and_dense(x) ? x : copy_of(x));
    batches.add(x, {.count = x.numel(), .x = dense.back().device_pointer()});
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
  const Op op("sgd");
  Batches<kernels::SgdItem> batches;
  for (const SgdUpdate& update : updates) {
    check_device(op, "gradient", update.gradient, update.parameter.device());
    batches.add(update.parameter, {.count = update.parameter.numel(),
                                   .p = update.parameter.device_pointer(),
                                   .gradient = update.gradient.device_pointer(),
                                   .v = pointer_or_null(update.velocity),
                                   .step = update.step,
                                   .changing = update.changing});
  }
  const auto bytes = [](const SgdUpdate& update) {  // parameter and velocity are read and written
    return 2 * bytes_of(update.parameter, update.velocity) + bytes_of(update.gradient);
  };
  run(op, batches, updates, bytes,
      [&](const auto& table, const auto& batch) { table->sgd(batch.dtype, batch.items, numbers_or_null(guard)); });
}

void adamw_step(const std::vector<AdamWUpdate>& updates, const Tensor& guard) {
  const Op op("adamw");
  Batches<kernels::AdamWItem> batches;
  for (const AdamWUpdate& update : updates) {
    check_device(op, "gradient", update.gradient, update.parameter.device());
    batches.add(update.parameter, {.count = update.parameter.numel(),
                                   .p = update.parameter.device_pointer(),
                                   .gradient = update.gradient.device_pointer(),
                                   .m = update.average.device_pointer(),
                                   .v = update.square_average.device_pointer(),
                                   .step = update.step,
                                   .changing = update.changing});
  }
  run(op, batches, updates, bytes_of_update<AdamWUpdate>,
      [&](const auto& table, const auto& batch) { table->adamw(batch.dtype, batch.items, numbers_or_null(guard)); });
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
    batches.add(average, {.count = average.numel(), .to = average.device_pointer(), .from = value.device_pointer()});
    average.bump_version();
  }
  run(
      op, batches, averages, [](const Tensor& average) { return bytes_of(average, average, average); },
      [&](const auto& table, const auto& batch) {
        table->average(batch.dtype, share.device_pointer<double>(), batch.items, numbers_or_null(guard));
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
    batches.add(x, {.count = x.numel(), .x = dense.back().device_pointer(), .sum = sum++});
  }
  run(
      op, batches, dense, [](const Tensor& x) { return bytes_of(x); },
      [](const auto& table, const auto& batch) { table->sums_of_squares(batch.dtype, batch.items); });
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
    check_device(op, "gradient", update.gradient, device);
    // The sums of squares read directions that a guard has left out.
    directions.push_back(guard.defined() ? zeros_like(update.parameter) : empty_like(update.parameter));
    batches.add(update.parameter, {.count = update.parameter.numel(),
                                   .p = update.parameter.device_pointer(),
                                   .gradient = update.gradient.device_pointer(),
                                   .m = update.average.device_pointer(),
                                   .v = update.square_average.device_pointer(),
                                   .u = directions.back().device_pointer(),
                                   .divisor = numbers_or_null(divisor),
                                   .p_squares = square,
                                   .u_squares = square + 1,
                                   .step = update.step,
                                   .changing = update.changing});
    square += 2;
  }
  run(op, batches, updates, bytes_of_update<LambUpdate>, [&](const auto& table, const auto& batch) {
    table->lamb_direction(batch.dtype, batch.items, numbers_or_null(guard));
    std::vector<kernels::SquaresItem> items;
    for (const kernels::LambItem& item : batch.items) {
      items.push_back({.count = item.count, .x = item.p, .sum = item.p_squares});
      items.push_back({.count = item.count, .x = item.u, .sum = item.u_squares});
    }
    table->sums_of_squares(batch.dtype, items);
    table->lamb_move(batch.dtype, batch.items, numbers_or_null(guard));
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
  change_in_place(op, xs, [&](const auto& table, const auto& batch) {
    table->scale(batch.dtype, factor.device_pointer<double>(), batch.items);
  });
}

void cut_off_in_place(std::string_view name, const Tensors& xs, double limit) {
  change_in_place(Op(name), xs,
                  [&](const auto& table, const auto& batch) { table->cut_off(batch.dtype, limit, batch.items); });
}

}  // namespace norma
