#include "ops/pointwise/cuda/dispatch.h"
#include "ops/pointwise/cuda/map.h"
#include "ops/pointwise/functions.h"
#include "ops/pointwise/integer_functions.h"

namespace norma::kernels::NORMA_BACKEND {

void binary(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_numeric("binary", dtype, [&]<class S>(S) {
    const auto run = [&](auto function) { map<S, S, S>(sizes, function, y, a, b); };
    if constexpr (std::is_integral_v<S>) {
      with_integer_binary_function<S>(f, run);
    } else {
      with_binary_function<compute_t<S>>(f, run);
    }
  });
}

struct Equal {
  template <class T>
  NORMA_DEVICE bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Greater {
  template <class T>
  NORMA_DEVICE bool operator()(T a, T b) const {
    return a > b;
  }
};

void compare(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_all(dtype, [&]<class S>(S) {
    switch (f) {
      case Comparison::equal: return map<bool, S, S>(sizes, Equal{}, y, a, b);
      case Comparison::greater: return map<bool, S, S>(sizes, Greater{}, y, a, b);
    }
  });
}

struct Choose {
  template <class T>
  NORMA_DEVICE T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

void where(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
           const Operand& b) {
  // Only bits move, so the size of an element is all that counts.
  dispatch_word("where", element_bytes,
                [&]<class Word>(Word) { map<Word, bool, Word, Word>(sizes, Choose{}, y, condition, a, b); });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const PointwiseKernels NORMA_TABLE(pointwise){
    .unary = unary, .unary_backward = unary_backward, .binary = binary, .compare = compare, .where = where};

}  // namespace norma::kernels
