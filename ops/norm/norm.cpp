#include "ops/norm/norm.h"

#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "core/trace.h"
#include "ops/norm/checks.h"
#include "ops/norm/node.h"

namespace norma::norm_detail {

namespace {

/// Writes one bit per element of y: 1 if it is positive or NaN.
void write_bits(std::string_view op, const Tensor& y, const Tensor& bits) {
  kernels::norm_kernels.at(op, y.device())
      ->positive_bits(y.dtype(), y.numel(), y.device_pointer(), bits.device_pointer<uint8_t>());
}

/// Does the work of run_kernel() by the definition.
void run_reference(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool fixed_stats,
                   const NormTensors& t) {
  OpScope::set_implementation("reference");
  const NormReference reference = reference_of(
      layout, fixed_stats ? t.stats : Tensor{},
      {.spec = spec, .x = t.x, .weight = t.weight, .bias = t.bias, .activation = t.activation, .residual = t.residual});
  const TensorOptions options{.dtype = DType::float64, .device = t.x.device()};
  if (t.y.defined()) {
    copy_into(from_vector(reference.all(&NormReference::y), t.y.sizes(), options), t.y);
  }
  if (t.bits.defined()) {
    write_bits(op, t.y, t.bits);
  }
  if (fixed_stats) {
    return;
  }
  const Sizes set_sizes = sizes_of_sets(t.x.sizes(), spec);
  const int64_t sets = layout.shape().sets();
  const auto write = [&](const Tensor& to, auto of_set) {
    std::vector<double> values;
    for (int64_t set = 0; set < sets; ++set) {
      values.push_back(static_cast<double>(of_set(static_cast<size_t>(set))));
    }
    const Tensor in_order = layout.sets_in_order(from_vector(values, set_sizes, options));
    copy_into(alias(in_order, {sets}, {1}, 0), to);
  };
  const auto row = [&](int64_t which) { return alias(t.stats, {sets}, {1}, which * sets); };
  const auto high = [&](size_t set) -> NormReference::Wide {
    const NormReference::Wide mean = reference.mean(set);
    return t.stats.dtype() == DType::float32 ? static_cast<float>(mean) : static_cast<double>(mean);
  };
  const bool deviation = spec.centring == Centring::deviation;
  zero_(t.stats);
  write(row(deviation ? kernels::kCentreRow : kernels::kMeanRow), high);
  write(row(deviation ? kernels::kCentreLowRow : kernels::kMeanLowRow),
        [&](size_t set) { return reference.mean(set) - high(set); });
  write(row(kernels::kRstdRow), [&](size_t set) { return reference.rstd(set); });
  if (t.var.defined()) {
    write(t.var, [&](size_t set) { return reference.var(set); });
  }
}

void run_kernel(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool fixed_stats,
                const NormTensors& t) {
  const Device device = t.x.device();
  if (norm_reference()) {
    return run_reference(op, layout, spec, fixed_stats, t);
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
  const kernels::NormProblem problem = problem_of(layout, spec, fixed_stats);
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
  const int64_t sets = stats.size(1);
  const int64_t row = spec.centring == Centring::deviation ? kernels::kCentreRow : kernels::kMeanRow;
  return {.mean = drop_reduced(layout.per_set(alias(stats, {sets}, {1}, row * sets), sizes), spec),
          .var = drop_reduced(layout.per_set(var, sizes), spec)};
}

/// The statistics of an x without elements.
NormStatistics zero_statistics(const Tensor& x, const NormSpec& spec) {
  const Tensor zero = zeros(sizes_of_sets(x.sizes(), spec), {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  return {.mean = drop_reduced(zero, spec), .var = drop_reduced(zeros_like(zero), spec)};
}

Tensor empty_stats(const Tensor& x, const NormSpec& spec, int64_t sets) {
  return empty({kernels::stats_rows(spec.centring), sets}, {.dtype = compute_dtype(x.dtype()), .device = x.device()});
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
    stats = zeros({kernels::stats_rows(spec.centring), sizes_of_sets(x.sizes(), spec).numel()},
                  {.dtype = dtype, .device = x.device()});
    if (options.statistics != nullptr) {
      *options.statistics = zero_statistics(x, spec);
    }
    return y;
  }
  const NormLayout layout(x.sizes(), strides, spec, weight.defined() || bias.defined());
  const int64_t sets = layout.shape().sets();
  const bool fixed = options.fixed_stats.defined();
  stats = fixed ? options.fixed_stats : empty_stats(x, spec, sets);
  const bool wants_var = options.statistics != nullptr || options.running != nullptr;
  const Tensor var = wants_var ? empty({sets}, {.dtype = dtype, .device = x.device()}) : Tensor{};
  const auto running =
      options.running != nullptr ? running_of_kernels(*options.running, dtype) : kernels::RunningStatistics<void>{};
  run_kernel(op, layout, spec, fixed,
             {.x = x,
              .weight = converted(weight, dtype),
              .bias = converted(bias, dtype),
              .residual = options.then.residual,
              .stats = stats,
              .bits = bits,
              .activation = options.then.activation,
              .y = y,
              .var = var,
              .running = running});
  if (options.statistics != nullptr) {
    *options.statistics = in_order_of_axes(layout, x, spec, stats, var);
  }
  if (options.running != nullptr) {
    const bool done = running.mean != nullptr;
    finish_running(op, *options.running, done, done ? NormStatistics{} : in_order_of_axes(layout, x, spec, stats, var));
  }
  return y;
}

/// What a program that writes a norm down has to know (core/trace.h).
OpAttributes attributes_of(const NormSpec& spec, const ForwardOptions& options) {
  OpAttributes attributes{{"reduce", attribute(spec.reduce)},
                          {"affine", attribute(spec.affine)},
                          {"groups", spec.groups},
                          {"eps", spec.eps},
                          {"centring", static_cast<int64_t>(spec.centring)},
                          {"correction", spec.correction},
                          {"activation", std::string(to_string(options.then.activation))}};
  if (options.fixed_stats.defined()) {
    attributes["running_mean"] = options.running_mean;
    attributes["running_var"] = options.running_var;
  }
  return attributes;
}

Tensors backward_of(const NormNode& node, const Tensor& dy, const BackwardContext& c) {
  const NeededGradients needs{c.needs_grad(0), c.needs_grad(1), c.needs_grad(2), c.needs_grad(3)};
  const OpScope scope([&] {  // dx has the size of x; where bits were kept, they stand for the residual
    return OpWork{.op = node.op + "_backward",
                  .bytes = bytes_of(dy, node.x, needs.x ? node.x : Tensor(), node.residual, node.bits,
                                    needs.residual ? dy : Tensor())};
  });
  if (node.parts != nullptr) {
    check(!c.create_graph(), node.op, "backward: expected no create_graph where several processes share a batch");
    return norm_backward_of_parts(node, dy, needs);
  }
  return c.create_graph() ? record_norm_backward(node, dy, needs) : norm_backward(node, dy, needs);
}

/// The tensors of a node that the tape keeps, in this order.
Tensors kept(const NormTensors& t) {
  return {t.x, t.weight, t.bias, t.residual, t.stats, t.bits};
}
void restore(NormTensors& t, const BackwardContext& c) {
  size_t i = 0;
  for (Tensor* tensor : {&t.x, &t.weight, &t.bias, &t.residual, &t.stats, &t.bits}) {
    *tensor = c.saved(i++);
  }
}

}  // namespace

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

NormReference reference_of(const NormLayout& layout, const Tensor& stats, NormReferenceInputs inputs) {
  if (stats.defined()) {
    const int64_t sets = layout.shape().sets();
    const auto row = [&](int64_t which) {
      return layout.per_set(alias(stats, {sets}, {1}, which * sets), sizes_of_sets(inputs.x.sizes(), inputs.spec))
          .to_vector<double>();
    };
    const std::vector<double> mean = row(kernels::kMeanRow);
    const std::vector<double> mean_low = row(kernels::kMeanLowRow);
    const std::vector<double> rstd = row(kernels::kRstdRow);
    for (size_t set = 0; set < mean.size(); ++set) {
      inputs.fixed_mean.push_back(static_cast<NormReference::Wide>(mean[set]) + mean_low[set]);
      inputs.fixed_rstd.push_back(rstd[set]);
    }
  }
  return NormReference(inputs);
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

Tensor record_norm(std::string_view op, const Tensor& input, const NormSpec& spec, const Tensor& weight,
                   const Tensor& bias, const ForwardOptions& requested) {
  const AutocastOp cast(CastPolicy::knows(op) ? op : "normalize");
  const Tensor x = cast.input(input);
  ForwardOptions options = requested;
  options.then.residual = cast.like(options.then.residual, x);
  const Tensor& residual = options.then.residual;
  const Activation activation = options.then.activation;
  if (residual.defined()) {
    check_sizes(op, "residual", residual, x.sizes());
    check_dtype(op, "residual", residual, x.dtype());
    check_device(op, "residual", residual, x.device());
  }
  const Tensors inputs{x, weight, bias, residual};
  const bool recorded = will_record(inputs);
  // Backward needs the sign of z, or z itself: bits hold the sign if there is a residual, else z is computed again.
  const bool with_bits = recorded && activation == Activation::relu && residual.defined();
  const bool z_again = activation != Activation::identity && !with_bits;
  const Tensor bits =
      with_bits ? empty({(x.numel() + 7) / 8}, {.dtype = DType::uint8, .device = x.device()}) : Tensor{};
  Tensor stats;
  Tensor y;
  {
    const OpScope scope([&] {  // y has the size of x
      return OpWork{.op = std::string(op), .bytes = bytes_of(x, x, residual, bits)};
    });
    y = compute(op, x, spec, weight, bias, options, stats, bits);
  }
  if (!recorded) {
    return y;
  }
  const NormNode without_tensors{{.activation = activation},
                                 std::string(op),
                                 spec,
                                 options.fixed_stats.defined(),
                                 weight.defined() || bias.defined(),
                                 bias.defined() ? bias.dtype() : x.dtype(),
                                 options.parts,
                                 options.count_of_parts};
  const bool remade = remakes_outputs() && !with_bits && !norm_reference();
  const Tensors saved = kept({.x = x,
                              .weight = weight,
                              .bias = z_again || remade ? bias : Tensor{},
                              .residual = z_again ? residual : Tensor{},
                              .stats = stats,
                              .bits = bits});
  describe(op, [&] { return attributes_of(spec, options); });
  record(op, inputs, y, saved, [without_tensors, z_again](const Tensor& dy, const BackwardContext& c) -> Tensors {
    NormNode node = without_tensors;
    restore(node, c);
    node.bias = z_again ? node.bias : Tensor{};
    return backward_of(node, dy, c);
  });
  if (remade) {
    offer_remake(y, [without_tensors](const BackwardContext& c) {
      NormNode node = without_tensors;
      restore(node, c);
      const ForwardOptions fixed{.fixed_stats = node.stats,
                                 .then = {.activation = node.activation, .residual = node.residual}};
      const OpScope scope([&] { return OpWork{.op = node.op, .bytes = bytes_of(node.x, node.x, node.residual)}; });
      return compute(node.op, node.x, node.spec, node.weight, node.bias, fixed, node.stats, {});
    });
  }
  return y;
}

Tensor compute_stats(std::string_view op, const NormLayout& layout, const Tensor& x, const NormSpec& spec,
                     Tensor* var) {
  const int64_t sets = layout.shape().sets();
  const Tensor stats = empty_stats(x, spec, sets);
  if (var != nullptr) {
    *var = empty({sets}, {.dtype = stats.dtype(), .device = x.device()});
  }
  run_kernel(op, layout, spec, /* fixed_stats= */ false,
             {.x = x, .stats = stats, .var = var != nullptr ? *var : Tensor{}});
  return stats;
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

}  // namespace norma::norm_detail

namespace norma {

using namespace norm_detail;

Tensor normalize(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                 NormStatistics* statistics, std::string_view op) {
  return norm_act(x, spec, weight, bias, {}, statistics, op);
}

Tensor norm_act(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias, const ActOptions& then,
                NormStatistics* statistics, std::string_view op) {
  const NormSpec checked = checked_spec(op, x, spec);
  check_affine(op, "weight", weight, x, checked.affine);
  check_affine(op, "bias", bias, x, checked.affine);
  return record_norm(op, x, checked, weight, bias, {.statistics = statistics, .then = then});
}

NormStatistics norm_statistics(const Tensor& x, const NormSpec& spec, std::string_view op) {
  return compute_statistics(op, x, checked_spec(op, x, spec));
}

Tensors normalize_backward(const Tensor& dy, const Tensor& x, const NormSpec& spec, const Tensor& weight,
                           const Tensor& bias) {
  constexpr std::string_view op = "normalize_backward";
  NormNode node{{}, "normalize", checked_spec(op, x, spec)};
  check_defined(op, "dy", dy);
  check_sizes(op, "dy", dy, x.sizes());
  check_dtype(op, "dy", dy, x.dtype());
  check_device(op, "dy", dy, x.device());
  check_affine(op, "weight", weight, x, node.spec.affine);
  check_affine(op, "bias", bias, x, node.spec.affine);
  node.affine = weight.defined() || bias.defined();
  node.bias_dtype = bias.defined() ? bias.dtype() : x.dtype();
  node.x = x;
  node.weight = weight;
  if (x.numel() == 0) {
    node.stats =
        zeros({kernels::stats_rows(spec.centring), 0}, {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  } else {
    // The walk of a normalize() with weight or bias gives its bits.
    const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), node.spec, node.affine);
    node.stats = compute_stats(op, layout, x, node.spec);
  }
  Tensors gradients = record_norm_backward(node, dy, {true, weight.defined(), bias.defined(), false});
  gradients.pop_back();
  return gradients;
}

}  // namespace norma
