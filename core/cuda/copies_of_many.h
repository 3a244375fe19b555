#pragma once

#include "core/cuda/items.h"
#include "core/cuda/strided.h"

#include <type_traits>

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

/// to = factor · from, computed in the number type of To; without a factor the converted number itself.
template <class To, class From>
struct Converted {
  int64_t count;
  To* to;
  const From* from;
  const double* factor;

  Converted(const CopyItem& item, const double* by)
      : count(item.count), to(static_cast<To*>(item.to)), from(static_cast<const From*>(item.from)), factor(by) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(to, from); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    using T = compute_t<To>;
    compute_t<From> before[n];
    T after[n];
    load<From, n>(from + i, before);
    const T by = factor == nullptr ? T(1) : static_cast<T>(*factor);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      const T number = static_cast<T>(before[j]);
      after[j] = factor == nullptr ? number : number * by;
    }
    store<To, n>(to + i, after);
  }
};

/// to = to + from
template <class S>
struct Added {
  int64_t count;
  S* to;
  const S* from;

  explicit Added(const CopyItem& item)
      : count(item.count), to(static_cast<S*>(item.to)), from(static_cast<const S*>(item.from)) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(to, from); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    compute_t<S> sum[n];
    compute_t<S> more[n];
    load<S, n>(to + i, sum);
    load<S, n>(from + i, more);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      sum[j] = sum[j] + more[j];
    }
    store<S, n>(to + i, sum);
  }
};

template <class Word>
std::vector<Moved<Word>> moved_items(std::span<const CopyItem> items) {
  return {items.begin(), items.end()};
}
template <class Word>
void move_all(std::span<const CopyItem> items) {
  change_all<kVectorOf<Word>>(moved_items<Word>(items));
}

template <class To, class From>
void convert_all(const double* factor, std::span<const CopyItem> items) {
  std::vector<Converted<To, From>> list;
  for (const CopyItem& item : items) {
    list.emplace_back(item, factor);
  }
  change_all<sizeof(To) < sizeof(From) ? kVectorOf<From> : kVectorOf<To>>(list);
}

inline void copy_all(DType to, DType from, const double* factor, std::span<const CopyItem> items) {
  if (to == from && factor == nullptr) {
    switch (size_of(to)) {
      case 1: return move_all<uint8_t>(items);
      case 2: return move_all<uint16_t>(items);
      case 4: return move_all<uint32_t>(items);
      default: return move_all<uint64_t>(items);
    }
  }
  bool done = false;
  dispatch_any_floating("copy_all", to, [&](auto to_zero) {
    dispatch_any_floating("copy_all", from, [&](auto from_zero) {
      using To = decltype(to_zero);
      using From = decltype(from_zero);
      // The pairs that a step of training has. Each pair costs compile time and code.
      constexpr bool is_common = std::is_same_v<To, From> || (std::is_same_v<To, float> && sizeof(From) == 2) ||
                                 (std::is_same_v<From, float> && sizeof(To) == 2);
      if constexpr (is_common) {
        convert_all<To, From>(factor, items);
        done = true;
      }
    });
  });
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
  dispatch_any_floating("accumulate", dtype, [&](auto zero) {
    using S = decltype(zero);
    change_all<kVectorOf<S>>(std::vector<Added<S>>(items.begin(), items.end()));
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
