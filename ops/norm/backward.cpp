#include "core/copy.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"

namespace norma::norm_kernels {

Tensors fused_backward(const SavedNorm& norm, const Tensor& dy, NeededGradients needs) {
  const Tensor& x = norm.x;
  const DType dtype = compute_dtype(x.dtype());
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const TensorOptions stored{.dtype = x.dtype(), .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Sizes affine_sizes = sizes_along(x, norm.spec.affine);
  const DType weight_dtype = norm.weight.defined() ? norm.weight.dtype() : dtype;
  const Tensor dx = needs.x ? empty_strided(x.sizes(), strides, stored) : Tensor{};
  const bool activated = norm.activation != Activation::identity;
  const Tensor dresidual = !needs.residual ? Tensor{} : activated ? empty_strided(x.sizes(), strides, stored) : dy;
  if (x.numel() == 0) {
    return {dx, needs.weight ? zeros(affine_sizes, {.dtype = weight_dtype}) : Tensor{},
            needs.bias ? zeros(affine_sizes, {.dtype = norm.bias_dtype}) : Tensor{}, dresidual};
  }
  const NormLayout layout(x.sizes(), strides, norm.spec, norm.affine);
  if (norm.bits.defined() && !layout.view_in_order(dx.defined() ? dx : x).is_contiguous()) {
    // The bits are in the order of memory, and the kernel would not be.
    SavedNorm plain = norm;
    plain.activation = Activation::identity;
    plain.bits = {};
    return fused_backward(plain, masked_by_bits(norm, dy), needs);
  }
  const Tensor dy_in_order = layout.in_order(converted(dy, x.dtype()));
  const Tensor x_in_order = layout.in_order(x);
  const Tensor dx_in_order = needs.x ? writable_in_order(layout, dx) : Tensor{};
  const Tensor weight = norm.weight.defined() ? layout.weight_in_order(converted(norm.weight, dtype)) : Tensor{};
  const Tensor bias = norm.bias.defined() ? layout.weight_in_order(converted(norm.bias, dtype)) : Tensor{};
  const Tensor residual = norm.residual.defined() ? layout.in_order(norm.residual) : Tensor{};
  const Tensor dresidual_in_order = activated && needs.residual ? writable_in_order(layout, dresidual) : Tensor{};
  const Tensor dweight = needs.weight ? empty({layout.affine().numel()}, options) : Tensor{};
  const Tensor dbias = needs.bias ? empty({layout.affine().numel()}, options) : Tensor{};
  dispatch_stored("normalize", x.dtype(), [&](auto tag) {
    using S = decltype(tag);
    using T = Compute<S>;
    const T* rows = norm.rows.data<T>();
    const int64_t sets = layout.shape().sets();
    norm_backward<S>(x.device(), problem_of(layout, norm.spec, norm.given),
                     {.dy = dy_in_order.data<S>(),
                      .x = x_in_order.data<S>(),
                      .weight = data_or_null<T>(weight),
                      .mean = rows,
                      .rest = rows + sets,
                      .rstd = rows + 2 * sets,
                      .centre = norm.rows.size(0) > 3 ? rows + 3 * sets : nullptr,
                      .centre_rest = norm.rows.size(0) > 3 ? rows + 4 * sets : nullptr,
                      .dx = data_or_null<S>(dx_in_order),
                      .dweight = data_or_null<T>(dweight),
                      .dbias = data_or_null<T>(dbias),
                      .activation = norm.activation,
                      .bias = data_or_null<T>(bias),
                      .residual = data_or_null<S>(residual),
                      .bits = data_or_null<uint8_t>(norm.bits),
                      .dresidual = data_or_null<S>(dresidual_in_order)});
  });
  if (needs.x) {
    if (norm.spec.centring == Centring::mean && !norm.given && layout.shape().set_size() == 1) {
      // x - x depends on nothing, but its terms were rounded; a product leaves NaN as it is.
      Tensor nothing = dx_in_order;
      mul_(nothing, 0);
    }
    put_in_place(layout, dx_in_order, dx);
  }
  if (dresidual_in_order.defined()) {
    put_in_place(layout, dresidual_in_order, dresidual);
  }
  return {dx, needs.weight ? converted(layout.weight_gradient(dweight, affine_sizes), weight_dtype) : Tensor{},
          needs.bias ? converted(layout.weight_gradient(dbias, affine_sizes), norm.bias_dtype) : Tensor{}, dresidual};
}

void positive_bits(const Tensor& y, const Tensor& bits) {
  const int64_t bytes = bits.numel();
  const auto pack = [&](auto value) {  // value(i): the element at place i in memory
    uint8_t* to = bits.data<uint8_t>();
    parallel_for(0, bytes, kPointwiseGrain / 8, [&](int64_t begin, int64_t end) {
      for (int64_t byte = begin; byte < end; ++byte) {
        const int64_t first = 8 * byte;
        const int64_t count = std::min<int64_t>(8, y.numel() - first);
        unsigned packed = 0;
        for (int64_t i = 0; i < count; ++i) {
          packed |= (value(first + i) <= 0 ? 0U : 1U) << i;
        }
        to[byte] = static_cast<uint8_t>(packed);
      }
    });
  };
  switch (y.dtype()) {
    case DType::float64: pack([p = y.data<double>()](int64_t i) { return p[i]; }); break;
    case DType::float16: pack([p = y.data<float16>()](int64_t i) { return static_cast<float>(p[i]); }); break;
    case DType::bfloat16: pack([p = y.data<bfloat16>()](int64_t i) { return static_cast<float>(p[i]); }); break;
    default: pack([p = y.data<float>()](int64_t i) { return p[i]; }); break;
  }
}

namespace {

/// dz = z > 0 ? dy : 0, both dense with the same strides.
template <class T>
void mask(const uint8_t* bits, const T* dy, T* dz, int64_t numel) {
  parallel_for(0, (numel + 7) / 8, kPointwiseGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      const unsigned packed = bits[byte];
      const int64_t first = 8 * byte;
      const int64_t count = std::min<int64_t>(8, numel - first);
      for (int64_t i = 0; i < count; ++i) {
        dz[first + i] = ((packed >> i) & 1U) != 0 ? dy[first + i] : T{};
      }
    }
  });
}

}  // namespace

Tensor masked_by_bits(const SavedNorm& norm, const Tensor& dy) {
  const Tensor& x = norm.x;
  const Tensor dz =
      empty_strided(x.sizes(), preserved_strides(x.sizes(), x.strides()), {.dtype = dy.dtype(), .device = x.device()});
  Tensor in_order = dy;
  if (dy.strides() != dz.strides()) {
    copy_into(dy, dz);
    in_order = dz;
  }
  dispatch_stored("normalize", dy.dtype(), [&](auto tag) {
    using S = decltype(tag);
    mask<S>(norm.bits.data<uint8_t>(), in_order.data<S>(), dz.data<S>(), dz.numel());
  });
  return dz;
}

}  // namespace norma::norm_kernels
