#include "core/accumulate.h"

#include "core/factory.h"
#include "core/op_profile.h"
#include "core/strided_loop.h"
#include "core/tape.h"

namespace norma {
namespace {

/// out = a + b, elementwise over any strides; bfloat16 and float16 are added in float32.
void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) {
  check_available("accumulate", out.device());
  if (out.numel() == 0) {
    return;
  }
  const OpScope scope([&] { return OpWork{.op = "accumulate", .bytes = bytes_of(out, a, b)}; });
  const auto loop = make_strided_loop<3>(out.sizes(), {out.strides(), a.strides(), b.strides()});
  const auto add = [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    T* to = out.data<T>();
    const T* first = a.data<T>();
    const T* second = b.data<T>();
    for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
      T* o = to + offsets[0];
      const T* x = first + offsets[1];
      const T* y = second + offsets[2];
      if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          assign(o[i], static_cast<C>(x[i]) + static_cast<C>(y[i]));
        }
      } else {
        for (int64_t i = 0; i < count; ++i) {
          assign(o[i * strides[0]], static_cast<C>(x[i * strides[1]]) + static_cast<C>(y[i * strides[2]]));
        }
      }
    });
  };
  dispatch_any_floating("accumulate", out.dtype(), add);
}

}  // namespace

Tensor accumulate(const Tensor& a, const Tensor& b) {
  check_sizes("accumulate", "b", b, a.sizes());
  check_dtype("accumulate", "b", b, a.dtype());
  const bool a_is_dense = is_non_overlapping_and_dense(a.sizes(), a.strides());
  Tensor result = empty_like(a_is_dense ? a : b);
  add_elements(result, a, b);
  return record("accumulate", {a, b}, result, {}, [](const Tensor& gradient, const BackwardContext&) -> Tensors {
    return {gradient, gradient};
  });
}

void accumulate_into(const Tensor& sum, const Tensor& x) {
  add_elements(sum, sum, x);
  sum.bump_version();
}

}  // namespace norma
