#pragma once

#include "core/tensor.h"
#include "ops/norm/norm.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace norma {

/// Tells the set of a norm that each element belongs to, and the weight it takes. Both are numbered in row-major order.
class NormSets {
 public:
  /// The axes of `spec` are sorted and not negative.
  NormSets(const Sizes& sizes, const NormSpec& spec);

  [[nodiscard]] int64_t sets() const { return sets_; }
  [[nodiscard]] int64_t weights() const { return weights_; }
  [[nodiscard]] int64_t numel() const { return numel_; }
  [[nodiscard]] int64_t set_size() const { return numel_ / sets_; }
  /// The number of runs along the last axis.
  [[nodiscard]] int64_t rows() const { return numel_ / static_cast<int64_t>(set_of_axis_.back().size()); }

  /// Calls f(element, set, weight), all size_t, for the elements of some rows in row-major order.
  template <class F>
  void for_each(int64_t first_row, int64_t last_row, F&& f) const {
    const std::vector<size_t>& last_sets = set_of_axis_.back();
    const std::vector<size_t>& last_weights = weight_of_axis_.back();
    const size_t length = last_sets.size();
    for (int64_t row = first_row; row < last_row; ++row) {
      size_t set = 0;
      size_t weight = 0;
      auto rest = static_cast<size_t>(row);
      for (size_t axis = set_of_axis_.size() - 1; axis-- > 0;) {
        const size_t i = rest % set_of_axis_[axis].size();
        rest /= set_of_axis_[axis].size();
        set += set_of_axis_[axis][i];
        weight += weight_of_axis_[axis][i];
      }
      const size_t first = static_cast<size_t>(row) * length;
      for (size_t i = 0; i < length; ++i) {
        f(first + i, set + last_sets[i], weight + last_weights[i]);
      }
    }
  }
  template <class F>
  void for_each(F&& f) const {
    for_each(0, rows(), f);
  }

 private:
  // Each index along an axis adds this much to the number of the set, and of the weight.
  std::vector<std::vector<size_t>> set_of_axis_;
  std::vector<std::vector<size_t>> weight_of_axis_;
  int64_t sets_ = 1;
  int64_t weights_ = 1;
  int64_t numel_ = 1;
};

/// The arguments of a NormReference. Tensors may have any dtype and any strides.
struct NormReferenceInputs {
  NormSpec spec;       ///< its axes are sorted and not negative
  Tensor x;            ///< not empty
  Tensor weight = {};  ///< undefined: 1
  Tensor bias = {};    ///< undefined: 0
  Tensor dy = {};      ///< the gradient of y; undefined: there are no gradients to ask for
  Activation activation = Activation::identity;
  Tensor residual = {};  ///< undefined: 0
  /// Mean (0 for Centring::deviation) and 1 / sqrt(var + eps) of each set, in place of x's own. The gradient treats
  /// them as constants.
  std::vector<long double> fixed_mean = {};
  std::vector<long double> fixed_rstd = {};
};

/// A norm and its gradients by their definition: plain loops in the widest floating type (64 bits of mantissa on x86).
///
///   y = f(z + residual),  z = xhat * weight + bias,  xhat = (x - mean) * rstd
///   mean = sum(x) / n,  var = sum((x - mean)²) / (n - correction),  rstd = 1 / sqrt(var + eps)
///
/// for a set of n elements. With Centring::none, mean is 0. With Centring::deviation, xhat = x * rstd. The gradients,
/// with dz = dy * f'(z + residual) and g = dz * weight, are
///
///   dx = rstd * (g - sum(g) / n - (x - mean) * rstd * sum(g * xhat) / (n - correction))
///   dweight = sum(dz * xhat),  dbias = sum(dz),  dresidual = dz
///
/// where sum(g) stands only with Centring::mean, and dx = rstd * g if the statistics are fixed. Tests compare the fast
/// kernels with this, and NORMA_NORM=reference puts it in their place.
class NormReference {
 public:
  using Wide = long double;

  explicit NormReference(const NormReferenceInputs& inputs);

  [[nodiscard]] const NormSets& sets() const { return sets_; }
  [[nodiscard]] Wide mean(size_t set) const { return mean_[set] + mean_low_[set]; }
  /// Not with fixed statistics.
  [[nodiscard]] Wide var(size_t set) const { return var_[set]; }
  [[nodiscard]] Wide rstd(size_t set) const { return rstd_[set]; }

  // For one element; NormSets tells its set and weight.
  [[nodiscard]] Wide xhat(size_t element, size_t set) const;
  [[nodiscard]] Wide y(size_t element, size_t set, size_t weight) const;
  /// The gradient of z, and of the residual.
  [[nodiscard]] Wide dz(size_t element, size_t set, size_t weight) const;
  /// dx / rstd, which fits the type even if rstd is very large or small.
  [[nodiscard]] Wide scaled_dx(size_t element, size_t set, size_t weight) const;
  [[nodiscard]] Wide dx(size_t element, size_t set, size_t weight) const {
    return scaled_dx(element, set, weight) * rstd_[set];
  }

  // For one weight.
  [[nodiscard]] Wide dweight(size_t weight) const { return dweight_[weight]; }
  [[nodiscard]] Wide dbias(size_t weight) const { return dbias_[weight]; }

  /// Calls of(element, set, weight) for all elements in row-major order: `reference.all(&NormReference::y)`.
  [[nodiscard]] std::vector<double> all(Wide (NormReference::*of)(size_t, size_t, size_t) const) const;

 private:
  void find_statistics();
  void find_gradients();
  [[nodiscard]] Wide centred(size_t element, size_t set) const { return (x_[element] - mean_[set]) - mean_low_[set]; }
  [[nodiscard]] Wide z(size_t element, size_t set, size_t weight) const;

  NormSpec spec_;
  Activation activation_;
  bool fixed_stats_;
  NormSets sets_;
  // For each element.
  std::vector<double> x_;
  std::vector<double> residual_;
  std::vector<double> dy_;
  // For each set.
  std::vector<Wide> mean_;
  std::vector<Wide> mean_low_;  ///< what mean_ has lost to rounding
  std::vector<Wide> var_;
  std::vector<Wide> rstd_;
  std::vector<Wide> mean_g_;      ///< sum(g) / n with g = dz * weight
  std::vector<Wide> projection_;  ///< sum(g * xhat) / (n - correction)
  // For each weight.
  std::vector<double> weight_;
  std::vector<double> bias_;
  std::vector<Wide> dweight_;
  std::vector<Wide> dbias_;
};

}  // namespace norma
