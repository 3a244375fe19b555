#include "ops/map_norm/evo_norm.h"

#include "core/autocast.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "ops/map_norm/differentiable_parts.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

namespace norma {

using namespace norm_kernels;

namespace {

/// v must be there; weight and bias may be.
void check_parameters(std::string_view op, const Tensor& x, const Tensor& v, const Tensor& weight, const Tensor& bias) {
  check_per_channel(op, "v", v, x);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
}

// --- B0 -------------------------------------------------------------------------------------------------------------

NormSpec spec_of_maps(const Tensor& x, const EvoNormB0Options& options) {
  return {.reduce = axes_from(2, x.rank()), .statistics = options.statistics, .eps = options.eps};
}
NormSpec spec_of_batch(const Tensor& x, const EvoNormB0Options& options) {
  NormSpec spec = spec_of_maps(x, options);
  spec.reduce.insert(0, 0);
  return spec;
}

/// inputs: x, v, weight, bias. fixed_var: (C), or undefined for that of the batch.
Tensor composed_b0(const Tensors& inputs, const Tensor& fixed_var, const EvoNormB0Options& options) {
  constexpr std::string_view op = "evo_norm_b0";
  const Tensor& x = inputs[0];
  const Tensor wide = enter(x);
  const Tensor batch_var =
      fixed_var.defined() ? along_channels(fixed_var, wide) : variance(op, wide, spec_of_batch(x, options));
  const Tensor left = sqrt(add(batch_var, options.eps));
  const Tensor right = add(mul(wide, along_channels(inputs[1], wide)),
                           sqrt(add(variance(op, wide, spec_of_maps(x, options)), options.eps)));
  return leave(scale_and_shift(div(wide, maximum(right, left)), inputs[2], inputs[3]), x);
}

/// v, root of the map, root of the batch, weight, bias. `batch`: mean, rest and rstd of the channels.
MapRows numbers_b0(const MapLayout& layout, const Tensors& inputs, const Tensor& maps, const Tensor& batch) {
  Doubles right = row_of(maps, 2);
  Doubles left = row_of(batch, 2);
  for (Doubles* root : {&right, &left}) {
    for (double& number : *root) {
      number = 1 / number;
    }
  }
  return {parameter_row(layout, inputs[1], 1), right, for_maps(layout, left), parameter_row(layout, inputs[2], 1),
          parameter_row(layout, inputs[3], 0)};
}

Tensors backward_b0(const Tensor& dy, const Tensors& inputs, const Tensor& maps, const Tensor& batch, bool fixed,
                    bool with_relu) {
  const MapCall call{.function = MapFunction::evo, .relu = with_relu};
  const MapLayout layout(inputs[0]);
  const DType dtype = inputs[0].dtype();
  const Tensor x = layout.in_order(inputs[0], dtype);
  const Tensor dz = layout.in_order(dy, dtype);
  const MapRows numbers = numbers_b0(layout, inputs, maps, batch);
  MapRows sums = map_sums(layout, dz, x, call, numbers);
  const Doubles& weight = numbers[3];
  for (size_t map = 0; map < weight.size(); ++map) {
    sums[2][map] *= -weight[map];
    sums[3][map] *= -weight[map];
    sums[4][map] *= -weight[map];
  }
  // root = sqrt(var + eps), so dx = droot / (root * n) * (x - mean) for each of both. The means differ:
  // (x - mean of the batch) = (x - mean of the map) + (mean of the map - mean of the batch).
  const Doubles of_batch = over_maps(layout, sums[4]);
  const Doubles mean = row_of(maps, 0);
  const Doubles rest = row_of(maps, 1);
  const Doubles batch_mean = row_of(batch, 0);
  const Doubles batch_rest = row_of(batch, 1);
  const Doubles rstd = row_of(maps, 2);  // by itself, since 1 / root² need not fit T
  Doubles by = sums[3];
  Doubles shift(weight.size(), 0.0);
  const size_t channels = of_batch.size();
  const double images = static_cast<double>(layout.shape().outer);
  for (size_t map = 0; map < by.size(); ++map) {
    by[map] /= layout.pixels();
    if (!fixed) {
      const size_t c = map % channels;
      const double through_batch = of_batch[c] / (numbers[2][map] * layout.pixels() * images);
      by[map] += through_batch * numbers[1][map];
      shift[map] = through_batch * ((mean[map] - batch_mean[c]) + (rest[map] - batch_rest[c]));
    }
  }
  const Tensor dx = map_gradient(layout, dz, x, call, numbers, {mean, rest, rstd, by, shift});
  return {layout.in_place(dx), gradient_of(inputs[1], over_maps(layout, sums[2])),
          gradient_of(inputs[2], over_maps(layout, sums[1])), gradient_of(inputs[3], over_maps(layout, sums[0]))};
}

// --- S0 -------------------------------------------------------------------------------------------------------------

NormSpec spec_of_groups(const Tensor& x, int64_t num_groups, const EvoNormS0Options& options) {
  return {.reduce = axes_from(1, x.rank()),
          .affine = {1},
          .groups = num_groups,
          .statistics = options.statistics,
          .eps = options.eps,
          .centring = Centring::deviation};
}

/// inputs: x, v, weight, bias
Tensor composed_s0(const Tensors& inputs, const NormSpec& spec) {
  const Tensor& x = inputs[0];
  const Tensor wide = enter(x);
  const Tensor scaled = normalize(wide, spec, in_dtype(inputs[2], wide.dtype()), {}, nullptr, "evo_norm_s0");
  const Tensor gate = sigmoid(mul(wide, along_channels(inputs[1], wide)));
  return leave(scale_and_shift(mul(scaled, gate), {}, inputs[3]), x);
}

/// Row `row` of the statistics of groups, one number for each map.
Doubles groups_for_maps(const MapLayout& layout, const Tensor& rows, int64_t row) {
  const Doubles of_groups = row_of(rows, row);
  const size_t maps_of_group = static_cast<size_t>(layout.maps()) / of_groups.size();
  Doubles result;
  for (const double number : of_groups) {
    result.insert(result.end(), maps_of_group, number);
  }
  return result;
}

/// v, rstd, weight, bias
MapRows numbers_s0(const MapLayout& layout, const Tensors& inputs, const Tensor& rows) {
  return {parameter_row(layout, inputs[1], 1), groups_for_maps(layout, rows, 2), parameter_row(layout, inputs[2], 1),
          parameter_row(layout, inputs[3], 0)};
}

Tensors backward_s0(const Tensor& dy, const Tensors& inputs, const Tensor& rows, bool with_relu) {
  const MapCall call{.function = MapFunction::gate, .relu = with_relu};
  const MapLayout layout(inputs[0]);
  const DType dtype = inputs[0].dtype();
  const Tensor x = layout.in_order(inputs[0], dtype);
  const Tensor dz = layout.in_order(dy, dtype);
  const MapRows numbers = numbers_s0(layout, inputs, rows);
  MapRows sums = map_sums(layout, dz, x, call, numbers);
  const Doubles& rstd = numbers[1];
  const Doubles& weight = numbers[2];
  // y - bias = f * rstd, so through rstd = (var + eps)^-1/2 comes
  //   dx = -rstd * mean of the group of dy * (y - bias) * (x - centre) * rstd
  const auto maps_of_group = rstd.size() / static_cast<size_t>(rows.size(1));
  const double elements = static_cast<double>(maps_of_group) * layout.pixels();
  Doubles by(rstd.size(), 0.0);
  for (size_t first = 0; first < rstd.size(); first += maps_of_group) {
    double sum = 0;
    for (size_t map = first; map < first + maps_of_group; ++map) {
      sum += weight[map] * sums[1][map];
      sums[2][map] *= weight[map];
    }
    for (size_t map = first; map < first + maps_of_group; ++map) {
      by[map] = -rstd[map] * sum / elements;
    }
  }
  const Tensor dx = map_gradient(
      layout, dz, x, call, numbers,
      {groups_for_maps(layout, rows, 3), groups_for_maps(layout, rows, 4), rstd, by, Doubles(rstd.size(), 0.0)});
  return {layout.in_place(dx), gradient_of(inputs[1], over_maps(layout, sums[2])),
          gradient_of(inputs[2], over_maps(layout, sums[1])), gradient_of(inputs[3], over_maps(layout, sums[0]))};
}

}  // namespace

Tensor evo_norm_b0(const Tensor& given, const Tensor& running_var, const Tensor& v, const Tensor& weight,
                   const Tensor& bias, const EvoNormB0Options& options) {
  constexpr std::string_view op = "evo_norm_b0";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check_parameters(op, x, v, weight, bias);
  check_optional_per_channel(op, "running_var", running_var, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, op, "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  const bool fixed = !options.training && running_var.defined();
  const int64_t count = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
  check(fixed || count != 1, op, "input: expected more than 1 value per channel {}, got sizes {}",
        options.training ? "when training" : "without running statistics", to_string(x.sizes()));
  const Tensors inputs{x, v, weight, bias};
  if (count == 0) {
    return activated(composed_b0(inputs, fixed ? running_var : Tensor{}, options), options.activation);
  }
  const bool with_relu = options.activation == Activation::relu;
  const MapLayout layout(x);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  const Tensor in_order = layout.in_order(x, x.dtype());
  const Tensor maps = statistics_rows_of(op, in_order, spec_of_maps(x, options));
  Tensor batch;
  Tensor fixed_var;
  if (fixed) {
    fixed_var = clone(running_var.detach());  // as it is now, for higher derivatives
    batch = given_statistics(zeros_like(fixed_var), fixed_var, options.eps, compute_dtype(x.dtype()));
  } else {
    Tensor batch_var;
    batch = statistics_rows_of(op, in_order, spec_of_batch(x, options), &batch_var);
    if (options.training && running_var.defined()) {
      const auto n = static_cast<double>(count);
      update_running(running_var, batch_var, options.momentum, n / (n - 1));
    }
  }
  const Tensor y =
      map_forward(layout, in_order, {MapFunction::evo, with_relu}, numbers_b0(layout, inputs, maps, batch));
  return record_own(
      {.op = op,
       .activation = options.activation,
       .inputs = inputs,
       .statistics = {maps, batch},
       .y = layout.in_place(y),
       .composed = [fixed_var, options](const Tensors& in) { return composed_b0(in, fixed_var, options); },
       .backward =
           [fixed, with_relu](const Tensor& dy, const Tensors& in, const Tensors& statistics) {
             return backward_b0(dy, in, statistics[0], statistics[1], fixed, with_relu);
           }});
}

Tensor evo_norm_s0(const Tensor& given, int64_t num_groups, const Tensor& v, const Tensor& weight, const Tensor& bias,
                   const EvoNormS0Options& options) {
  constexpr std::string_view op = "evo_norm_s0";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  check_parameters(op, x, v, weight, bias);
  const NormSpec spec = checked_spec(op, x, spec_of_groups(x, num_groups, options));
  const Tensors inputs{x, v, weight, bias};
  const auto composed = [spec](const Tensors& in) { return composed_s0(in, spec); };
  if (x.numel() == 0) {
    return activated(composed(inputs), options.activation);
  }
  const bool with_relu = options.activation == Activation::relu;
  const MapLayout layout(x);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  const Tensor in_order = layout.in_order(x, x.dtype());
  const Tensor rows = statistics_rows_of(op, in_order, spec);
  const Tensor y = map_forward(layout, in_order, {MapFunction::gate, with_relu}, numbers_s0(layout, inputs, rows));
  return record_own({.op = op,
                     .activation = options.activation,
                     .inputs = inputs,
                     .statistics = {rows},
                     .y = layout.in_place(y),
                     .composed = composed,
                     .backward = [with_relu](const Tensor& dy, const Tensors& in, const Tensors& statistics) {
                       return backward_s0(dy, in, statistics[0], with_relu);
                     }});
}

}  // namespace norma
