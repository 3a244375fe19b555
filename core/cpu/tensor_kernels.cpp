#include "core/cpu/tensor_kernels.h"

#include "core/half.h"
#include "core/parallel.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace norma::kernels {
namespace cpu {
namespace {

/// A word that may stand for an element of any dtype of its size.
template <class T>
using AnyElement [[gnu::may_alias]] = T;

/// Moves elements as words of their size, since their meaning does not matter.
template <class Word>
void move_elements(const StridedLoop<2>& loop, void* dst, const void* src) {
  auto* to = static_cast<Word*>(dst);
  const auto* from = static_cast<const Word*>(src);
  if (const int64_t across = transposed_axis(loop); across >= 0) {
    copy_transposed(sizeof(Word), loop, across, dst, src);
    return;
  }
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    if (strides[0] == 1 && strides[1] == 1) {
      std::memcpy(to + offsets[0], from + offsets[1], static_cast<size_t>(count) * sizeof(Word));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        to[offsets[0] + i * strides[0]] = from[offsets[1] + i * strides[1]];
      }
    }
  });
}

template <size_t N>
StridedLoop<N> dense_loop(int64_t count) {
  StridedLoop<N> loop;
  loop.sizes = {count};
  loop.strides.fill(Strides{1});
  return loop;
}

}  // namespace

void copy(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  if (dst_dtype != src_dtype) {
    convert(loop, dst_dtype, dst, src_dtype, src);
    return;
  }
  dispatch_word("copy", size_of(dst_dtype), [&]<class Word>(Word) { move_elements<AnyElement<Word>>(loop, dst, src); });
}

void copy_all(DType to_dtype, DType from_dtype, const double* factor, std::span<const CopyItem> items) {
  if (factor == nullptr) {
    for (const CopyItem& item : items) {
      copy(dense_loop<2>(item.count), to_dtype, item.to, from_dtype, item.from);
    }
    return;
  }
  dispatch_any_floating("copy_all", to_dtype, [&]<class To>(To) {
    dispatch_any_floating("copy_all", from_dtype, [&]<class From>(From) {
      using T = compute_t<To>;
      const auto by = static_cast<T>(*factor);
      for (const CopyItem& item : items) {
        To* const to = static_cast<To*>(item.to);
        const From* const from = static_cast<const From*>(item.from);
        parallel_for(0, item.count, kPointwiseGrain, [=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            assign(to[i], static_cast<T>(static_cast<compute_t<From>>(from[i])) * by);
          }
        });
      }
    });
  });
}

void add_all(DType dtype, std::span<const CopyItem> items) {
  for (const CopyItem& item : items) {
    add(dense_loop<3>(item.count), dtype, item.to, item.to, item.from);
  }
}

void fill(const StridedLoop<1>& loop, DType dtype, void* x, double value) {
  dispatch_all(dtype, [&]<class T>(T) {
    auto* data = static_cast<T*>(x);
    const T element = [&] {
      if constexpr (std::is_same_v<T, bool>) {
        return value != 0;
      } else {
        return static_cast<T>(static_cast<compute_t<T>>(value));
      }
    }();
    for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
      T* first = data + offsets[0];
      if (strides[0] == 1) {
        std::fill_n(first, count, element);
      } else {
        for (int64_t i = 0; i < count; ++i) {
          first[i * strides[0]] = element;
        }
      }
    });
  });
}

void arange(int64_t* x, int64_t count) {
  std::iota(x, x + count, int64_t{0});
}

}  // namespace cpu

constinit const TensorKernels tensor_cpu{.copy = cpu::copy,
                                         .add = cpu::add,
                                         .copy_all = cpu::copy_all,
                                         .add_all = cpu::add_all,
                                         .fill = cpu::fill,
                                         .find_not_finite = cpu::find_not_finite,
                                         .arange = cpu::arange,
                                         .uniform = cpu::uniform,
                                         .normal = cpu::normal,
                                         .truncated_normal = cpu::truncated_normal,
                                         .randint = cpu::randint};

}  // namespace norma::kernels
