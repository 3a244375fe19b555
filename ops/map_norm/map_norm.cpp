#include "ops/map_norm/map_norm.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace norma::norm_detail {

namespace {

/// True iff the elements of an image lie together, before those of the next.
bool images_lie_apart(const Sizes& sizes, const Strides& strides) {
  for (int64_t axis = 1; axis < sizes.size(); ++axis) {
    if (sizes[0] > 1 && sizes[axis] > 1 && strides[axis] > strides[0]) {
      return false;
    }
  }
  return true;
}

/// The numbers of elements before and after one axis of a dense tensor, in memory.
std::pair<int64_t, int64_t> around(const Sizes& sizes, const Strides& strides, int64_t axis) {
  int64_t outer = 1;
  int64_t inner = 1;
  if (sizes[axis] == 1) {  // its stride says nothing: it may come first, or after the images
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

/// x with another dtype and strides. Its gradient has x's dtype and strides, or the nearest dense strides.
Tensor laid_out(const Tensor& x, DType dtype, const Strides& strides) {
  const bool lies_so = x.dtype() == dtype && x.strides() == strides;
  const Tensor y = lies_so ? x.detach() : copy_of(x, strides, dtype);  // a handle with a place of its own on the tape
  return Op("laid_out")
      .record({x}, y, {},
              [from_dtype = x.dtype(), from_strides = preserved_strides(x.sizes(), x.strides())](
                  const Tensor& dy, const BackwardContext&) -> Tensors {
                return {laid_out(dy, from_dtype, from_strides)};
              });
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
  return x.dtype() == dtype && same_places(sizes_, x.strides(), order_) ? x : copy_of(x, order_, dtype);
}

Tensor MapLayout::copy_back(const Tensor& in_order) const {
  return order_ == wanted_ ? in_order : copy_of(in_order, wanted_, in_order.dtype());
}

namespace {

/// The inputs and the statistics that record_map_norm() saved.
std::pair<Tensors, Tensors> saved_parts(const BackwardContext& c, size_t input_count, size_t saved_count) {
  std::pair<Tensors, Tensors> parts;
  for (size_t i = 0; i < saved_count; ++i) {
    (i < input_count ? parts.first : parts.second).push_back(c.saved(i));
  }
  return parts;
}

}  // namespace

Tensor record_map_norm(const RecordedMapNorm& norm) {
  const bool with_relu = norm.activation == Activation::relu;
  Tensors saved = norm.inputs;
  saved.insert(saved.end(), norm.stats.begin(), norm.stats.end());
  const Tensor y = Op(norm.op).record(
      norm.inputs, norm.y, saved,
      [op = norm.op, input_count = norm.inputs.size(), saved_count = saved.size(), with_relu, composed = norm.composed,
       backward = norm.backward](const Tensor& dy, const BackwardContext& c) -> Tensors {
        const auto [inputs, stats] = saved_parts(c, input_count, saved_count);
        if (c.create_graph()) {
          const auto with_activation = [&](const Tensors& in) -> Tensors {
            const Tensor z = composed(in);
            return {with_relu ? relu(z) : z};
          };
          return gradients_of_composed(with_activation, inputs, {dy}, c);
        }
        const OpScope scope(
            [&, &x = inputs[0]] { return OpWork{.op = std::string(op) + "_backward", .bytes = bytes_of(dy, x, x)}; });
        return backward(dy, inputs, stats);
      });
  if (norm.forward) {
    remake_by(y, [op = norm.op, input_count = norm.inputs.size(), saved_count = saved.size(),
                  forward = norm.forward](const BackwardContext& c) {
      const auto [inputs, stats] = saved_parts(c, input_count, saved_count);
      const OpScope scope([&, &x = inputs[0]] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
      return forward(inputs, stats);
    });
  }
  return with_relu ? y : activate(y, norm.activation);
}

Tensor map_stats(std::string_view op, const Tensor& x, const NormSpec& spec, Tensor* var) {
  const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, /* affine= */ false);
  return compute_stats(op, layout, x, spec, var);
}

namespace {

/// A MapFunction and the arguments of its kernels in one call.
class MapCall {
 public:
  MapCall(const MapNorm& norm, const Tensors& inputs, const MapLayout& layout, const Tensors& stats)
      : op_(norm.op),
        dtype_(inputs[0].dtype()),
        device_(inputs[0].device()),
        counts_(kernels::map_counts(norm.function)),
        problem_{.function = norm.function, .shape = layout.shape(), .relu = norm.activation == Activation::relu},
        sources_{.fixed_stats = norm.fixed_stats, .eps = norm.eps} {
    for (size_t i = 1; i < inputs.size(); ++i) {
      parameters_[i - 1] = in_float64(inputs[i]);
      sources_.parameters[i - 1] = static_cast<const double*>(pointer_or_null(parameters_[i - 1]));
    }
    for (size_t i = 0; i < stats.size(); ++i) {
      sources_.stats[i] = stats[i].device_pointer();
    }
    sources_.sets = stats.empty() ? 0 : stats[0].size(1);
    numbers_ = per_map(counts_.numbers, compute_dtype(dtype_));
    table()->numbers(dtype_, problem_, sources_, numbers_.device_pointer());
  }

  /// Computes y. All tensors are in the order of the layout, here and below.
  [[nodiscard]] Tensor forward(const MapLayout& layout, const Tensor& x) const {
    OpScope::set_implementation("maps");
    Tensor y = layout.empty(dtype_, device_);
    table()->forward(dtype_, problem_,
                     {.x = x.device_pointer(), .numbers = numbers_.device_pointer(), .result = y.device_pointer()});
    return y;
  }

  /// Computes dx; `gradients` receives the gradients of the parameters that are defined there.
  [[nodiscard]] Tensor backward(const MapLayout& layout, const Tensor& dy, const Tensor& x,
                                const std::array<Tensor, kernels::kMaxMapParameters>& gradients) const {
    OpScope::set_implementation("maps");
    const Tensor sums = per_map(counts_.sums, DType::float64);
    const bool has_stats = sources_.stats[0] != nullptr;
    const Tensor through_stats = has_stats ? per_map(kernels::kThroughStatsRows, compute_dtype(dtype_)) : Tensor{};
    Tensor dx = layout.empty(dtype_, device_);
    const kernels::MapArrays arrays{.dy = dy.device_pointer(),
                                    .x = x.device_pointer(),
                                    .numbers = numbers_.device_pointer(),
                                    .through_stats = pointer_or_null(through_stats),
                                    .sums = sums.device_pointer<double>(),
                                    .result = dx.device_pointer()};
    table()->sums(dtype_, problem_, arrays);
    kernels::MapNumbersBackward numbers{.sums = arrays.sums, .through_stats = pointer_or_null(through_stats)};
    for (size_t i = 0; i < gradients.size(); ++i) {
      numbers.parameters[i] = static_cast<double*>(pointer_or_null(gradients[i]));
    }
    table()->numbers_backward(dtype_, problem_, sources_, numbers);
    if (has_stats) {
      table()->gradient(dtype_, problem_, arrays);
    }
    return dx;
  }

 private:
  [[nodiscard]] KernelCall<kernels::MapNormKernels> table() const { return kernels::map_norm_kernels.at(op_, device_); }
  [[nodiscard]] Tensor per_map(int64_t rows, DType dtype) const {
    return empty({rows, problem_.shape.maps()}, {.dtype = dtype, .device = device_});
  }

  std::string_view op_;
  DType dtype_;
  Device device_;
  kernels::MapCounts counts_;
  kernels::MapProblem problem_;
  kernels::MapSources sources_;
  std::array<Tensor, kernels::kMaxMapParameters> parameters_;  ///< in float64
  Tensor numbers_;
};

MapLayout layout_of(const MapNorm& norm, const Tensor& x) {
  return norm.axis ? MapLayout(x, *norm.axis) : MapLayout(x);
}

/// y of an x in the order of the layout.
Tensor map_norm_forward(const MapNorm& norm, const Tensors& inputs, const MapLayout& layout, const Tensor& in_order,
                        const Tensors& stats) {
  return layout.copy_back(MapCall(norm, inputs, layout, stats).forward(layout, in_order));
}

Tensors map_norm_backward(const MapNorm& norm, const Tensor& dy, const Tensors& inputs, const Tensors& stats) {
  const Tensor& x = inputs[0];
  const MapLayout layout = layout_of(norm, x);
  const MapCall call(norm, inputs, layout, stats);
  std::array<Tensor, kernels::kMaxMapParameters> gradients;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].defined()) {
      gradients[i - 1] = empty(inputs[i].sizes(), {.dtype = DType::float64, .device = x.device()});
    }
  }
  const Tensor dx = call.backward(layout, layout.in_order(dy, x.dtype()), layout.in_order(x, x.dtype()), gradients);
  Tensors result{layout.copy_back(dx)};
  for (size_t i = 1; i < inputs.size(); ++i) {
    result.push_back(inputs[i].defined() ? converted(gradients[i - 1], inputs[i].dtype()) : Tensor{});
  }
  return result;
}

}  // namespace

Tensor map_norm(const MapNorm& norm, const Tensors& inputs, const std::function<Tensors(const Tensor& x)>& stats_of) {
  const Tensor& x = inputs[0];
  if (x.numel() == 0 || in_parts()) {
    return activate(norm.composed(inputs), norm.activation);
  }
  const OpScope scope([&] { return OpWork{.op = std::string(norm.op), .bytes = bytes_of(x, x)}; });
  const MapLayout layout = layout_of(norm, x);
  const Tensor in_order = layout.in_order(x, x.dtype());
  const Tensors stats = stats_of ? stats_of(in_order) : Tensors{};
  RecordedMapNorm recorded{.op = norm.op,
                           .activation = norm.activation,
                           .inputs = inputs,
                           .stats = stats,
                           .y = map_norm_forward(norm, inputs, layout, in_order, stats),
                           .composed = norm.composed,
                           .backward = [norm](const Tensor& dy, const Tensors& in, const Tensors& saved_stats) {
                             return map_norm_backward(norm, dy, in, saved_stats);
                           }};
  if (remakes_outputs()) {
    recorded.forward = [norm](const Tensors& in, const Tensors& saved_stats) {
      const MapLayout same = layout_of(norm, in[0]);
      return map_norm_forward(norm, in, same, same.in_order(in[0], in[0].dtype()), saved_stats);
    };
  }
  return record_map_norm(recorded);
}

Tensor computed_in(DType dtype, const Tensor& x) {
  return laid_out(x, dtype, x.dtype() == dtype ? x.strides() : preserved_strides(x.sizes(), x.strides()));
}

Tensor in_compute_dtype(const Tensor& x) {
  return computed_in(compute_dtype(x.dtype()), x);
}

Tensor back_to(const Tensor& x, const Tensor& y) {
  return laid_out(y, x.dtype(), preserved_strides(x.sizes(), x.strides()));
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  return x.defined() ? to(x, dtype) : x;
}

Tensor along_channels(const Tensor& parameter, const Tensor& x, int64_t axis) {
  Sizes sizes = Sizes::filled(x.rank(), 1);
  sizes[axis] = x.size(axis);
  return reshape(to(parameter, x.dtype()), sizes);
}

Tensor scale_and_shift(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t axis) {
  const Tensor scaled = weight.defined() ? mul(x, along_channels(weight, x, axis)) : x;
  return bias.defined() ? add(scaled, along_channels(bias, x, axis)) : scaled;
}

Tensor deviation(std::string_view op, const Tensor& x, const NormSpec& spec) {
  const Sizes sizes = sizes_of_sets(x.sizes(), spec);
  const TensorOptions options{.dtype = x.dtype(), .device = x.device()};
  Tensor result = zeros(sizes, options);
  if (x.numel() > 0) {
    const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, /* affine= */ false);
    const Tensor stats = compute_stats(op, layout, x, spec);
    const Tensor rstd = layout.per_set(stats_row(stats, kernels::kRstdRow), sizes);
    result = div(full({}, 1, options), rstd);
  }
  Op recorded("deviation");
  recorded.describe({{"reduce", spec.reduce}, {"eps", spec.eps}, {"centring", static_cast<int64_t>(spec.centring)}});
  return recorded.record({x}, result, {x, result}, [spec](const Tensor& dy, const BackwardContext& c) -> Tensors {
    // dx = (x - mean) / deviation / n * dy. A set whose deviation is 0 has no gradient; the formula would give NaN.
    const auto [from, of] = c.saved<2>();
    const double count = static_cast<double>(from.numel()) / static_cast<double>(of.numel());
    const Tensor is_zero = equal(of, zeros_like(of));
    const Tensor safe = where(is_zero, ones_like(from), from);
    const Tensor xhat = normalize(
        safe, {.reduce = spec.reduce, .statistics = spec.statistics, .eps = spec.eps, .centring = spec.centring});
    return {where(is_zero, zeros_like(from), mul(xhat, mul(dy, 1 / count)))};
  });
}

Tensor inverse_power_of_two(std::string_view op, const Tensor& x) {
  const Tensor inverse = contiguous_copy(div(full({}, 1, {.dtype = x.dtype(), .device = x.device()}), x.detach()));
  Tensor result = empty_like(inverse);
  kernels::norm_kernels.at(op, x.device())
      ->power_of_two(x.dtype(), x.numel(), inverse.device_pointer(), result.device_pointer());
  Op("inverse_power_of_two").note({x}, result);
  return result;
}

}  // namespace norma::norm_detail
