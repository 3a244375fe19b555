#include "ops/map_norm/map_norm.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/map_norm/differentiable_parts.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <utility>

namespace norma::norm_kernels {

namespace {

/// Whether the elements of an image lie together, before those of the next.
bool images_lie_apart(const Sizes& sizes, const Strides& strides) {
  for (int64_t axis = 1; axis < sizes.size(); ++axis) {
    if (sizes[0] > 1 && sizes[axis] > 1 && strides[axis] > strides[0]) {
      return false;
    }
  }
  return true;
}

/// Elements before and behind one axis of a dense tensor, in memory.
std::pair<int64_t, int64_t> around(const Sizes& sizes, const Strides& strides, int64_t axis) {
  int64_t outer = 1;
  int64_t inner = 1;
  if (sizes[axis] == 1) {  // its stride says nothing: as if it came first, or behind the images
    const int64_t images = axis == 1 ? sizes[0] : 1;
    return {images, images == 0 ? 0 : sizes.numel() / images};
  }
  for (int64_t other = 0; other < sizes.size(); ++other) {
    if (other != axis && sizes[other] > 1) {
      (strides[other] > strides[axis] ? outer : inner) *= sizes[other];
    }
  }
  return {outer, inner};
}

}  // namespace

MapLayout::MapLayout(const Tensor& x) : sizes_(x.sizes()), wanted_(preserved_strides(x.sizes(), x.strides())) {
  order_ = wanted_;
  auto [outer, inner] = around(sizes_, order_, 1);
  const int64_t images = sizes_[0];
  const bool channels_last = inner == 1;
  if (!images_lie_apart(sizes_, order_) || (outer != images && !channels_last)) {
    order_ = contiguous_strides(sizes_);
    std::tie(outer, inner) = around(sizes_, order_, 1);
  }
  shape_.outer = images;
  shape_.channels = sizes_[1];
  shape_.channels_last = channels_last && inner == 1;
  shape_.inner = shape_.channels_last ? outer / std::max<int64_t>(1, images) : inner;
}

MapLayout::MapLayout(const Tensor& x, int64_t axis)
    : sizes_(x.sizes()), wanted_(preserved_strides(x.sizes(), x.strides())) {
  order_ = wanted_;
  const auto [outer, inner] = around(sizes_, order_, axis);
  shape_.channels = sizes_[axis];
  shape_.channels_last = inner == 1;
  shape_.outer = shape_.channels_last ? 1 : outer;
  shape_.inner = shape_.channels_last ? outer : inner;
}

Tensor MapLayout::empty(DType dtype, Device device) const {
  return empty_strided(sizes_, order_, {.dtype = dtype, .device = device});
}

Tensor MapLayout::in_order(const Tensor& x, DType dtype) const {
  if (x.dtype() == dtype && same_places(sizes_, x.strides(), order_)) {
    return x;
  }
  Tensor result = empty(dtype, x.device());
  copy_into(x, result);
  return result;
}

Tensor MapLayout::in_place(const Tensor& x) const {
  if (order_ == wanted_) {
    return x;
  }
  Tensor result = empty_strided(sizes_, wanted_, {.dtype = x.dtype(), .device = x.device()});
  copy_into(x, result);
  return result;
}

Doubles numbers_from(const Tensor& parameter, int64_t count, double otherwise) {
  if (!parameter.defined()) {
    return Doubles(static_cast<size_t>(count), otherwise);
  }
  const Tensor wide = contiguous_copy(converted(parameter, DType::float64));
  const double* from = wide.data<double>();
  return {from, from + wide.numel()};
}

Doubles for_maps(const MapLayout& layout, const Doubles& of_channels) {
  Doubles result;
  result.reserve(static_cast<size_t>(layout.maps()));
  for (int64_t o = 0; o < layout.shape().outer; ++o) {
    result.insert(result.end(), of_channels.begin(), of_channels.end());
  }
  return result;
}

Doubles parameter_row(const MapLayout& layout, const Tensor& parameter, double otherwise) {
  return for_maps(layout, numbers_from(parameter, layout.channels(), otherwise));
}

Tensor gradient_of(const Tensor& parameter, const Doubles& numbers) {
  return parameter.defined() ? converted(from_vector(numbers, parameter.sizes()), parameter.dtype()) : Tensor{};
}

Doubles over_maps(const MapLayout& layout, const Doubles& of_maps) {
  Doubles sums(static_cast<size_t>(layout.channels()), 0.0);
  for (size_t first = 0; first < of_maps.size(); first += sums.size()) {
    for (size_t c = 0; c < sums.size(); ++c) {
      sums[c] += of_maps[first + c];
    }
  }
  return sums;
}

Tensor statistics_rows_of(std::string_view op, const Tensor& x, const NormSpec& spec, Tensor* var, bool affine) {
  const TensorOptions options{.dtype = compute_dtype(x.dtype()), .device = x.device()};
  const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, affine);
  const int64_t sets = layout.shape().sets();
  const Tensor rows = empty({statistics_rows(spec), sets}, options);
  const Tensor variances = var == nullptr ? Tensor{} : empty({sets}, options);
  forward_kernel(op, layout, spec, /* given= */ false, {.x = x, .rows = rows, .var = variances});
  if (var != nullptr) {
    *var = variances;
  }
  return rows;
}

Doubles row_of(const Tensor& rows, int64_t row) {
  const int64_t sets = rows.size(1);
  Doubles result;
  dispatch_floating("normalize", rows.dtype(), [&](auto tag) {
    const auto* from = rows.data<decltype(tag)>() + row * sets;
    result.assign(from, from + sets);
  });
  return result;
}

namespace {

template <class T>
std::vector<T> flat(const MapRows& rows) {
  std::vector<T> result;
  result.reserve(rows.empty() ? 0 : rows.size() * rows[0].size());
  for (const Doubles& row : rows) {
    result.insert(result.end(), row.begin(), row.end());
  }
  return result;
}

}  // namespace

Tensor map_forward(const MapLayout& layout, const Tensor& x, const MapCall& call, const MapRows& numbers) {
  OpScope::set_implementation("maps");
  Tensor y = layout.empty(x.dtype(), x.device());
  dispatch_stored("normalize", x.dtype(), [&](auto tag) {
    using S = decltype(tag);
    const auto all = flat<Compute<S>>(numbers);
    const MapProblem problem{.function = call.function, .shape = layout.shape(), .relu = call.relu};
    const MapForward<S> arrays{.x = x.data<S>(), .numbers = all.data(), .y = y.data<S>()};
    x.device().type == DeviceType::cpu ? cpu::map_forward(problem, arrays) : cuda::map_forward(problem, arrays);
  });
  return y;
}

MapRows map_sums(const MapLayout& layout, const Tensor& dy, const Tensor& x, const MapCall& call,
                 const MapRows& numbers) {
  OpScope::set_implementation("maps");
  const auto maps = static_cast<size_t>(layout.maps());
  const auto count = static_cast<size_t>(sums_of(call.function));
  Doubles sums(count * maps);
  dispatch_stored("normalize", x.dtype(), [&](auto tag) {
    using S = decltype(tag);
    const auto all = flat<Compute<S>>(numbers);
    const MapProblem problem{.function = call.function, .shape = layout.shape(), .relu = call.relu};
    const MapSums<S> arrays{.dy = dy.data<S>(), .x = x.data<S>(), .numbers = all.data(), .sums = sums.data()};
    x.device().type == DeviceType::cpu ? cpu::map_sums(problem, arrays) : cuda::map_sums(problem, arrays);
  });
  MapRows result;
  for (size_t k = 0; k < count; ++k) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(k * maps);
    result.emplace_back(first, first + static_cast<std::ptrdiff_t>(maps));
  }
  return result;
}

Tensor map_gradient(const MapLayout& layout, const Tensor& dy, const Tensor& x, const MapCall& call,
                    const MapRows& numbers, const MapRows& centred) {
  Tensor dx = layout.empty(x.dtype(), x.device());
  dispatch_stored("normalize", x.dtype(), [&](auto tag) {
    using S = decltype(tag);
    using T = Compute<S>;
    const auto all = flat<T>(numbers);
    const auto five = flat<T>(centred);
    const MapProblem problem{.function = call.function, .shape = layout.shape(), .relu = call.relu};
    const MapGradient<S> arrays{.dy = dy.data<S>(),
                                .x = x.data<S>(),
                                .numbers = all.data(),
                                .centred = five.empty() ? nullptr : five.data(),
                                .dx = dx.data<S>()};
    x.device().type == DeviceType::cpu ? cpu::map_gradient(problem, arrays) : cuda::map_gradient(problem, arrays);
  });
  return dx;
}

Tensor record_own(const OwnNorm& norm) {
  Tensors saved;
  std::vector<bool> is_there;
  for (const Tensor& input : norm.inputs) {
    is_there.push_back(input.defined());
    if (input.defined()) {
      saved.push_back(input);
    }
  }
  const bool with_relu = norm.activation == Activation::relu;
  const size_t statistics_at = saved.size();
  saved.insert(saved.end(), norm.statistics.begin(), norm.statistics.end());
  const Tensor y =
      record(norm.op, norm.inputs, norm.y, saved,
             [op = norm.op, is_there, statistics_at, count = saved.size(), with_relu, composed = norm.composed,
              own = norm.backward](const Tensor& dy, const BackwardContext& c) -> Tensors {
               Tensors inputs;
               size_t at = 0;
               for (const bool there : is_there) {
                 inputs.push_back(there ? c.saved(at++) : Tensor{});
               }
               if (c.create_graph()) {
                 const auto with_activation = [&](const Tensors& in) -> Tensors {
                   const Tensor z = composed(in);
                   return {with_relu ? relu(z) : z};
                 };
                 return gradients_of_composed(with_activation, inputs, {dy}, c);
               }
               Tensors statistics;
               for (at = statistics_at; at < count; ++at) {
                 statistics.push_back(c.saved(at));
               }
               const OpScope scope([&] {
                 return OpWork{.op = std::string(op) + "_backward", .bytes = bytes_of(dy, inputs[0], inputs[0])};
               });
               return own(dy, inputs, statistics);
             });
  return with_relu ? y : activated(y, norm.activation);
}

}  // namespace norma::norm_kernels
