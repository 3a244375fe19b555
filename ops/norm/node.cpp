#include "ops/norm/node.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/pointwise/pointwise.h"

namespace norma::norm_detail {

// --- running statistics ---------------------------------------------------------------------------------------------

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

// --- forward --------------------------------------------------------------------------------------------------------

namespace {

kernels::NormPointers pointers_of(const NormTensors& t) {
  return {.x = pointer_or_null(t.x),
          .weight = pointer_or_null(t.weight),
          .bias = pointer_or_null(t.bias),
          .residual = pointer_or_null(t.residual),
          .stats = pointer_or_null(t.stats),
          .bits = pointer_or_null(t.bits),
          .activation = t.activation,
          .y = pointer_or_null(t.y),
          .var = pointer_or_null(t.var),
          .running = t.running,
          .dy = pointer_or_null(t.dy),
          .dx = pointer_or_null(t.dx),
          .dweight = pointer_or_null(t.dweight),
          .dbias = pointer_or_null(t.dbias),
          .dresidual = pointer_or_null(t.dresidual)};
}

kernels::NormProblem problem_of(const NormLayout& layout, const NormSpec& spec, bool fixed_stats) {
  return {.walk = layout.walk(),
          .shape = layout.shape(),
          .affine = layout.affine(),
          .statistics = spec.statistics,
          .centring = spec.centring,
          .correction = spec.correction,
          .eps = spec.eps,
          .fixed_stats = fixed_stats};
}

}  // namespace

void write_bits(std::string_view op, const Tensor& y, const Tensor& bits) {
  kernels::norm_kernels.at(op, y.device())
      ->positive_bits(y.dtype(), y.numel(), y.device_pointer(), bits.device_pointer<uint8_t>());
}

namespace {

void run_kernel(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool fixed_stats,
                const NormTensors& t) {
  const Device device = t.x.device();
  if (norm_reference()) {
    return forward_by_reference(op, layout, spec, fixed_stats, t);
  }
  // The kernels take both weight and bias, or neither.
  const Sizes affine_sizes = sizes_along(t.x, spec.affine);
  const TensorOptions options{.dtype = compute_dtype(t.x.dtype()), .device = device};
  NormTensors in_order = t;
  if (t.weight.defined() || t.bias.defined()) {
    in_order.weight = layout.weight_in_order(t.weight.defined() ? t.weight : ones(affine_sizes, options));
    in_order.bias = layout.weight_in_order(t.bias.defined() ? t.bias : zeros(affine_sizes, options));
  }
  in_order.x = layout.in_order(t.x);
  in_order.y = t.y.defined() ? layout.writable_in_order(t.y) : Tensor{};
  in_order.residual = t.residual.defined() ? layout.in_order(t.residual) : Tensor{};
  kernels::NormProblem problem = problem_of(layout, spec, fixed_stats);
  if (spec.centring == Centring::deviation) {
    problem.centring = Centring::mean;  // about which its statistics are
  }
  const kernels::NormKernels& kernels = *kernels::norm_kernels.at(op, device);
  const bool writes_bits = t.bits.defined() && in_order.y.storage() == t.y.storage() && kernels.can_write_bits(problem);
  if (!writes_bits) {
    in_order.bits = {};
  }
  OpScope::set_implementation(to_string(problem.walk));
  kernels.forward(t.x.dtype(), problem, pointers_of(in_order));
  if (t.y.defined()) {
    layout.copy_back(in_order.y, t.y);
  }
  if (t.bits.defined() && !writes_bits) {
    write_bits(op, t.y, t.bits);
  }
}

/// Removes the reduced axes.
Tensor drop_reduced(const Tensor& per_set, const NormSpec& spec) {
  Sizes sizes;
  for (int64_t axis = 0; axis < per_set.rank(); ++axis) {
    if (!spec.reduce.contains(axis) || (spec.groups > 1 && axis == 1)) {
      sizes.push_back(per_set.size(axis));
    }
  }
  return alias(per_set, sizes, contiguous_strides(sizes), per_set.offset());
}

/// Mean and variance in the order of the axes.
NormStatistics in_order_of_axes(const NormLayout& layout, const Tensor& x, const NormSpec& spec, const Tensor& stats,
                                const Tensor& var) {
  const Sizes sizes = sizes_of_sets(x.sizes(), spec);
  return {.mean = drop_reduced(layout.per_set(stats_row(stats, kernels::kMeanRow), sizes), spec),
          .var = drop_reduced(layout.per_set(var, sizes), spec)};
}

/// The statistics of an x without elements.
NormStatistics zero_statistics(const Tensor& x, const NormSpec& spec) {
  const Tensor zero = zeros(sizes_of_sets(x.sizes(), spec), {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  return {.mean = drop_reduced(zero, spec), .var = drop_reduced(zeros_like(zero), spec)};
}

Tensor empty_stats(const Tensor& x, int64_t sets) {
  return empty({kernels::kStatsRows, sets}, {.dtype = compute_dtype(x.dtype()), .device = x.device()});
}

/// The stats with which x / deviation is a norm with fixed stats: the mean is 0.
Tensor without_mean(const Tensor& stats) {
  const Tensor result = zeros_like(stats);
  copy_into(stats_row(stats, kernels::kRstdRow), stats_row(result, kernels::kRstdRow));
  return result;
}

/// The running statistics as the kernels take them; empty where their dtype is not that of the computation, or the
/// definition takes the place of the kernels.
kernels::RunningStatistics<void> running_of_kernels(const RunningUpdate& running, DType dtype) {
  const bool fits = running.mean.dtype() == dtype && running.var.dtype() == dtype && running.mean.is_contiguous() &&
                    running.var.is_contiguous();
  if (!fits || norm_reference()) {
    return {};
  }
  return {.mean = running.mean.device_pointer(),
          .var = running.var.device_pointer(),
          .momentum = running.momentum,
          .var_factor = running.var_factor,
          .batches = running.batches.defined() ? running.batches.device_pointer<int64_t>() : nullptr};
}

/// Brings running statistics up to date, unless the kernels have done so.
void finish_running(std::string_view op, const RunningUpdate& running, bool done, const NormStatistics& batch) {
  if (done) {
    running.mean.bump_version();
    running.var.bump_version();
    if (running.batches.defined()) {
      running.batches.bump_version();
    }
    return;
  }
  update_running(op, running.mean, batch.mean, running.momentum, 1);
  update_running(op, running.var, batch.var, running.momentum, running.var_factor);
  count_batch(running.batches);
}

/// Computes y, and on the way stats, statistics and bits (if defined).
Tensor compute(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
               const ForwardOptions& options, Tensor& stats, const Tensor& bits) {
  const DType dtype = compute_dtype(x.dtype());
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Tensor y = empty_strided(x.sizes(), strides, {.dtype = x.dtype(), .device = x.device()});
  if (x.numel() == 0) {
    stats =
        zeros({kernels::kStatsRows, sizes_of_sets(x.sizes(), spec).numel()}, {.dtype = dtype, .device = x.device()});
    if (options.statistics != nullptr) {
      *options.statistics = zero_statistics(x, spec);
    }
    return y;
  }
  const NormLayout layout(x.sizes(), strides, spec, weight.defined() || bias.defined());
  const int64_t sets = layout.shape().sets();
  const bool fixed = options.fixed_stats.defined();
  stats = fixed ? options.fixed_stats : empty_stats(x, sets);
  const bool wants_var = options.statistics != nullptr || options.running != nullptr;
  const Tensor var = wants_var ? empty({sets}, {.dtype = dtype, .device = x.device()}) : Tensor{};
  const auto running =
      options.running != nullptr ? running_of_kernels(*options.running, dtype) : kernels::RunningStatistics<void>{};
  NormTensors tensors{.x = x,
                      .weight = converted(weight, dtype),
                      .bias = converted(bias, dtype),
                      .residual = options.then.residual,
                      .stats = stats,
                      .bits = bits,
                      .activation = options.then.activation,
                      .y = y,
                      .var = var,
                      .running = running};
  const bool in_two_steps = spec.centring == Centring::deviation && !fixed && !norm_reference();
  run_kernel(op, layout, spec, fixed, in_two_steps ? NormTensors{.x = x, .stats = stats, .var = var} : tensors);
  NormStatistics statistics;
  if (wants_var && (options.statistics != nullptr || running.mean == nullptr)) {
    statistics = in_order_of_axes(layout, x, spec, stats, var);
  }
  if (in_two_steps) {
    tensors.stats = without_mean(stats);
    tensors.var = {};
    run_kernel(op, layout, spec, /* fixed_stats= */ true, tensors);
  }
  if (options.statistics != nullptr) {
    *options.statistics = statistics;
  }
  if (options.running != nullptr) {
    finish_running(op, *options.running, running.mean != nullptr, statistics);
  }
  return y;
}

/// What a program that writes a norm down has to know (core/trace.h).
void describe(Op& op, const NormSpec& spec, const ForwardOptions& options) {
  op.describe({{"reduce", spec.reduce},
               {"affine", spec.affine},
               {"groups", spec.groups},
               {"eps", spec.eps},
               {"centring", static_cast<int64_t>(spec.centring)},
               {"correction", spec.correction},
               {"activation", to_string(options.then.activation)}});
  if (options.fixed_stats.defined()) {
    op.describe({{"running_mean", &options.running_mean}, {"running_var", &options.running_var}});
  }
}

/// What the tape keeps of a norm, so that backward knows z + residual where it needs that.
struct TapePlan {
  bool with_bits;  ///< the sign of z + residual, a bit for each element
  bool z_again;    ///< bias and residual, with which backward computes z again
  bool remade;     ///< y can be remade, for which the bias is kept
};
TapePlan plan_of(const Tensors& inputs, const ActOptions& then) {
  const bool recorded = will_record(inputs);
  const bool with_bits = recorded && then.activation == Activation::relu && then.residual.defined();
  return {.with_bits = with_bits,
          .z_again = then.activation != Activation::identity && !with_bits,
          .remade = remakes_outputs() && !with_bits && !norm_reference()};
}

Tensors backward_of(const NormNode& node, const Tensor& dy, const BackwardContext& c) {
  const NeededGradients needs{c.needs_grad(0), c.needs_grad(1), c.needs_grad(2), c.needs_grad(3)};
  const OpScope scope([&] {  // dx has the size of x; where bits were kept, they stand for the residual
    return OpWork{.op = node.op + "_backward",
                  .bytes = bytes_of(dy, node.x, needs.x ? node.x : Tensor(), node.residual, node.bits,
                                    needs.residual ? dy : Tensor())};
  });
  if (node.backward) {
    check(!c.create_graph(), node.op, "backward: expected no create_graph where several processes share a batch");
    return node.backward(node, dy, needs);
  }
  return c.create_graph() ? record_norm_backward(node, dy, needs) : norm_backward(node, dy, needs);
}

/// True iff y = x / deviation, with statistics of x.
bool is_deviation(const NormNode& node) {
  return node.spec.centring == Centring::deviation && !node.fixed_stats;
}

/// y of a node once more, from what the tape has kept.
Tensor remade(const NormNode& node) {
  const ForwardOptions fixed{.fixed_stats = is_deviation(node) ? without_mean(node.stats) : node.stats,
                             .then = {.activation = node.activation, .residual = node.residual}};
  const OpScope scope([&] { return OpWork{.op = node.op, .bytes = bytes_of(node.x, node.x, node.residual)}; });
  Tensor stats;
  return compute(node.op, node.x, node.spec, node.weight, node.bias, fixed, stats, {});
}

}  // namespace

Tensors kept(const NormTensors& t) {
  return {t.x, t.weight, t.bias, t.residual, t.stats, t.bits};
}

NormNode with_kept(const NormNode& node, const BackwardContext& c) {
  NormNode result = node;
  size_t i = 0;
  for (Tensor* tensor : {&result.x, &result.weight, &result.bias, &result.residual, &result.stats, &result.bits}) {
    *tensor = c.saved(i++);
  }
  return result;
}

Tensor record_norm(std::string_view name, const Tensor& input, const NormSpec& spec, const Tensor& weight,
                   const Tensor& bias, const ForwardOptions& requested) {
  Op op(name, "normalize");
  const Tensor x = op.input("input", input);
  ForwardOptions options = requested;
  options.then.residual = op.like(x, options.then.residual);
  const Tensor& residual = options.then.residual;
  if (residual.defined()) {
    check_like(op, "residual", residual, x.sizes(), x);
  }
  const Tensors inputs{x, weight, bias, residual};
  const TapePlan plan = plan_of(inputs, options.then);
  const Tensor bits =
      plan.with_bits ? empty({(x.numel() + 7) / 8}, {.dtype = DType::uint8, .device = x.device()}) : Tensor{};
  Tensor stats;
  Tensor y;
  {
    const OpScope scope([&] {  // y has the size of x
      return OpWork{.op = std::string(name), .bytes = bytes_of(x, x, residual, bits)};
    });
    y = compute(op, x, spec, weight, bias, options, stats, bits);
  }
  if (!Op::is_noted(inputs)) {
    return y;
  }
  const NormNode node{{.activation = options.then.activation},
                      std::string(name),
                      spec,
                      options.fixed_stats.defined(),
                      weight.defined() || bias.defined(),
                      bias.defined() ? bias.dtype() : x.dtype(),
                      options.backward};
  describe(op, spec, options);
  op.record(inputs, y,
            kept({.x = x,
                  .weight = weight,
                  .bias = plan.z_again || plan.remade ? bias : Tensor{},
                  .residual = plan.z_again ? residual : Tensor{},
                  .stats = stats,
                  .bits = bits}),
            [node, z_again = plan.z_again](const Tensor& dy, const BackwardContext& c) -> Tensors {
              NormNode with_tensors = with_kept(node, c);
              with_tensors.bias = z_again ? with_tensors.bias : Tensor{};
              return backward_of(with_tensors, dy, c);
            });
  if (plan.remade) {
    remake_by(y, [node](const BackwardContext& c) { return remade(with_kept(node, c)); });
  }
  return y;
}

// --- statistics alone -----------------------------------------------------------------------------------------------

Tensor compute_stats(std::string_view op, const NormLayout& layout, const Tensor& x, const NormSpec& spec,
                     Tensor* var) {
  const int64_t sets = layout.shape().sets();
  const Tensor stats = empty_stats(x, sets);
  if (var != nullptr) {
    *var = empty({sets}, {.dtype = stats.dtype(), .device = x.device()});
  }
  run_kernel(op, layout, spec, /* fixed_stats= */ false,
             {.x = x, .stats = stats, .var = var != nullptr ? *var : Tensor{}});
  return stats;
}

Tensor stats_for_backward(std::string_view op, const NormNode& node) {
  const Tensor& x = node.x;
  if (x.numel() == 0) {
    return zeros({kernels::kStatsRows, 0}, {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  }
  // The walk of a normalize() with weight or bias gives its bits.
  const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), node.spec, node.affine);
  return compute_stats(op, layout, x, node.spec);
}

Tensor stats_row(const Tensor& stats, int64_t row) {
  const int64_t sets = stats.size(1);
  return alias(stats, {sets}, {1}, row * sets);
}

NormStatistics compute_statistics(std::string_view op, const Tensor& x, const NormSpec& spec) {
  if (x.numel() == 0) {
    return zero_statistics(x, spec);
  }
  const OpScope scope([&] { return OpWork{.op = "norm_statistics", .bytes = bytes_of(x)}; });
  const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, /* affine= */ false);
  Tensor var;
  const Tensor stats = compute_stats(op, layout, x, spec, &var);
  return in_order_of_axes(layout, x, spec, stats, var);
}

Tensor fixed_stats_of(std::string_view op, const Tensor& mean, const Tensor& var, double eps, DType dtype) {
  const int64_t count = mean.numel();
  const Tensor stats = zeros({kernels::kStatsRows, count}, {.dtype = dtype, .device = mean.device()});
  copy_into(mean, stats_row(stats, kernels::kMeanRow));
  const Tensor rstd = stats_row(stats, kernels::kRstdRow);
  kernels::norm_kernels.at(op, mean.device())
      ->rstd(dtype, count, in_float64(var).device_pointer<double>(), eps, rstd.device_pointer());
  return stats;
}

// --- backward -------------------------------------------------------------------------------------------------------

namespace {

/// norm_backward() of y = f(x * rstd * weight + residual), whose rstd depends on x, in two steps. With a constant rstd
/// it is a norm with fixed stats, which gives dz, dweight and dbias; a kernel gives dx from dz (formulas.h).
Tensors deviation_backward(const NormNode& node, const Tensor& dy, NeededGradients needs) {
  const bool activated = node.activation != Activation::identity;
  const DType dtype = activated ? compute_dtype(node.x.dtype()) : node.x.dtype();  // dz is not rounded to 16 bits
  NormNode constant = node;
  constant.fixed_stats = true;
  constant.stats = without_mean(node.stats);
  constant.x = converted(node.x, dtype);
  constant.residual = node.residual.defined() ? converted(node.residual, dtype) : Tensor{};
  Tensors gradients =
      norm_backward(constant, converted(dy, dtype), {false, needs.weight, needs.bias, activated || needs.residual});
  if (needs.x) {
    NormNode of_x = node;
    static_cast<NormTensors&>(of_x) = {.x = constant.x, .weight = node.weight, .stats = node.stats};
    gradients[0] =
        converted(norm_backward(of_x, activated ? gradients[3] : dy, {true, false, false, false})[0], node.x.dtype());
  }
  gradients[3] = !needs.residual ? Tensor{} : activated ? converted(gradients[3], dy.dtype()) : dy;
  return gradients;
}

}  // namespace

Tensors norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs) {
  const Tensor& x = node.x;
  const DType dtype = compute_dtype(x.dtype());
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const TensorOptions x_options{.dtype = x.dtype(), .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Sizes affine_sizes = sizes_along(x, node.spec.affine);
  const DType weight_dtype = node.weight.defined() ? node.weight.dtype() : dtype;
  const Tensor dx = needs.x ? empty_strided(x.sizes(), strides, x_options) : Tensor{};
  const bool activated = node.activation != Activation::identity;
  const Tensor dresidual = !needs.residual ? Tensor{} : activated ? empty_strided(x.sizes(), strides, x_options) : dy;
  if (x.numel() == 0) {
    return {dx, needs.weight ? zeros(affine_sizes, {.dtype = weight_dtype, .device = x.device()}) : Tensor{},
            needs.bias ? zeros(affine_sizes, {.dtype = node.bias_dtype, .device = x.device()}) : Tensor{}, dresidual};
  }
  const NormLayout layout(x.sizes(), strides, node.spec, node.affine);
  if (norm_reference()) {
    return backward_by_reference(node, layout, dy, needs);
  }
  if (is_deviation(node) && (activated || needs.weight || needs.bias)) {
    return deviation_backward(node, dy, needs);
  }
  if (node.bits.defined() && !layout.view_in_order(dx.defined() ? dx : x).is_contiguous()) {
    // The bits are in the order of memory, but the kernel would not be.
    NormNode without_activation = node;
    without_activation.activation = Activation::identity;
    without_activation.bits = {};
    return norm_backward(without_activation, mask_by_bits(node, dy), needs);
  }
  const auto weight_in_order = [&](const Tensor& weight) {
    return weight.defined() ? layout.weight_in_order(converted(weight, dtype)) : Tensor{};
  };
  const auto weight_gradient = [&](bool wanted) {
    return wanted ? empty({layout.affine().numel()}, options) : Tensor{};
  };
  const NormTensors in_order{.x = layout.in_order(x),
                             .weight = weight_in_order(node.weight),
                             .bias = weight_in_order(node.bias),
                             .residual = node.residual.defined() ? layout.in_order(node.residual) : Tensor{},
                             .stats = node.stats,
                             .bits = node.bits,
                             .activation = node.activation,
                             .dy = layout.in_order(converted(dy, x.dtype())),
                             .dx = needs.x ? layout.writable_in_order(dx) : Tensor{},
                             .dweight = weight_gradient(needs.weight),
                             .dbias = weight_gradient(needs.bias),
                             .dresidual = activated && needs.residual ? layout.writable_in_order(dresidual) : Tensor{}};
  OpScope::set_implementation(to_string(layout.walk()));
  kernels::norm_kernels.at(node.op, x.device())
      ->backward(x.dtype(), problem_of(layout, node.spec, node.fixed_stats), pointers_of(in_order));
  if (needs.x) {
    if (node.spec.centring == Centring::mean && !node.fixed_stats && layout.shape().set_size() == 1) {
      // x - x depends on nothing, but its terms were rounded; a product leaves NaN as it is.
      Tensor nothing = in_order.dx;
      mul_(nothing, 0);
    }
    layout.copy_back(in_order.dx, dx);
  }
  if (in_order.dresidual.defined()) {
    layout.copy_back(in_order.dresidual, dresidual);
  }
  return {dx, needs.weight ? converted(layout.weight_gradient(in_order.dweight, affine_sizes), weight_dtype) : Tensor{},
          needs.bias ? converted(layout.weight_gradient(in_order.dbias, affine_sizes), node.bias_dtype) : Tensor{},
          dresidual};
}

Tensor mask_by_bits(const NormNode& node, const Tensor& dy) {
  const Tensor& x = node.x;
  const Tensor dz =
      empty_strided(x.sizes(), preserved_strides(x.sizes(), x.strides()), {.dtype = dy.dtype(), .device = x.device()});
  Tensor in_order = dy;
  if (dy.strides() != dz.strides()) {
    copy_into(dy, dz);
    in_order = dz;
  }
  kernels::norm_kernels.at(node.op, x.device())
      ->mask_by_bits(dy.dtype(), dz.numel(), node.bits.device_pointer<uint8_t>(), in_order.device_pointer(),
                     dz.device_pointer());
  return dz;
}

}  // namespace norma::norm_detail
