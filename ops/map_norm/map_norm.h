#pragma once

#include "core/tensor.h"
#include "ops/map_norm/kernels.h"
#include "ops/norm/norm.h"

#include <functional>
#include <optional>
#include <string_view>

// The norms of this family share these; nothing here is for other families.

namespace norma::norm_detail {

/// The way in which the elements of a tensor become maps.
class MapLayout {
 public:
  /// x: (N, C, …). Numbers differ from image to image and from channel to channel.
  explicit MapLayout(const Tensor& x);
  /// Numbers differ along one axis alone.
  MapLayout(const Tensor& x, int64_t axis);

  [[nodiscard]] const kernels::MapShape& shape() const { return shape_; }
  /// `x`, of the sizes of the tensor, in this dtype and in the order of the kernels; x itself if it is so already.
  [[nodiscard]] Tensor in_order(const Tensor& x, DType dtype) const;
  /// A kernel's result in that order, with the strides that belong to the tensor.
  [[nodiscard]] Tensor copy_back(const Tensor& in_order) const;
  /// An uninitialized tensor in the order of the kernels.
  [[nodiscard]] Tensor empty(DType dtype, Device device) const;

 private:
  kernels::MapShape shape_;
  Sizes sizes_;
  Strides order_;
  Strides wanted_;
};

/// A norm of this family on the tape. It saves its inputs and stats, and no intermediate results.
struct RecordedMapNorm {
  std::string_view op;    ///< a literal
  Activation activation;  ///< relu is part of y and of `backward`; the others follow as ops of their own
  Tensors inputs;         ///< x first, then the parameters, some of which may be undefined
  Tensors stats;
  Tensor y;
  /// The same function of the inputs without an activation, composed of differentiable ops. Higher derivatives come
  /// from it.
  std::function<Tensor(const Tensors& inputs)> composed;
  /// The gradients of the inputs.
  std::function<Tensors(const Tensor& dy, const Tensors& inputs, const Tensors& stats)> backward;
  /// y, without a scope of its own. Empty: y is not remade.
  std::function<Tensor(const Tensors& inputs, const Tensors& stats)> forward = {};
};
Tensor record_map_norm(const RecordedMapNorm& norm);

/// A norm that is one of kernels::MapFunction.
struct MapNorm {
  std::string_view op;  ///< a literal
  kernels::MapFunction function;
  Activation activation = Activation::identity;
  std::optional<int64_t> axis = {};  ///< where numbers differ along one axis alone
  bool fixed_stats = false;          ///< see kernels::MapSources
  double eps = 0;                    ///< likewise
  /// See RecordedMapNorm. An empty x takes it, too.
  std::function<Tensor(const Tensors& inputs)> composed;
};
/// Computes y of the norm and records it. inputs: x, then the parameters in the order of the function. `stats_of`, if
/// any, gets x in the order of the kernels and returns MapSources::stats.
Tensor map_norm(const MapNorm& norm, const Tensors& inputs,
                const std::function<Tensors(const Tensor& x)>& stats_of = nullptr);

/// The stats (ops/norm/kernels.h) of an x in the order of the kernels. `var`, if not null, receives the variances.
Tensor map_stats(std::string_view op, const Tensor& x, const NormSpec& spec, Tensor* var = nullptr);

// Differentiable ops that compose the norms of this family, for higher derivatives.
// Between in_compute_dtype() and back_to() a norm is computed in float32 or float64.

/// x in the dtype of the computation, or in `dtype`. The gradient comes back in x's dtype and strides.
Tensor in_compute_dtype(const Tensor& x);
Tensor computed_in(DType dtype, const Tensor& x);
/// y in x's dtype and strides: the end of a computation that in_compute_dtype() began. The gradient goes in with these
/// strides whatever it came with, so that the whole computation has one memory format.
Tensor back_to(const Tensor& x, const Tensor& y);

/// x in another dtype, on the tape; an undefined tensor stays undefined.
Tensor in_dtype(const Tensor& x, DType dtype);

/// A parameter of (C) in x's dtype, with sizes that broadcast along the axis of x's channels.
Tensor along_channels(const Tensor& parameter, const Tensor& x, int64_t axis = 1);

/// x * weight + bias along the channels; either may be undefined.
Tensor scale_and_shift(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t axis = 1);

/// sqrt(var + eps) of each set, with the biased variance, or the mean square for Centring::none; reduced axes have size
/// 1. Its gradient at 0 is 0. Differentiable any number of times. `spec` has no groups.
Tensor deviation(std::string_view op, const Tensor& x, const NormSpec& spec);

/// A power of two near 1 / x for each element, as a constant: products with it are exact, and squares of scaled numbers
/// stay in the range of the dtype.
Tensor inverse_power_of_two(std::string_view op, const Tensor& x);

}  // namespace norma::norm_detail
