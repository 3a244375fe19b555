#pragma once

#include "core/tensor.h"
#include "ops/map_norm/kernels.h"
#include "ops/norm/spec.h"

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
  /// An uninitialised tensor in the order of the kernels.
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

}  // namespace norma::norm_detail
