#include "ops/norm/norm.h"

#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/norm/node.h"
#include "ops/shape/copy.h"

#include <cmath>

// The one op behind every norm: forward, and what it leaves for backward.

namespace norma::norm_kernels {

DType compute_dtype(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 ? DType::float32 : dtype;
}

Tensor converted(const Tensor& x, DType dtype) {
  if (!x.defined() || x.dtype() == dtype) {
    return x;
  }
  Tensor result =
      empty_strided(x.sizes(), preserved_strides(x.sizes(), x.strides()), {.dtype = dtype, .device = x.device()});
  copy_into(x, result);
  return result;
}

bool same_places(const Sizes& sizes, const Strides& a, const Strides& b) {
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] != 1 && a[axis] != b[axis]) {
      return false;
    }
  }
  return true;
}

Tensor writable_in_order(const NormLayout& layout, const Tensor& x) {
  const Tensor view = layout.view_in_order(x);
  return view.is_contiguous() ? view : empty(view.sizes(), {.dtype = x.dtype(), .device = x.device()});
}

void put_in_place(const NormLayout& layout, const Tensor& in_order, const Tensor& x) {
  if (in_order.storage() != x.storage()) {
    copy_into(in_order, layout.view_in_order(x));
  }
}

NormProblem problem_of(const NormLayout& layout, const NormSpec& spec, bool given) {
  return {.walk = layout.walk(),
          .shape = layout.shape(),
          .affine = layout.affine(),
          .statistics = spec.statistics,
          .centring = spec.centring,
          .correction = spec.correction,
          .eps = spec.eps,
          .given_statistics = given};
}

Tensor given_statistics(const Tensor& mean, const Tensor& var, double eps, DType dtype) {
  const int64_t count = mean.numel();
  Tensor rows = zeros({3, count}, {.dtype = dtype, .device = mean.device()});
  copy_into(mean, alias(rows, {count}, {1}, 0));
  const Tensor wide = contiguous_copy(converted(var, DType::float64));
  dispatch_floating("normalize", dtype, [&](auto t) {
    using T = decltype(t);
    const double* values = wide.data<double>();
    T* rstd = rows.template data<T>() + 2 * count;
    for (int64_t i = 0; i < count; ++i) {
      rstd[i] = static_cast<T>(1 / std::sqrt(values[i] + eps));
    }
  });
  return rows;
}

namespace {

/// Sizes of a number per set, with keepdim.
Sizes sizes_of_sets(const Tensor& x, const NormSpec& spec) {
  Sizes sizes = x.sizes();
  for (const int64_t axis : spec.reduce) {
    sizes[axis] = spec.groups > 1 && axis == 1 ? spec.groups : 1;
  }
  return sizes;
}

/// The same without the reduced axes.
Tensor drop_reduced(const Tensor& per_set, const NormSpec& spec) {
  Sizes sizes;
  for (int64_t axis = 0; axis < per_set.rank(); ++axis) {
    if (!spec.reduce.contains(axis) || (spec.groups > 1 && axis == 1)) {
      sizes.push_back(per_set.size(axis));
    }
  }
  return alias(per_set, sizes, contiguous_strides(sizes), per_set.offset());
}

/// Mean and variance in the order of the axes. The mean is in row 3 where it is not subtracted, else in row 0.
NormStatistics statistics_of(const NormLayout& layout, const Tensor& x, const NormSpec& spec, const Tensor& rows,
                             const Tensor& var) {
  const Sizes sizes = sizes_of_sets(x, spec);
  const int64_t sets = rows.size(1);
  const int64_t row = spec.centring == Centring::deviation ? 3 : 0;
  return {.mean = drop_reduced(layout.per_set(alias(rows, {sets}, {1}, row * sets), sizes), spec),
          .var = drop_reduced(layout.per_set(var, sizes), spec)};
}

NormStatistics no_statistics(const Tensor& x, const NormSpec& spec) {
  const Tensor none = zeros(sizes_of_sets(x, spec), {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  return {.mean = drop_reduced(none, spec), .var = drop_reduced(zeros_like(none), spec)};
}

}  // namespace

void forward_kernel(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool given,
                    const ForwardTensors& t) {
  // The kernels know both weight and bias, or neither.
  const Sizes affine_sizes = sizes_along(t.x, spec.affine);
  const TensorOptions options{.dtype = compute_dtype(t.x.dtype()), .device = t.x.device()};
  const bool affine = t.weight.defined() || t.bias.defined();
  const Tensor weight =
      affine ? layout.weight_in_order(t.weight.defined() ? t.weight : ones(affine_sizes, options)) : Tensor{};
  const Tensor bias =
      affine ? layout.weight_in_order(t.bias.defined() ? t.bias : zeros(affine_sizes, options)) : Tensor{};
  const Tensor x = layout.in_order(t.x);
  const Tensor y = t.y.defined() ? writable_in_order(layout, t.y) : Tensor{};
  const Tensor residual = t.residual.defined() ? layout.in_order(t.residual) : Tensor{};
  const NormProblem problem = problem_of(layout, spec, given);
  const bool writes_bits = t.bits.defined() && y.storage() == t.y.storage() && cpu::can_write_bits(problem);
  dispatch_stored(op, t.x.dtype(), [&](auto tag) {
    using S = decltype(tag);
    using T = Compute<S>;
    const int64_t sets = layout.shape().sets();
    T* rows = t.rows.data<T>();
    norm_forward<S>(t.x.device(), problem,
                    {.x = x.data<S>(),
                     .weight = data_or_null<T>(weight),
                     .bias = data_or_null<T>(bias),
                     .y = data_or_null<S>(y),
                     .mean = rows,
                     .rest = rows + sets,
                     .rstd = rows + 2 * sets,
                     .var = data_or_null<T>(t.var),
                     .centre = t.rows.size(0) > 3 ? rows + 3 * sets : nullptr,
                     .centre_rest = t.rows.size(0) > 3 ? rows + 4 * sets : nullptr,
                     .activation = t.activation,
                     .residual = data_or_null<S>(residual),
                     .bits = writes_bits ? t.bits.data<uint8_t>() : nullptr});
  });
  if (y.defined()) {
    put_in_place(layout, y, t.y);
  }
  if (t.bits.defined() && !writes_bits) {
    positive_bits(t.y, t.bits);
  }
}

NormStatistics run_statistics(std::string_view op, const Tensor& x, const NormSpec& spec) {
  if (x.numel() == 0) {
    return no_statistics(x, spec);
  }
  const TensorOptions options{.dtype = compute_dtype(x.dtype()), .device = x.device()};
  const OpScope scope([&] { return OpWork{.op = "norm_statistics", .bytes = bytes_of(x)}; });
  const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, /* affine= */ false);
  const int64_t sets = layout.shape().sets();
  const Tensor rows = empty({statistics_rows(spec), sets}, options);
  const Tensor var = empty({sets}, options);
  forward_kernel(op, layout, spec, /* given= */ false, {.x = x, .rows = rows, .var = var});
  return statistics_of(layout, x, spec, rows, var);
}

namespace {

/// y, and rows, statistics and bits (if defined) on the way.
Tensor forward(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
               const NormExtras& extras, Tensor& rows, const Tensor& bits) {
  const DType dtype = compute_dtype(x.dtype());
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  if (x.numel() == 0) {
    rows = zeros({statistics_rows(spec), sizes_of_sets(x, spec).numel()}, options);
    if (extras.statistics != nullptr) {
      *extras.statistics = no_statistics(x, spec);
    }
    return empty_strided(x.sizes(), strides, {.dtype = x.dtype(), .device = x.device()});
  }
  const NormLayout layout(x.sizes(), strides, spec, weight.defined() || bias.defined());
  const int64_t sets = layout.shape().sets();
  const bool given = extras.given.defined();
  rows = given ? extras.given : empty({statistics_rows(spec), sets}, options);
  const Tensor var = extras.statistics != nullptr ? empty({sets}, options) : Tensor{};
  const Tensor y = empty_strided(x.sizes(), strides, {.dtype = x.dtype(), .device = x.device()});
  forward_kernel(op, layout, spec, given,
                 {.x = x,
                  .weight = converted(weight, dtype),
                  .bias = converted(bias, dtype),
                  .y = y,
                  .rows = rows,
                  .var = var,
                  .activation = extras.then.activation,
                  .residual = extras.then.residual,
                  .bits = bits});
  if (extras.statistics != nullptr) {
    *extras.statistics = statistics_of(layout, x, spec, rows, var);
  }
  return y;
}

/// The saved tensors of a node, in the order in which run_norm lists them.
class SavedList {
 public:
  /// Its place in the list, or -1 for an undefined tensor.
  int64_t add(const Tensor& x) {
    if (!x.defined()) {
      return -1;
    }
    tensors_.push_back(x);
    return static_cast<int64_t>(tensors_.size()) - 1;
  }
  [[nodiscard]] const Tensors& tensors() const { return tensors_; }
  static Tensor get(const BackwardContext& context, int64_t place) {
    return place < 0 ? Tensor{} : context.saved(static_cast<size_t>(place));
  }

 private:
  Tensors tensors_;
};

}  // namespace

Tensor run_norm(std::string_view op, const Tensor& given_x, const NormSpec& spec, const Tensor& weight,
                const Tensor& bias, const NormExtras& given_extras) {
  const AutocastOp cast(CastPolicy::knows(op) ? op : "normalize");
  const Tensor x = cast.input(given_x);
  NormExtras extras = given_extras;
  extras.then.residual = cast.beside(extras.then.residual, x);
  const Tensor& residual = extras.then.residual;
  const Activation activation = extras.then.activation;
  if (residual.defined()) {
    check_sizes(op, "residual", residual, x.sizes());
    check_dtype(op, "residual", residual, x.dtype());
    check_device(op, "residual", residual, x.device());
  }
  const Tensors inputs{x, weight, bias, residual};
  const bool recorded = will_record(inputs);
  // Backward wants the sign of z, or z itself: from bits where a residual went in, else computed again.
  const bool with_bits = recorded && activation == Activation::relu && residual.defined();
  const bool z_again = activation != Activation::identity && !with_bits;
  const Tensor bits =
      with_bits ? empty({(x.numel() + 7) / 8}, {.dtype = DType::uint8, .device = x.device()}) : Tensor{};
  Tensor rows;
  Tensor y;
  {
    const OpScope scope([&] {  // y has the size of x
      return OpWork{.op = std::string(op), .bytes = bytes_of(x, x, residual, bits)};
    });
    y = forward(op, x, spec, weight, bias, extras, rows, bits);
  }
  if (!recorded) {
    return y;
  }

  SavedList list;
  const int64_t x_at = list.add(x);
  const int64_t rows_at = list.add(rows);
  const int64_t weight_at = list.add(weight);
  const int64_t bias_at = z_again ? list.add(bias) : -1;
  const int64_t residual_at = z_again ? list.add(residual) : -1;
  const int64_t bits_at = list.add(bits);
  const SavedNorm fixed{.op = std::string(op),
                        .spec = spec,
                        .activation = activation,
                        .given = extras.given.defined(),
                        .affine = weight.defined() || bias.defined(),
                        .bias_dtype = bias.defined() ? bias.dtype() : x.dtype()};
  return record(op, inputs, y, list.tensors(), [=](const Tensor& dy, const BackwardContext& c) -> Tensors {
    SavedNorm norm = fixed;
    norm.x = SavedList::get(c, x_at);
    norm.rows = SavedList::get(c, rows_at);
    norm.weight = SavedList::get(c, weight_at);
    norm.bias = SavedList::get(c, bias_at);
    norm.residual = SavedList::get(c, residual_at);
    norm.bits = SavedList::get(c, bits_at);
    const NeededGradients needs{c.needs_grad(0), c.needs_grad(1), c.needs_grad(2), c.needs_grad(3)};
    const OpScope scope([&] {  // dx has the size of x; where bits were kept, they stand for the residual
      return OpWork{.op = fixed.op + "_backward",
                    .bytes = bytes_of(dy, norm.x, needs.x ? norm.x : Tensor(), norm.residual, norm.bits,
                                      needs.residual ? dy : Tensor())};
    });
    return c.create_graph() ? recorded_backward(norm, dy, needs) : fused_backward(norm, dy, needs);
  });
}

}  // namespace norma::norm_kernels
