#include "core/cpu/tensor_kernels.h"

#include <cstring>

namespace norma::kernels::cpu {
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

}  // namespace

void copy(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  if (dst_dtype != src_dtype) {
    convert(loop, dst_dtype, dst, src_dtype, src);
    return;
  }
  dispatch_word("copy", size_of(dst_dtype), [&]<class Word>(Word) { move_elements<AnyElement<Word>>(loop, dst, src); });
}

}  // namespace norma::kernels::cpu
