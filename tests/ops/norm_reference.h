#pragma once

#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

#include <numbers>

namespace norma::test {

/// A norm by its definition, in float64 and row-major order.
struct ReferenceNorm {
  std::vector<double> y;
  std::vector<double> mean;  ///< of the set of each element; 0 for Centring::none
  std::vector<double> var;   ///< likewise; the mean square for Centring::none
  // For the gradient `dy` of y, if it was given:
  std::vector<double> dx;
  std::vector<double> dweight;
  std::vector<double> dbias;
  std::vector<double> dresidual;
  std::vector<double> terms;  ///< of which dx is made by subtraction
};

/// What reference_norm() takes besides x, weight and bias.
struct ReferenceExtras {
  Tensor dy = {};
  Activation activation = Activation::identity;
  Tensor residual = {};
  /// Mean and variance for each index of axis 1, in place of what x has; constants for the gradient.
  std::vector<double> given_mean = {};
  std::vector<double> given_var = {};
};

/// For each element in row-major order: which set it belongs to, which weight it takes, its index along axis 1.
struct ElementPlaces {
  std::vector<size_t> set;
  std::vector<size_t> weight;
  std::vector<size_t> channel;
};

inline ElementPlaces places_of(const Tensor& x, const NormSpec& spec) {
  const auto count = static_cast<size_t>(x.numel());
  ElementPlaces places{std::vector<size_t>(count), std::vector<size_t>(count), std::vector<size_t>(count)};
  std::vector<int64_t> index(static_cast<size_t>(x.rank()));
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i;
    for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
      index[static_cast<size_t>(axis)] = static_cast<int64_t>(rest % static_cast<size_t>(x.size(axis)));
      rest /= static_cast<size_t>(x.size(axis));
    }
    for (int64_t axis = 0; axis < x.rank(); ++axis) {
      const int64_t at = index[static_cast<size_t>(axis)];
      const int64_t size = x.size(axis);
      if (!spec.reduce.contains(axis)) {
        places.set[i] = places.set[i] * static_cast<size_t>(size) + static_cast<size_t>(at);
      } else if (spec.groups > 1 && axis == 1) {
        places.set[i] =
            places.set[i] * static_cast<size_t>(spec.groups) + static_cast<size_t>(at / (size / spec.groups));
      }
      if (spec.affine.contains(axis)) {
        places.weight[i] = places.weight[i] * static_cast<size_t>(size) + static_cast<size_t>(at);
      }
    }
    places.channel[i] = x.rank() > 1 ? static_cast<size_t>(index[1]) : 0;
  }
  return places;
}

/// Sizes of weight and bias.
inline Sizes affine_sizes(const Tensor& x, const NormSpec& spec) {
  Sizes sizes;
  for (const int64_t axis : spec.affine) {
    sizes.push_back(x.size(axis));
  }
  return sizes;
}

/// f(z), and its derivative.
inline std::pair<double, double> reference_activation(Activation activation, double z) {
  switch (activation) {
    case Activation::identity: break;
    case Activation::relu: return {z > 0 ? z : 0, z > 0 ? 1 : 0};
    case Activation::gelu: {
      const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
      const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
      return {z * below, below + z * density};
    }
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-z));
      return {z * s, s * (1 + z * (1 - s))};
    }
  }
  return {z, 1};
}

/// Plain loops over all elements. With m = mean, s = 1 / sqrt(var + eps), g = dz * weight and n elements in a set:
///   mean:      z = (x - m) s w + b,  dx = s (g - mean(g)) - s³ (x - m) sum(g (x - m)) / (n - correction)
///   none:      z = x s w + b,        dx = s g - s³ x sum(g x) / n
///   deviation: z = x s w + b,        dx = s g - s³ (x - m) sum(g x) / (n - correction)
///   given:     z = (x - m) s w + b,  dx = s g
/// and y = activation(z + residual), dz = dy * activation'(z + residual).
inline ReferenceNorm reference_norm(const Tensor& x, const NormSpec& spec, const Tensor& weight = {},
                                    const Tensor& bias = {}, const ReferenceExtras& extras = {}) {
  const std::vector<double> values = x.to_vector<double>();
  const size_t count = values.size();
  const ElementPlaces places = places_of(x, spec);
  const auto or_else = [](const Tensor& t, size_t size, double otherwise) {
    return t.defined() ? t.to_vector<double>() : std::vector<double>(size, otherwise);
  };
  const std::vector<double> w = or_else(weight, count, 1);
  const std::vector<double> b = or_else(bias, count, 0);
  const std::vector<double> residual = or_else(extras.residual, count, 0);
  const bool given = !extras.given_mean.empty();
  const bool centred = spec.centring == Centring::mean || given;

  std::vector<double> sums(count), squares(count), counts(count);
  for (size_t i = 0; i < count; ++i) {
    sums[places.set[i]] += spec.centring == Centring::none ? 0 : values[i];
    counts[places.set[i]] += 1;
  }
  for (size_t i = 0; i < count; ++i) {
    const double d = values[i] - sums[places.set[i]] / counts[places.set[i]];
    squares[places.set[i]] += d * d;
  }
  ReferenceNorm result;
  std::vector<double> centre(count), s(count), dz(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t set = places.set[i];
    const auto correction = static_cast<double>(spec.correction);
    result.mean.push_back(given ? extras.given_mean[places.channel[i]] : sums[set] / counts[set]);
    result.var.push_back(given ? extras.given_var[places.channel[i]] : squares[set] / (counts[set] - correction));
    centre[i] = centred ? result.mean[i] : 0;
    s[i] = 1 / std::sqrt(result.var[i] + spec.eps);
    const double z = (values[i] - centre[i]) * s[i] * w[places.weight[i]] + b[places.weight[i]] + residual[i];
    const auto [y, derivative] = reference_activation(extras.activation, z);
    result.y.push_back(y);
    dz[i] = derivative;
  }
  if (!extras.dy.defined()) {
    return result;
  }

  const std::vector<double> dy = extras.dy.to_vector<double>();
  const auto weights = static_cast<size_t>(affine_sizes(x, spec).numel());
  result.dweight.resize(weights);
  result.dbias.resize(weights);
  std::vector<double> g_sums(count), gx_sums(count);
  for (size_t i = 0; i < count; ++i) {
    dz[i] *= dy[i];
    const double g = dz[i] * w[places.weight[i]];
    g_sums[places.set[i]] += g;
    gx_sums[places.set[i]] += g * (values[i] - centre[i]);
    result.dweight[places.weight[i]] += dz[i] * (values[i] - centre[i]) * s[i];
    result.dbias[places.weight[i]] += dz[i];
  }
  for (size_t i = 0; i < count; ++i) {
    const double n = counts[places.set[i]];
    double dx = dz[i] * w[places.weight[i]] * s[i];
    result.terms.push_back(dx);
    if (!given) {
      const double d = values[i] - result.mean[i];
      const double by_d = s[i] * s[i] * s[i] * d * gx_sums[places.set[i]] / (n - static_cast<double>(spec.correction));
      result.terms.push_back(by_d);
      dx -= by_d;
      dx -= centred ? s[i] * g_sums[places.set[i]] / n : 0;
    }
    result.dx.push_back(dx);
  }
  result.dresidual = dz;
  return result;
}

/// Largest |y - reference|; infinite on NaN.
inline double distance(const Tensor& y, const std::vector<double>& reference) {
  const std::vector<double> values = y.to_vector<double>();
  if (values.size() != reference.size()) {
    return INFINITY;
  }
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - reference[i]);
    worst = difference <= worst ? worst : std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

/// Distance from |value| to the next number of the dtype: what one rounding may change, twice over.
inline double rounding_step(DType dtype, double value) {
  const auto [digits, smallest] = dtype == DType::float64   ? std::pair(53, -1022)
                                  : dtype == DType::float32 ? std::pair(24, -126)
                                  : dtype == DType::float16 ? std::pair(11, -14)
                                                            : std::pair(8, -126);
  const int exponent = value == 0 ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(1.0, exponent - digits + 1);
}

inline double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) {
    result = std::max(result, std::abs(value));
  }
  return result;
}

}  // namespace norma::test
