#pragma once

#include "core/tensor.h"
#include "ops/map_norm/kernels.h"
#include "ops/norm/norm.h"

#include <functional>
#include <string_view>
#include <vector>

// What the norms share whose y is a function of x and of a few numbers of its map; nothing here is for others. The
// numbers are few, so all that is not done for every element is done in double, in plain loops.

namespace norma::norm_kernels {

using Doubles = std::vector<double>;

/// How the elements of a tensor become maps.
class MapLayout {
 public:
  /// x: (N, C, …). Numbers differ from image to image.
  explicit MapLayout(const Tensor& x);
  /// Numbers differ along one axis alone.
  MapLayout(const Tensor& x, int64_t axis);

  [[nodiscard]] const MapShape& shape() const { return shape_; }
  [[nodiscard]] int64_t maps() const { return shape_.maps(); }
  [[nodiscard]] int64_t channels() const { return shape_.channels; }
  /// Elements of a map.
  [[nodiscard]] double pixels() const { return static_cast<double>(shape_.inner); }
  /// `x`, of the sizes of the tensor, with the dtype given and in the order of the kernels; itself if it is so.
  [[nodiscard]] Tensor in_order(const Tensor& x, DType dtype) const;
  /// What a kernel wrote in that order, with the strides that belong to the tensor.
  [[nodiscard]] Tensor in_place(const Tensor& x) const;
  /// Uninitialised, in the order of the kernels.
  [[nodiscard]] Tensor empty(DType dtype, Device device) const;

 private:
  MapShape shape_;
  Sizes sizes_;
  Strides order_;
  Strides wanted_;
};

/// The numbers of a parameter, or `otherwise` for each of `count` where there is none.
Doubles numbers_from(const Tensor& parameter, int64_t count, double otherwise);
/// The gradient of a parameter, if there is one.
Tensor gradient_of(const Tensor& parameter, const Doubles& numbers);
/// One number per map: that of its channel.
Doubles for_maps(const MapLayout& layout, const Doubles& of_channels);
/// The numbers of a parameter of (C), or `otherwise`, one per map.
Doubles parameter_row(const MapLayout& layout, const Tensor& parameter, double otherwise);
/// One number per channel: the sum over its maps.
Doubles over_maps(const MapLayout& layout, const Doubles& of_maps);

/// (rows, sets) as normalize() keeps them: mean, rest, rstd; for Centring::deviation then centre and its rest. x: in
/// the order of the layout. `var`, if not null, receives the variances. `affine`: in the walk of a normalize() with
/// weight or bias, and so with its bits.
Tensor statistics_rows_of(std::string_view op, const Tensor& x, const NormSpec& spec, Tensor* var = nullptr,
                          bool affine = false);
/// Row `row` of them.
Doubles row_of(const Tensor& rows, int64_t row);

/// One row for each number, each with one for every map.
using MapRows = std::vector<Doubles>;
/// What the kernels compute: the function, and relu behind it.
struct MapCall {
  MapFunction function;
  bool relu = false;
};
/// f(x), x in the order of the layout. The result too.
Tensor map_forward(const MapLayout& layout, const Tensor& x, const MapCall& call, const MapRows& numbers);
/// The sums of MapSums.
MapRows map_sums(const MapLayout& layout, const Tensor& dy, const Tensor& x, const MapCall& call,
                 const MapRows& numbers);
/// dx; `centred` has the five rows of MapGradient or none.
Tensor map_gradient(const MapLayout& layout, const Tensor& dy, const Tensor& x, const MapCall& call,
                    const MapRows& numbers, const MapRows& centred);

/// A norm with kernels of its own. It saves its inputs and `statistics`, and nothing that it computes on the way.
struct OwnNorm {
  std::string_view op;    ///< a literal
  Activation activation;  ///< relu is part of y and of `backward`; the others follow as ops of their own
  Tensors inputs;         ///< x first, then the parameters, some of which may be undefined
  Tensors statistics;     ///< what `backward` wants beside the inputs
  Tensor y;
  /// The same function of the inputs without an activation, composed of differentiable ones: higher derivatives are
  /// taken from it.
  std::function<Tensor(const Tensors& inputs)> composed;
  /// The gradients of the inputs. The second argument has the inputs, the third the statistics.
  std::function<Tensors(const Tensor& dy, const Tensors& inputs, const Tensors& statistics)> backward;
};
/// y, on the tape.
Tensor record_own(const OwnNorm& norm);

}  // namespace norma::norm_kernels
