#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <numeric>

namespace norma {

namespace {

void check_arguments(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, "x", x);
  check(x.rank() >= 1, op, "x: expected rank 1 or more, got rank 0");
  check_rank(op, "weight", weight, 2);
  check_dtype(op, "weight", weight, x.dtype());
  check_device(op, "weight", weight, x.device());
  check(x.size(-1) == weight.size(1), op,
        "x: expected {} features in the last axis, as weight {} has, got {} (sizes {})", weight.size(1), weight.sizes(),
        x.size(-1), x.sizes());
  if (bias.defined()) {
    check_like(op, "bias", bias, {weight.size(0)}, x);
  }
}

Sizes with_last(const Sizes& sizes, int64_t last) {
  Sizes result = sizes;
  result[result.size() - 1] = last;
  return result;
}

/// The axes from the innermost in memory to the outermost; the last one counts as innermost.
Axes memory_order(const Tensor& x) {
  Axes order;
  for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
    order.push_back(axis);
  }
  std::stable_sort(order.begin() + 1, order.end(), [&](int64_t a, int64_t b) { return x.stride(a) < x.stride(b); });
  return order;
}

/// Strides without gaps in this order of axes.
Strides strides_in(const Axes& order, const Sizes& sizes) {
  return dense_strides("linear", sizes, {order.begin(), order.end()});
}

/// x itself if it has the strides, else a copy that has.
Tensor in_strides(const Tensor& x, const Strides& strides) {
  return x.strides() == strides ? x : copy_of(x, strides, x.dtype());
}

/// The places of the elements of x and of the result.
struct Rows {
  Tensor tensor;      // x, or a contiguous copy where the rows of more than two axes are no matrix
  Axes order;         // memory_order()
  int64_t count = 0;  // of rows

  explicit Rows(const Tensor& x) : tensor(x), order(memory_order(x)), count(leading_numel(x)) {
    const bool is_matrix = x.rank() == 2;  // matrix_view() reads any strides
    if (!is_matrix && !same_places(x.sizes(), strides_in(order, x.sizes()), x.strides())) {
      tensor = contiguous_copy(x);
      order = memory_order(tensor);
    }
  }
  /// (count, features)
  [[nodiscard]] Tensor matrix() const {
    if (tensor.rank() == 2) {
      return tensor.detach();
    }
    const int64_t features = tensor.sizes().back();
    return alias(tensor.detach(), {count, features}, {features, 1}, tensor.offset());
  }

  static int64_t leading_numel(const Tensor& x) {
    return std::accumulate(x.sizes().begin(), x.sizes().end() - 1, int64_t{1}, std::multiplies<>());
  }
};

/// Gradients by kernels, for a backward pass that is not itself recorded.
Tensors fused_gradients(const Tensor& dy, const BackwardContext& context, const Axes& order, const Sizes& x_sizes,
                        int64_t outputs) {
  const Tensor dy_read = in_strides(dy, strides_in(order, dy.sizes()));
  const int64_t features = x_sizes.back();
  const int64_t rows = Rows::leading_numel(dy);
  const TensorOptions tensor_options{.dtype = dy.dtype(), .device = dy.device()};
  const Tensor dy_rows = alias(dy_read, {rows, outputs}, {outputs, 1}, dy_read.offset());
  Tensors gradients(3);
  if (context.needs_grad(0)) {  // dx = dy weight
    gradients[0] = empty_strided(x_sizes, strides_in(order, x_sizes), tensor_options);
    multiply_into(matrix_view(dy_rows), matrix_view(context.saved(1)), {}, gradients[0].device_pointer(), features);
  }
  if (context.needs_grad(1)) {  // dweight = dyᵀ x
    gradients[1] = empty({outputs, features}, tensor_options);
    const MatrixView left = matrix_view(transpose(dy_rows, 0, 1));
    multiply_into(left, matrix_view(Rows(context.saved(0)).matrix()), {}, gradients[1].device_pointer(), features);
  }
  if (context.needs_grad(2)) {
    gradients[2] = empty({outputs}, tensor_options);
    Op("linear_bias_gradient")
        .run(kernels::matmul_kernels, dy_rows)
        ->column_sum(dy.dtype(), rows, outputs, outputs, dy_rows.device_pointer(), gradients[2].device_pointer());
  }
  return gradients;
}

/// The same gradients, composed of differentiable ops.
Tensors recorded_gradients(const Tensor& dy, const BackwardContext& context, const Sizes& x_sizes, int64_t outputs) {
  // -1 could stand for any size if there are no elements.
  const int64_t rows = Rows::leading_numel(dy);
  const Tensor dy_rows = reshape(dy, {rows, outputs});
  Tensors gradients(3);
  if (context.needs_grad(0)) {
    gradients[0] = reshape(matmul(dy_rows, context.saved(1)), x_sizes);
  }
  if (context.needs_grad(1)) {
    gradients[1] = matmul(transpose(dy_rows, 0, 1), reshape(context.saved(0), {rows, x_sizes.back()}));
  }
  if (context.needs_grad(2)) {
    gradients[2] = sum(dy_rows, {0});
  }
  return gradients;
}

/// linear_act() of checked operands by one kernel; undefined if there is none.
Tensor linear_act_in_one(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearActOptions& then) {
  const Rows rows(x);
  const int64_t outputs = weight.size(0);
  const Sizes sizes = with_last(x.sizes(), outputs);
  if (sizes.numel() == 0 || x.size(-1) == 0) {
    return {};
  }
  const Strides strides = strides_in(rows.order, sizes);
  const Tensor residual = then.residual.defined() ? in_strides(then.residual, strides) : Tensor();
  const Tensor scale = contiguous_copy(then.scale);
  const Tensor bias_read = contiguous_copy(bias);
  const Tensor y = empty_strided(sizes, strides, {.dtype = x.dtype(), .device = x.device()});
  const bool keep = is_constant_weight(weight);
  const NoGradGuard no_grad;
  const bool done = multiply_act_into(
      matrix_view(rows.matrix()), matrix_view(transpose(weight, 0, 1)), bias_read, y.device_pointer(), outputs,
      {.activation = then.activation, .scale = pointer_or_null(scale), .residual = pointer_or_null(residual)}, keep);
  return done ? y : Tensor();
}

void check_operand(std::string_view name, const Tensor& operand, const Sizes& sizes, const Tensor& x) {
  if (operand.defined()) {
    check_like("linear_act", name, operand, sizes, x);
  }
}

}  // namespace

Tensor linear_act(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearActOptions& then) {
  if (then.scale.defined() && weight.defined() && weight.rank() == 2) {  // otherwise linear() reports the mistake
    check_sizes("linear_act", "scale", then.scale, {weight.size(0)});
  }
  if (!autocast_enabled()) {
    check_arguments("linear", x, weight, bias);
    check_operand("scale", then.scale, {weight.size(0)}, x);
    check_operand("residual", then.residual, with_last(x.sizes(), weight.size(0)), x);
    const bool in_one = x.dtype() == DType::float32 && !in_parts({x, weight, bias, then.scale, then.residual});
    const Tensor y = in_one ? linear_act_in_one(x, weight, bias, then) : Tensor();
    if (y.defined()) {
      return y;
    }
  }
  const ActOptions rest{.activation = then.activation, .residual = then.residual};
  if (!then.scale.defined()) {
    return activate(linear(x, weight, bias), rest, "linear_act");
  }
  // This way the scale costs a pass over the weight instead of one over the results.
  const Tensor scaled = mul(weight, view(then.scale, {-1, 1}));
  return activate(linear(x, scaled, bias.defined() ? mul(bias, then.scale) : bias), rest, "linear_act");
}

Tensor linear(const Tensor& input, const Tensor& uncast_weight, const Tensor& uncast_bias) {
  const Op op(named<"linear", CastRule::lower>);
  const Tensor x = op.input("x", input);
  const Tensor weight = op.like(x, uncast_weight);
  const Tensor bias = op.like(x, uncast_bias);
  check_arguments(op, x, weight, bias);
  const int64_t outputs = weight.size(0);
  const Rows rows(x);
  const Sizes sizes = with_last(x.sizes(), outputs);
  const Tensor y = empty_strided(sizes, strides_in(rows.order, sizes), {.dtype = x.dtype(), .device = x.device()});
  if (y.numel() > 0) {
    const Tensor bias_read = contiguous_copy(bias);
    const bool keep = is_constant_weight(weight);
    const NoGradGuard no_grad;
    const TracePause not_noted;
    multiply_into(matrix_view(rows.matrix()), matrix_view(transpose(weight, 0, 1)), bias_read, y.device_pointer(),
                  outputs, keep);
  }
  // Each operand is needed for the other's gradient only.
  const Tensor x_saved = weight.requires_grad() ? x : Tensor();
  const Tensor weight_saved = x.requires_grad() ? weight : Tensor();
  return op.record(
      {x, weight, bias}, y, {x_saved, weight_saved},
      [order = rows.order, x_sizes = x.sizes(), outputs](const Tensor& dy, const BackwardContext& context) -> Tensors {
        if (context.create_graph() || dy.numel() == 0) {
          return recorded_gradients(dy, context, x_sizes, outputs);
        }
        return fused_gradients(dy, context, order, x_sizes, outputs);
      });
}

}  // namespace norma
