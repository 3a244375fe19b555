#include "core/buffer.h"
#include "core/kernels.h"
#include "ops/matmul/kernels.h"

// Products of 16-bit matrices where no library multiplies them in hardware: a float32 product of converted operands,
// rounded at the end.

namespace norma::kernels {

namespace {

bool supports(const MatmulCase& product) {
  return is_half(product.dtype);
}

void multiply(const MatmulCase& p, const void* a, const void* b, const void* bias, void* c, Storage* /* keep */) {
  const bool a_rows = p.a_column == 1;
  const bool b_rows = p.b_column == 1;
  const int64_t a_count = p.a_batch == 0 ? 1 : p.batch;
  const int64_t b_count = p.b_batch == 0 ? 1 : p.batch;
  const Buffer<float> wide_a(a_count * p.m * p.k);
  const Buffer<float> wide_b(b_count * p.k * p.n);
  const Buffer<float> wide_bias(p.n);
  const Buffer<float> wide_c(p.wide ? 0 : p.batch * p.m * p.n);
  MatmulCase wide = p;
  wide.dtype = DType::float32;
  wide.a_batch = p.a_batch == 0 ? 0 : p.m * p.k;
  wide.a_row = a_rows ? p.k : 1;
  wide.a_column = a_rows ? 1 : p.m;
  wide.b_batch = p.b_batch == 0 ? 0 : p.k * p.n;
  wide.b_row = b_rows ? p.n : 1;
  wide.b_column = b_rows ? 1 : p.k;
  if (!p.wide) {
    wide.c_batch = p.m * p.n;
    wide.c_row = p.n;
  }
  tensor_cpu.copy(make_strided_loop<2>({a_count, p.m, p.k}, {Strides{wide.a_batch, wide.a_row, wide.a_column},
                                                             Strides{p.a_batch, p.a_row, p.a_column}}),
                  DType::float32, wide_a.data(), p.dtype, a);
  tensor_cpu.copy(make_strided_loop<2>({b_count, p.k, p.n}, {Strides{wide.b_batch, wide.b_row, wide.b_column},
                                                             Strides{p.b_batch, p.b_row, p.b_column}}),
                  DType::float32, wide_b.data(), p.dtype, b);
  if (bias != nullptr) {
    tensor_cpu.copy(make_strided_loop<2>({p.n}, {Strides{1}, Strides{1}}), DType::float32, wide_bias.data(), p.dtype,
                    bias);
  }
  matmul_cpu.choose(wide).multiply(wide, wide_a.data(), wide_b.data(), bias == nullptr ? nullptr : wide_bias.data(),
                                   p.wide ? c : wide_c.data(), /* keep= */ nullptr);
  if (!p.wide) {
    tensor_cpu.copy(make_strided_loop<2>({p.batch, p.m, p.n},
                                         {Strides{p.c_batch, p.c_row, 1}, Strides{wide.c_batch, wide.c_row, 1}}),
                    p.dtype, c, DType::float32, wide_c.data());
  }
}

}  // namespace

constinit const MatmulImplementation matmul_through_float{
    .name = "through_float", .supports = supports, .multiply = multiply, .converts = true};

}  // namespace norma::kernels
