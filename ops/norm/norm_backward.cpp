#include "core/copy.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "ops/norm/implementation.h"

namespace norma::norm_kernels {

Tensors fused_backward(const SavedNorm& norm, const Tensor& dz, NeededGradients needs) {
  const Tensor& x = norm.x;
  const DType dtype = compute_dtype(x.dtype());
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Sizes affine_sizes = sizes_along(x, norm.spec.affine);
  const DType weight_dtype = norm.weight.defined() ? norm.weight.dtype() : dtype;
  const Tensor dx = needs.x ? empty_strided(x.sizes(), strides, options) : Tensor{};
  if (x.numel() == 0) {
    return {converted(dx, x.dtype()), needs.weight ? zeros(affine_sizes, {.dtype = weight_dtype}) : Tensor{},
            needs.bias ? zeros(affine_sizes, {.dtype = norm.bias_dtype}) : Tensor{}};
  }
  const NormLayout layout(x.sizes(), strides, norm.spec, norm.affine);
  const Tensor dz_in_order = layout.in_order(converted(dz, dtype));
  const Tensor x_in_order = layout.in_order(converted(x, dtype));
  const Tensor dx_in_order = needs.x ? writable_in_order(layout, dx) : Tensor{};
  const Tensor weight = norm.weight.defined() ? layout.weight_in_order(converted(norm.weight, dtype)) : Tensor{};
  const Tensor dweight = needs.weight ? empty({layout.affine().numel()}, options) : Tensor{};
  const Tensor dbias = needs.bias ? empty({layout.affine().numel()}, options) : Tensor{};
  dispatch_floating("normalize", dtype, [&](auto t) {
    using T = decltype(t);
    const T* rows = norm.rows.data<T>();
    const int64_t sets = layout.shape().sets();
    norm_backward<T>(x.device(), problem_of(layout, norm.spec, norm.given),
                     {.dy = dz_in_order.data<T>(),
                      .x = x_in_order.data<T>(),
                      .weight = data_or_null<T>(weight),
                      .mean = rows,
                      .rest = rows + sets,
                      .rstd = rows + 2 * sets,
                      .centre = norm.rows.size(0) > 3 ? rows + 3 * sets : nullptr,
                      .centre_rest = norm.rows.size(0) > 3 ? rows + 4 * sets : nullptr,
                      .dx = data_or_null<T>(dx_in_order),
                      .dweight = data_or_null<T>(dweight),
                      .dbias = data_or_null<T>(dbias)});
  });
  if (needs.x) {
    put_in_place(layout, dx_in_order, dx);
  }
  return {converted(dx, x.dtype()),
          needs.weight ? converted(layout.weight_gradient(dweight, affine_sizes), weight_dtype) : Tensor{},
          needs.bias ? converted(layout.weight_gradient(dbias, affine_sizes), norm.bias_dtype) : Tensor{}};
}

Tensor positive_bits(const Tensor& y) {
  const int64_t bytes = (y.numel() + 7) / 8;
  Tensor bits = empty({bytes}, {.dtype = DType::uint8, .device = y.device()});
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
  return bits;
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
        dz[first + i] = ((packed >> i) & 1U) != 0 ? dy[first + i] : T(0);
      }
    }
  });
}

}  // namespace

Tensor activation_backward(const SavedNorm& norm, const Tensor& dy) {
  const Tensor& x = norm.x;
  const DType dtype = compute_dtype(x.dtype());
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Tensor dz = empty_strided(x.sizes(), strides, options);
  if (x.numel() == 0) {
    return dz;
  }
  Tensor wide_dy = converted(dy, dtype);
  if (norm.bits.defined()) {
    if (wide_dy.strides() != strides) {
      copy_into(wide_dy, dz);
      wide_dy = dz;
    }
    dispatch_floating("normalize", dtype, [&](auto t) {
      using T = decltype(t);
      mask<T>(norm.bits.data<uint8_t>(), wide_dy.data<T>(), dz.data<T>(), dz.numel());
    });
    return dz;
  }
  const NormLayout layout(x.sizes(), strides, norm.spec, norm.affine);
  forward_kernel("normalize", layout, norm.spec, /* given= */ true,
                 {.x = converted(x, dtype),
                  .weight = converted(norm.weight, dtype),
                  .bias = converted(norm.bias, dtype),
                  .y = dz,
                  .rows = norm.rows,
                  .activation = norm.activation,
                  .residual = converted(norm.residual, dtype),
                  .dy = wide_dy});
  return dz;
}

}  // namespace norma::norm_kernels
