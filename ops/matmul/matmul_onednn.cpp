#include "core/error.h"
#include "core/parallel.h"
#include "ops/matmul/kernels.h"
#include "ops/onednn/primitives.h"

#include <array>
#include <map>
#include <memory>
#include <tuple>

namespace norma::kernels {

namespace {

using dnnl::memory;

/// A batch of matrices; a stride of 0 between them is oneDNN's broadcast of an axis of size 1.
memory::desc matrices(int64_t batch, int64_t batch_stride, int64_t rows, int64_t columns, int64_t row_stride,
                      int64_t column_stride) {
  constexpr auto type = memory::data_type::f32;
  if (batch == 1) {
    return {{rows, columns}, type, memory::dims{row_stride, column_stride}};
  }
  const bool repeated = batch_stride == 0;
  return {{repeated ? 1 : batch, rows, columns},
          type,
          memory::dims{repeated ? rows * columns : batch_stride, row_stride, column_stride}};
}

std::unique_ptr<onednn::Plan> make_product(const MatmulCase& p, bool has_bias) {
  const memory::desc a = matrices(p.batch, p.a_batch, p.m, p.k, p.a_row, p.a_column);
  const memory::desc b = matrices(p.batch, p.b_batch, p.k, p.n, p.b_row, p.b_column);
  const memory::desc c = matrices(p.batch, p.c_batch, p.m, p.n, p.c_row, 1);
  memory::desc bias;
  if (has_bias) {
    const memory::dims dims = p.batch == 1 ? memory::dims{1, p.n} : memory::dims{1, 1, p.n};
    const memory::dims strides = p.batch == 1 ? memory::dims{p.n, 1} : memory::dims{p.n, p.n, 1};
    bias = memory::desc(dims, memory::data_type::f32, strides);
  }
  const auto descriptor = onednn::matmul(a, b, bias, c);
  auto plan = std::make_unique<onednn::Plan>(dnnl::matmul(descriptor), descriptor.scratchpad_desc());
  plan->add_input(DNNL_ARG_SRC, a, descriptor.src_desc());
  plan->add_input(DNNL_ARG_WEIGHTS, b, descriptor.weights_desc());
  plan->add_output(DNNL_ARG_DST, c, descriptor.dst_desc());
  if (has_bias) {
    plan->add_input(DNNL_ARG_BIAS, bias, bias);
  }
  return plan;
}

bool supports(const MatmulCase& product) {
  return product.dtype == DType::float32;
}

void* writable(const void* pointer) {
  return const_cast<void*>(pointer);
}  // oneDNN's handles are not const

void multiply(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c) {
  // A primitive is made for a number of threads, hence part of the key.
  using Key = std::tuple<MatmulCase, bool, int>;
  constexpr size_t kMaxPlans = 1024;
  thread_local std::map<Key, std::unique_ptr<onednn::Plan>> plans;
  const bool has_bias = bias != nullptr;
  try {
    if (plans.size() >= kMaxPlans) {
      plans.clear();
    }
    auto& plan = plans[Key(product, has_bias, num_threads())];
    if (plan == nullptr) {
      plan = make_product(product, has_bias);
    }
    const std::array<void*, 4> pointers{writable(a), writable(b), c, writable(bias)};
    plan->execute(std::span(pointers).first(has_bias ? 4 : 3));
  } catch (const dnnl::error& error) {
    fail("matmul", "oneDNN: {}", error.what());
  }
}

}  // namespace

const MatmulImplementation* matmul_onednn() {
  static constexpr MatmulImplementation implementation{.name = "onednn", .supports = supports, .multiply = multiply};
  return &implementation;
}

}  // namespace norma::kernels
