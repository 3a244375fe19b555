#pragma once

#include "ops/norm/reference.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

#include <cmath>

namespace norma::test {

/// Norms are computed by their definition for the length of a scope.
struct ByReference {
  ByReference() { set_norm_reference(true); }
  ~ByReference() { set_norm_reference(before); }
  ByReference(const ByReference&) = delete;
  ByReference& operator=(const ByReference&) = delete;
  const bool before = norm_reference();
};

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
  /// Mean and variance for each index of axis 1, in place of those of x. The gradient takes them for constants.
  std::vector<double> given_mean = {};
  std::vector<double> given_var = {};
};

/// For each element in row-major order: which set it belongs to, and its index along axis 1.
struct ElementPlaces {
  std::vector<size_t> set;
  std::vector<size_t> channel;
};

inline ElementPlaces places_of(const Tensor& x, const NormSpec& spec) {
  ElementPlaces places;
  const int64_t inner = x.rank() > 1 ? x.numel() / (x.size(0) * x.size(1)) : 1;
  NormSets(x.sizes(), spec).for_each([&](size_t i, size_t set, size_t) {
    places.set.push_back(set);
    places.channel.push_back(x.rank() > 1 ? i / static_cast<size_t>(inner) % static_cast<size_t>(x.size(1)) : 0);
  });
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

/// NormReference as vectors.
inline ReferenceNorm reference_norm(const Tensor& x, const NormSpec& spec, const Tensor& weight = {},
                                    const Tensor& bias = {}, const ReferenceExtras& extras = {}) {
  NormReferenceInputs inputs{.spec = spec,
                             .x = x,
                             .weight = weight,
                             .bias = bias,
                             .dy = extras.dy,
                             .activation = extras.activation,
                             .residual = extras.residual};
  const size_t given = extras.given_mean.size();
  const NormSets sets(x.sizes(), spec);
  for (size_t set = 0; given > 0 && set < static_cast<size_t>(sets.sets()); ++set) {
    inputs.fixed_mean.push_back(extras.given_mean[set % given]);
    inputs.fixed_rstd.push_back(1 / std::sqrt(static_cast<long double>(extras.given_var[set % given]) + spec.eps));
  }
  const NormReference norm(inputs);
  ReferenceNorm result;
  result.y = norm.all(&NormReference::y);
  sets.for_each([&](size_t, size_t set, size_t) {
    result.mean.push_back(given > 0 ? extras.given_mean[set % given] : static_cast<double>(norm.mean(set)));
    result.var.push_back(given > 0 ? extras.given_var[set % given] : static_cast<double>(norm.var(set)));
  });
  if (!extras.dy.defined()) {
    return result;
  }
  result.dx = norm.all(&NormReference::dx);
  result.dresidual = norm.all(&NormReference::dz);
  const std::vector<double> w = weight.defined() ? weight.to_vector<double>() : std::vector<double>();
  sets.for_each([&](size_t i, size_t set, size_t number) {
    const double direct = result.dresidual[i] * (w.empty() ? 1 : w[number]) * static_cast<double>(norm.rstd(set));
    result.terms.insert(result.terms.end(), {direct, direct - result.dx[i]});
  });
  for (size_t number = 0; number < static_cast<size_t>(sets.weights()); ++number) {
    result.dweight.push_back(static_cast<double>(norm.dweight(number)));
    result.dbias.push_back(static_cast<double>(norm.dbias(number)));
  }
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
inline double largest(const Tensor& x) {
  return largest(x.to_vector<double>());
}

}  // namespace norma::test
