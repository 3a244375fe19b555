#include "ops/norm/reference.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "ops/implementations.h"
#include "ops/norm/node.h"

#include <atomic>
#include <cmath>
#include <numbers>
#include <string_view>

namespace norma {

namespace {

using Wide = NormReference::Wide;

std::vector<double> values_or(const Tensor& x, int64_t count, double otherwise) {
  return x.defined() ? x.to_vector<double>() : std::vector<double>(static_cast<size_t>(count), otherwise);
}

struct ValueAndSlope {
  Wide value;
  Wide slope;
};

/// f(v) and f'(v)
ValueAndSlope activate(Activation activation, Wide v) {
  switch (activation) {
    case Activation::identity: break;
    case Activation::relu:  // NaN stays
      return v <= 0 ? ValueAndSlope{0, 0} : ValueAndSlope{v, 1};
    case Activation::gelu: {
      const Wide distribution = std::erfc(-v / std::numbers::sqrt2_v<Wide>) / 2;
      const Wide density = std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi_v<Wide>);
      return {v * distribution, distribution + v * density};
    }
    case Activation::silu: {
      const Wide sigmoid = 1 / (1 + std::exp(-v));
      return {v * sigmoid, sigmoid * (1 + v * (1 - sigmoid))};
    }
  }
  return {v, 1};
}

}  // namespace

NormSets::NormSets(const Sizes& sizes, const NormSpec& spec) {
  const auto rank = static_cast<size_t>(sizes.size());
  set_of_axis_.resize(rank);
  weight_of_axis_.resize(rank);
  for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
    const int64_t size = sizes[axis];
    // Neighbours along this axis that share a set.
    const int64_t share = !spec.reduce.contains(axis) ? 1 : spec.groups > 1 && axis == 1 ? size / spec.groups : size;
    const bool weighted = spec.affine.contains(axis);
    for (int64_t i = 0; i < size; ++i) {
      set_of_axis_[static_cast<size_t>(axis)].push_back(static_cast<size_t>(i / share * sets_));
      weight_of_axis_[static_cast<size_t>(axis)].push_back(static_cast<size_t>(weighted ? i * weights_ : 0));
    }
    sets_ *= size / share;
    weights_ *= weighted ? size : 1;
    numel_ *= size;
  }
  if (rank == 0) {
    set_of_axis_ = weight_of_axis_ = {{0}};
  }
}

NormReference::NormReference(const NormReferenceInputs& in)
    : spec_(in.spec),
      activation_(in.activation),
      fixed_stats_(!in.fixed_rstd.empty()),
      sets_(in.x.sizes(), in.spec),
      x_(in.x.to_vector<double>()),
      residual_(values_or(in.residual, 0, 0)),
      dy_(values_or(in.dy, 0, 0)),
      mean_(in.fixed_mean),
      mean_low_(static_cast<size_t>(sets_.sets()), 0),
      rstd_(in.fixed_rstd),
      weight_(values_or(in.weight, sets_.weights(), 1)),
      bias_(values_or(in.bias, sets_.weights(), 0)) {
  if (!fixed_stats_) {
    find_statistics();
  }
  if (in.dy.defined()) {
    find_gradients();
  }
}

void NormReference::find_statistics() {
  const auto sets = static_cast<size_t>(sets_.sets());
  const auto n = static_cast<Wide>(sets_.set_size());
  mean_.assign(sets, 0);
  if (spec_.centring != Centring::none) {
    // mean = sum(x) / n; sum(x - mean) / n is what it lost to rounding
    for (std::vector<Wide>* part : {&mean_, &mean_low_}) {
      std::vector<Wide> sums(sets, 0);
      sets_.for_each([&](size_t i, size_t set, size_t) { sums[set] += centred(i, set); });
      for (size_t set = 0; set < sets; ++set) {
        // An infinite mean has lost nothing; infinity - infinity would be NaN.
        (*part)[set] = std::isfinite(mean_[set]) ? sums[set] / n : 0;
      }
    }
  }
  // var = sum((x - mean)²) / (n - correction), rstd = 1 / sqrt(var + eps)
  std::vector<Wide> squares(sets, 0);
  sets_.for_each([&](size_t i, size_t set, size_t) {
    const Wide d = centred(i, set);
    squares[set] += d * d;
  });
  for (size_t set = 0; set < sets; ++set) {
    var_.push_back(squares[set] / (n - static_cast<Wide>(spec_.correction)));
    rstd_.push_back(1 / std::sqrt(var_[set] + spec_.eps));
  }
}

// sum(g) and sum(g * xhat) over each set, with g = dz * weight; dweight = sum(dz * xhat) and dbias = sum(dz) over the
// elements with that weight
void NormReference::find_gradients() {
  const auto sets = static_cast<size_t>(sets_.sets());
  const auto weights = static_cast<size_t>(sets_.weights());
  const auto n = static_cast<Wide>(sets_.set_size());
  mean_g_.assign(sets, 0);
  projection_.assign(sets, 0);
  dweight_.assign(weights, 0);
  dbias_.assign(weights, 0);
  sets_.for_each([&](size_t i, size_t set, size_t w) {
    const Wide d = dz(i, set, w);
    const Wide hat = xhat(i, set);
    mean_g_[set] += d * weight_[w];
    projection_[set] += d * weight_[w] * hat;
    dweight_[w] += d * hat;
    dbias_[w] += d;
  });
  for (size_t set = 0; set < sets; ++set) {
    mean_g_[set] /= n;
    projection_[set] /= n - static_cast<Wide>(spec_.correction);
  }
}

Wide NormReference::xhat(size_t element, size_t set) const {
  return (spec_.centring == Centring::deviation && !fixed_stats_ ? x_[element] : centred(element, set)) * rstd_[set];
}

Wide NormReference::z(size_t element, size_t set, size_t weight) const {
  return xhat(element, set) * weight_[weight] + bias_[weight];
}

Wide NormReference::y(size_t element, size_t set, size_t weight) const {
  const Wide residual = residual_.empty() ? 0 : residual_[element];
  return activate(activation_, z(element, set, weight) + residual).value;
}

// dz = dy * f'(z + residual)
Wide NormReference::dz(size_t element, size_t set, size_t weight) const {
  const Wide residual = residual_.empty() ? 0 : residual_[element];
  return dy_[element] * activate(activation_, z(element, set, weight) + residual).slope;
}

// g = dz * weight. With fixed stats, dx = rstd * g. Otherwise
//   dx = rstd * (g - mean(g) - (x - mean) * rstd * sum(g * xhat) / (n - correction))
// Only Centring::mean has the term mean(g): elsewhere nothing is subtracted in y.
Wide NormReference::scaled_dx(size_t element, size_t set, size_t weight) const {
  const Wide g = dz(element, set, weight) * weight_[weight];
  if (fixed_stats_) {
    return g;
  }
  return g - (spec_.centring == Centring::mean ? mean_g_[set] : 0) -
         centred(element, set) * rstd_[set] * projection_[set];
}

std::vector<double> NormReference::all(Wide (NormReference::*of)(size_t, size_t, size_t) const) const {
  std::vector<double> values(x_.size());
  sets_.for_each([&](size_t i, size_t set, size_t w) { values[i] = static_cast<double>((this->*of)(i, set, w)); });
  return values;
}

namespace {

std::atomic<bool>& reference_is_on() {
  static std::atomic<bool> instance = kernels::reference_in_environment("normalize", "NORMA_NORM");
  return instance;
}

}  // namespace

bool norm_reference() {
  return reference_is_on();
}

void set_norm_reference(bool on) {
  reference_is_on() = on;
}

// --- in place of the kernels ----------------------------------------------------------------------------------------

namespace norm_detail {

namespace {

/// A norm by its definition. `stats`, if defined, replace those of x.
NormReference reference_of(const NormLayout& layout, const Tensor& stats, NormReferenceInputs inputs) {
  if (stats.defined()) {
    const auto row = [&](int64_t which) {
      return layout.per_set(stats_row(stats, which), sizes_of_sets(inputs.x.sizes(), inputs.spec)).to_vector<double>();
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

}  // namespace

void forward_by_reference(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool fixed_stats,
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
  const auto high = [&](size_t set) -> NormReference::Wide {
    const NormReference::Wide mean = reference.mean(set);
    return t.stats.dtype() == DType::float32 ? static_cast<float>(mean) : static_cast<double>(mean);
  };
  write(stats_row(t.stats, kernels::kMeanRow), high);
  write(stats_row(t.stats, kernels::kMeanLowRow), [&](size_t set) { return reference.mean(set) - high(set); });
  write(stats_row(t.stats, kernels::kRstdRow), [&](size_t set) { return reference.rstd(set); });
  if (t.var.defined()) {
    write(t.var, [&](size_t set) { return reference.var(set); });
  }
}

Tensors backward_by_reference(const NormNode& node, const NormLayout& layout, const Tensor& dy, NeededGradients needs) {
  OpScope::set_implementation("reference");
  const Tensor& x = node.x;
  const Sizes affine_sizes = sizes_along(x, node.spec.affine);
  const bool masked = node.bits.defined();  // the bits stand for the sign of z + residual
  const NormReference reference =
      reference_of(layout, node.fixed_stats ? node.stats : Tensor{},
                   {.spec = node.spec,
                    .x = x,
                    .weight = node.weight,
                    .bias = node.bias,
                    .dy = masked ? mask_by_bits(node, converted(dy, x.dtype())) : converted(dy, x.dtype()),
                    .activation = masked ? Activation::identity : node.activation,
                    .residual = node.residual});
  const TensorOptions options{.dtype = DType::float64, .device = x.device()};
  const auto like_x = [&](auto of) {
    const Tensor result = empty_like(x);
    copy_into(from_vector(reference.all(of), x.sizes(), options), result);
    return result;
  };
  const auto like_weight = [&](auto of, DType dtype) {
    std::vector<double> values;
    for (int64_t w = 0; w < affine_sizes.numel(); ++w) {
      values.push_back(static_cast<double>((reference.*of)(static_cast<size_t>(w))));
    }
    const Tensor result = empty(affine_sizes, {.dtype = dtype, .device = x.device()});
    copy_into(from_vector(values, affine_sizes, options), result);
    return result;
  };
  const DType weight_dtype = node.weight.defined() ? node.weight.dtype() : compute_dtype(x.dtype());
  return {needs.x ? like_x(&NormReference::dx) : Tensor{},
          needs.weight ? like_weight(&NormReference::dweight, weight_dtype) : Tensor{},
          needs.bias ? like_weight(&NormReference::dbias, node.bias_dtype) : Tensor{},
          !needs.residual                           ? Tensor{}
          : node.activation == Activation::identity ? dy
                                                    : like_x(&NormReference::dz)};
}

}  // namespace norm_detail

}  // namespace norma
