#include "core/buffer.h"
#include "ops/half/convert.h"
#include "ops/matmul/kernels.h"

// Products of 16-bit matrices where no library multiplies them in hardware: a float32 product of converted operands,
// rounded at the end.

namespace norma::kernels {

namespace {

bool supports(const MatmulCase& product) {
  return is_half(product.dtype);
}

/// Converts the operand of `batch` matrices of `runs` runs of `length`, without gaps.
void widen_operand(DType dtype, const void* x, int64_t batch, int64_t batch_stride, int64_t runs, int64_t run_stride,
                   int64_t length, float* y) {
  for (int64_t i = 0; i < batch; ++i) {
    const auto offset = static_cast<size_t>(i * batch_stride) * size_of(dtype);
    widen(dtype, static_cast<const std::byte*>(x) + offset, runs, run_stride, length, y + i * runs * length);
  }
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
  widen_operand(p.dtype, a, a_count, p.a_batch, a_rows ? p.m : p.k, a_rows ? p.a_row : p.a_column, a_rows ? p.k : p.m,
                wide_a.data());
  widen_operand(p.dtype, b, b_count, p.b_batch, b_rows ? p.k : p.n, b_rows ? p.b_row : p.b_column, b_rows ? p.n : p.k,
                wide_b.data());
  if (bias != nullptr) {
    widen(p.dtype, bias, 1, p.n, p.n, wide_bias.data());
  }
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
  matmul_cpu.choose(wide).multiply(wide, wide_a.data(), wide_b.data(), bias == nullptr ? nullptr : wide_bias.data(),
                                   p.wide ? c : wide_c.data(), /* keep= */ nullptr);
  for (int64_t i = 0; i < p.batch && !p.wide; ++i) {
    const auto offset = static_cast<size_t>(i * p.c_batch) * size_of(p.dtype);
    round_to(p.dtype, wide_c.data() + i * p.m * p.n, p.m, p.c_row, p.n, static_cast<std::byte*>(c) + offset);
  }
}

}  // namespace

constinit const MatmulImplementation matmul_through_float{
    .name = "through_float", .supports = supports, .multiply = multiply, .converts = true};

}  // namespace norma::kernels
