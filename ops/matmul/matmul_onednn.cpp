#include "base/error.h"
#include "core/parallel.h"
#include "ops/libraries/onednn/primitives.h"
#include "ops/matmul/kernels.h"

#include <memory>
#include <tuple>

namespace norma::kernels {

namespace {

using dnnl::memory;

/// A batch of matrices; a stride of 0 between them is oneDNN's broadcast of an axis of size 1.
memory::desc matrices(memory::data_type type, int64_t batch, int64_t batch_stride, int64_t rows, int64_t columns,
                      int64_t row_stride, int64_t column_stride) {
  if (batch == 1) {
    return {{rows, columns}, type, memory::dims{row_stride, column_stride}};
  }
  const bool repeated = batch_stride == 0;
  return {{repeated ? 1 : batch, rows, columns},
          type,
          memory::dims{repeated ? rows * columns : batch_stride, row_stride, column_stride}};
}

/// The form in which oneDNN gets a product.
enum class Arrangement : uint8_t {
  plain,       ///< all three matrices as they lie
  packed,      ///< b reordered to the layout oneDNN likes
  transposed,  ///< cᵀ = bᵀ aᵀ, and c reordered from it
};

/// Chosen by measurements at the products of ResNet-50 and ConvNeXt-T with two threads. Packing costs a pass over b. It
/// pays where many rows of a meet b, or where rows of b lie so far apart that they collide in the cache (up to 1.6
/// times as fast). A gradient of weights (a is transposed) gains up to 1.35 times if c has at least as many rows as
/// columns, unless it sums over few rows: then packing b is cheap.
Arrangement arrangement(const MatmulCase& p, bool has_bias, bool kept) {
  constexpr int64_t kFew = 512;
  constexpr int64_t kMany = 1024;
  if (p.batch != 1 || p.m * p.n * p.k < kFew * kFew * kFew / 8) {
    return Arrangement::plain;
  }
  if (kept) {
    return Arrangement::packed;
  }
  const bool a_transposed = p.a_column != 1;
  const bool b_transposed = p.b_column != 1;
  if (!a_transposed) {
    return p.m >= (b_transposed ? kMany : kFew / 2) ? Arrangement::packed : Arrangement::plain;
  }
  if (b_transposed || has_bias) {
    return Arrangement::plain;
  }
  if (p.k <= kFew) {
    return Arrangement::packed;
  }
  return p.m < p.n ? Arrangement::transposed : Arrangement::plain;
}

std::unique_ptr<onednn::Plan> make_transposed(const MatmulCase& p) {
  const auto type = onednn::data_type(p.dtype);
  const memory::desc a = matrices(type, 1, 0, p.k, p.m, p.a_column, p.a_row);
  const memory::desc b = matrices(type, 1, 0, p.n, p.k, p.b_column, p.b_row);
  const auto c_type = onednn::data_type(p.c_dtype());
  const memory::desc c = matrices(c_type, 1, 0, p.n, p.m, 1, p.c_row);
  const auto descriptor = onednn::matmul(b, a, {}, matrices(c_type, 1, 0, p.n, p.m, p.m, 1));
  auto plan = std::make_unique<onednn::Plan>(dnnl::matmul(descriptor), descriptor.scratchpad_desc());
  plan->add_input(DNNL_ARG_WEIGHTS, a, descriptor.weights_desc());
  plan->add_input(DNNL_ARG_SRC, b, descriptor.src_desc());
  plan->add_output(DNNL_ARG_DST, c, descriptor.dst_desc());
  return plan;
}

std::unique_ptr<onednn::Plan> make_product(const MatmulCase& p, bool has_bias, bool kept, const Epilogue& epilogue) {
  const Arrangement arranged = arrangement(p, has_bias, kept);
  if (arranged == Arrangement::transposed) {
    return make_transposed(p);
  }
  const auto type = onednn::data_type(p.dtype);
  const memory::desc a = matrices(type, p.batch, p.a_batch, p.m, p.k, p.a_row, p.a_column);
  const memory::desc b = matrices(type, p.batch, p.b_batch, p.k, p.n, p.b_row, p.b_column);
  const memory::desc c = matrices(onednn::data_type(p.c_dtype()), p.batch, p.c_batch, p.m, p.n, p.c_row, 1);
  const memory::dims row = p.batch == 1 ? memory::dims{1, p.n} : memory::dims{1, 1, p.n};
  const memory::dims row_strides = p.batch == 1 ? memory::dims{p.n, 1} : memory::dims{p.n, p.n, 1};
  const memory::desc numbers_of_a_row(row, type, row_strides);
  const memory::desc offered =
      arranged == Arrangement::packed ? memory::desc({p.k, p.n}, type, memory::format_tag::any) : b;
  const auto descriptor = onednn::matmul(a, offered, has_bias ? numbers_of_a_row : memory::desc(), c,
                                         onednn::post_ops(epilogue, c, numbers_of_a_row));
  auto plan = std::make_unique<onednn::Plan>(dnnl::matmul(descriptor), descriptor.scratchpad_desc());
  plan->add_input(DNNL_ARG_SRC, a, descriptor.src_desc());
  plan->add_input(DNNL_ARG_WEIGHTS, b, descriptor.weights_desc());
  plan->add_output(DNNL_ARG_DST, c, descriptor.dst_desc());
  if (has_bias) {
    plan->add_input(DNNL_ARG_BIAS, numbers_of_a_row, numbers_of_a_row);
  }
  if (epilogue.scale != nullptr) {
    plan->add_input(onednn::kScale, numbers_of_a_row, numbers_of_a_row);
  }
  if (epilogue.residual != nullptr) {
    plan->add_input(onednn::residual_argument(epilogue), c, c);
  }
  return plan;
}

bool supports(const MatmulCase& product) {
  // oneDNN 3.7 reads a single row with gaps as one without.
  const bool row_with_gaps = product.m == 1 && product.k > 1 && product.a_column > 1;
  return onednn::does_dtype(product.dtype) && product.k > 0 && !row_with_gaps;  // oneDNN has no empty sums
}

bool multiply_act(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c,
                  const Epilogue& epilogue, Storage* keep) {
  // A primitive is made for a number of threads, so that is part of the key.
  using Key = std::tuple<MatmulCase, bool, bool, Epilogue::Parts, int>;
  thread_local onednn::Plans<Key> plans;
  const bool has_bias = bias != nullptr;
  const bool kept = keep != nullptr;
  if (epilogue.parts() != Epilogue::Parts{} && arrangement(product, has_bias, kept) == Arrangement::transposed) {
    return false;
  }
  return plans.execute(
      "matmul", Key(product, has_bias, kept, epilogue.parts(), num_threads()),
      [&] { return make_product(product, has_bias, kept, epilogue); },
      {a, b, c, bias, epilogue.scale, epilogue.residual}, keep);
}

void multiply(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c, Storage* keep) {
  check(multiply_act(product, a, b, bias, c, /* epilogue= */ {}, keep), "matmul",
        "oneDNN: has no primitive for this product");
}

constexpr MatmulImplementation kImplementation{
    .name = "onednn", .supports = supports, .multiply = multiply, .multiply_act = multiply_act};

}  // namespace

constinit const MatmulImplementation* const matmul_onednn = &kImplementation;

}  // namespace norma::kernels
