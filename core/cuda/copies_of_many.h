#pragma once

#include "core/cuda/dense.h"
#include "core/cuda/items.h"
#include "core/cuda/strided.h"

// Copies and sums of many tensors in one launch.

namespace norma::kernels::NORMA_BACKEND {

/// to = from, as words that may stand for elements of any dtype of their size.
template <class Word>
struct Moved {
  int64_t count;
  Word* to;
  const Word* from;

  explicit Moved(const CopyItem& item)
      : count(item.count), to(static_cast<Word*>(item.to)), from(static_cast<const Word*>(item.from)) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(to, from); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    if constexpr (n == 1) {
      to[i] = from[i];
    } else {
      store_vector(to + i, *reinterpret_cast<const Vector<Word, n>*>(from + i));
    }
  }
};

/// Copies items of one dtype. `guard`: of ItemList.
inline void move_all(DType dtype, std::span<const CopyItem> items, const double* guard = nullptr) {
  dispatch_word("copy", size_of(dtype), [&]<class Word>(Word) {
    change_all<kVectorOf<Word>>(std::vector<Moved<Word>>(items.begin(), items.end()), guard);
  });
}

template <class To, class From>
void convert_all(const double* factor, std::span<const CopyItem> items) {
  std::vector<Converted<To, From>> list;
  for (const CopyItem& item : items) {
    list.emplace_back(item, factor);
  }
  change_all<kVectorOfBoth<To, From>>(list);
}

inline void copy_all(DType to, DType from, const double* factor, std::span<const CopyItem> items) {
  if (to == from && factor == nullptr) {
    return move_all(to, items);
  }
  const bool done =
      with_common_pair(to, from, [&]<class To, class From>(To, From) { convert_all<To, From>(factor, items); });
  check(done || factor == nullptr, "copy_all", "dtypes: expected float32 and another, got {} and {}", to_string(to),
        to_string(from));
  for (const CopyItem& item : items) {
    if (!done) {
      StridedLoop<2> loop;
      loop.sizes = {item.count};
      loop.strides = {Strides{1}, Strides{1}};
      copy(loop, to, item.to, from, item.from);
    }
  }
}

inline void add_all(DType dtype, std::span<const CopyItem> items) {
  dispatch_any_floating("accumulate", dtype, [&]<class S>(S) {
    change_all<kVectorOf<S>>(std::vector<SumOfTwo<S>>(items.begin(), items.end()));
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
