#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/pool_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/buffer.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "ops/pool/kernels.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {

namespace {

int64_t output_h(const PoolCase& pool) {
  return static_cast<int64_t>(pool.rows->windows.size());
}
int64_t output_w(const PoolCase& pool) {
  return static_cast<int64_t>(pool.columns->windows.size());
}

/// Lanes whose sums registers can hold.
constexpr int64_t kMaxLanes = 64;

/// Sums over `lanes` neighbours: in their place in memory, or, for the 16-bit dtypes, in float beside it, so that they
/// are rounded once.
template <class T>
class LaneSums {
 public:
  using Value = compute_t<T>;

  explicit LaneSums(int64_t lanes) : lanes_(lanes), separate_(kSeparate ? lanes : 0) {}

  /// Zeros, to be added to.
  Value* start(T* place) {
    Value* sums = nullptr;
    if constexpr (kSeparate) {
      sums = separate_.data();
    } else {
      sums = place;
    }
    std::fill_n(sums, lanes_, Value(0));
    return sums;
  }
  /// Writes the sums to their place, if they are not there.
  void finish(const Value* sums, T* place) const {
    if constexpr (kSeparate) {
      finish(sums, 1, place);
    }
  }
  /// The same, divided.
  void finish(const Value* sums, Value divisor, T* place) const {
#pragma omp simd
    for (int64_t c = 0; c < lanes_; ++c) {
      assign(place[c], sums[c] / divisor);
    }
  }

 private:
  static constexpr bool kSeparate = !std::is_same_v<T, Value>;

  int64_t lanes_;
  Buffer<Value> separate_;
};

/// Calls f(image, row) for `rows` rows of every image.
template <class F>
void for_each_row(const PoolCase& pool, int64_t rows, int64_t row_elements, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / std::max<int64_t>(1, row_elements));
  parallel_for(0, pool.images * rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      f(i / rows, i % rows);
    }
  });
}

/// Whether a value takes the place of the largest before: it is larger, or the first NaN.
template <class V>
bool is_better(V value, V before) {
  return before == before && !(value <= before);
}

/// One lane: the outputs of a row are computed side by side, each over its own window.
template <class T>
void max_forward_of_planes(const PoolCase& pool, const T* x, T* y, int32_t* index) {
  const int64_t ows = output_w(pool);
  Buffer<int32_t> firsts(ows);
  Buffer<int32_t> lasts(ows);
  const auto step = static_cast<int32_t>(pool.columns->windows.front().step);
  int32_t widest = 0;  // what the widest window spans, but for its last position
  for (int64_t ow = 0; ow < ows; ++ow) {
    const PoolWindow columns = pool.columns->windows[static_cast<size_t>(ow)];
    firsts.data()[ow] = static_cast<int32_t>(columns.first());
    lasts.data()[ow] = static_cast<int32_t>(columns.last());
    widest = std::max(widest, lasts.data()[ow] - firsts.data()[ow]);
  }
  const int32_t* first = firsts.data();
  const int32_t* last = lasts.data();
  for_each_row(pool, output_h(pool), ows * (widest / step + 1), [&](int64_t image, int64_t oh) {
    const T* source = x + image * pool.h * pool.w;
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    const int64_t out = (image * output_h(pool) + oh) * ows;
    T* best = y + out;
    int32_t* where = index + out;
    for (int64_t ow = 0; ow < ows; ++ow) {
      where[ow] = static_cast<int32_t>(rows.first() * pool.w) + first[ow];
      best[ow] = source[where[ow]];
    }
    for (int64_t h = rows.first(); h < rows.end; h += rows.step) {
      const auto row = static_cast<int32_t>(h * pool.w);
      for (int32_t i = 0; i <= widest; i += step) {
#pragma omp simd
        for (int64_t ow = 0; ow < ows; ++ow) {
          // Behind the end of a window its last value comes again, which changes nothing.
          const int32_t at = row + std::min(first[ow] + i, last[ow]);
          const auto value = static_cast<compute_t<T>>(source[at]);
          const auto before = static_cast<compute_t<T>>(best[ow]);
          const bool better = is_better(value, before);
          assign(best[ow], better ? value : before);
          where[ow] = better ? at : where[ow];
        }
      }
    }
  });
}

template <class T>
void max_forward(const PoolCase& pool, const T* x, T* y, int32_t* index) {
  const int64_t lanes = pool.lanes;
  if (lanes == 1) {
    max_forward_of_planes(pool, x, y, index);
    return;
  }
  const int64_t ows = output_w(pool);
  for_each_row(pool, output_h(pool), ows * lanes, [&](int64_t image, int64_t oh) {
    const T* source = x + image * pool.h * pool.w * lanes;
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    for (int64_t ow = 0; ow < ows; ++ow) {
      const PoolWindow columns = pool.columns->windows[static_cast<size_t>(ow)];
      const int64_t out = ((image * output_h(pool) + oh) * ows + ow) * lanes;
      T* best = y + out;
      int32_t* where = index + out;
      const int64_t start = rows.first() * pool.w + columns.first();
      std::copy_n(source + start * lanes, lanes, best);
      std::fill_n(where, lanes, static_cast<int32_t>(start));
      for (int64_t h = rows.first(); h < rows.end; h += rows.step) {
        for (int64_t w = columns.first(); w < columns.end; w += columns.step) {
          const auto position = static_cast<int32_t>(h * pool.w + w);
          const T* values = source + position * lanes;
#pragma omp simd
          for (int64_t c = 0; c < lanes; ++c) {
            const auto value = static_cast<compute_t<T>>(values[c]);
            const auto before = static_cast<compute_t<T>>(best[c]);
            const bool better = is_better(value, before);
            assign(best[c], better ? value : before);
            where[c] = better ? position : where[c];
          }
        }
      }
    }
  });
}

/// dx of `count` lanes (a constant where it may be) of one position: the sums stay in registers over its windows.
template <class T, class Count>
void max_gradient_of(Count count, const PoolCase& pool, PoolAxis::Holders rows, PoolAxis::Holders columns,
                     int32_t position, const T* dy, const int32_t* index, T* dx) {
  std::array<compute_t<T>, kMaxLanes> sum{};
  for (int64_t oh = rows.first; oh < rows.last; ++oh) {
    for (int64_t ow = columns.first; ow < columns.last; ++ow) {
      const int64_t out = (oh * output_w(pool) + ow) * pool.lanes;
#pragma omp simd
      for (int64_t c = 0; c < count; ++c) {
        const auto value = static_cast<compute_t<T>>(dy[out + c]);
        sum[c] += index[out + c] == position ? value : compute_t<T>(0);
      }
    }
  }
#pragma omp simd
  for (int64_t c = 0; c < count; ++c) {
    assign(dx[c], sum[c]);
  }
}

/// One lane: each output adds to the place that it came from, a quarter of the work of asking at each place.
template <class T>
void max_gradient_of_planes(const PoolCase& pool, const T* dy, const int32_t* index, T* dx) {
  const int64_t plane = pool.h * pool.w;
  const int64_t out_plane = output_h(pool) * output_w(pool);
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / std::max<int64_t>(1, plane));
  parallel_for(0, pool.images, grain, [&](int64_t begin, int64_t end) {
    Buffer<compute_t<T>> sums(plane);
    for (int64_t image = begin; image < end; ++image) {
      std::fill_n(sums.data(), plane, compute_t<T>(0));
      for (int64_t i = image * out_plane; i < (image + 1) * out_plane; ++i) {
        sums.data()[index[i]] += static_cast<compute_t<T>>(dy[i]);
      }
      for (int64_t i = 0; i < plane; ++i) {
        assign(dx[image * plane + i], sums.data()[i]);
      }
    }
  });
}

template <class T>
void max_gradient(const PoolCase& pool, const T* dy, const int32_t* index, T* dx) {
  const int64_t lanes = pool.lanes;
  if (lanes == 1) {
    max_gradient_of_planes(pool, dy, index, dx);
    return;
  }
  const int64_t out_image = output_h(pool) * output_w(pool) * lanes;
  for_each_row(pool, pool.h, pool.w * lanes, [&](int64_t image, int64_t h) {
    const PoolAxis::Holders rows = pool.rows->holders[static_cast<size_t>(h)];
    for (int64_t w = 0; w < pool.w; ++w) {
      const PoolAxis::Holders columns = pool.columns->holders[static_cast<size_t>(w)];
      const auto position = static_cast<int32_t>(h * pool.w + w);
      T* place = dx + ((image * pool.h + h) * pool.w + w) * lanes;
      for (int64_t c = 0; c < lanes; c += kMaxLanes) {
        const auto run = [&](auto count) {
          max_gradient_of(count, pool, rows, columns, position, dy + image * out_image + c,
                          index + image * out_image + c, place + c);
        };
        if (lanes - c >= kMaxLanes) {
          run(std::integral_constant<int64_t, kMaxLanes>());
        } else {
          run(lanes - c);
        }
      }
    }
  });
}

template <class T>
void max_pick(const PoolCase& pool, const T* x, const int32_t* index, T* y) {
  const int64_t lanes = pool.lanes;
  const int64_t row = output_w(pool) * lanes;
  for_each_row(pool, output_h(pool), row, [&](int64_t image, int64_t oh) {
    const T* source = x + image * pool.h * pool.w * lanes;
    const int64_t first = (image * output_h(pool) + oh) * row;
    for (int64_t i = 0; i < row; ++i) {
      y[first + i] = source[index[first + i] * lanes + i % lanes];
    }
  });
}

template <class T>
void average_forward(const PoolCase& pool, const T* x, T* y) {
  using Value = compute_t<T>;
  const int64_t lanes = pool.lanes;
  const int64_t ows = output_w(pool);
  for_each_row(pool, output_h(pool), pool.h * pool.w * lanes / output_h(pool), [&](int64_t image, int64_t oh) {
    LaneSums<T> sums(lanes);
    const T* source = x + image * pool.h * pool.w * lanes;
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    for (int64_t ow = 0; ow < ows; ++ow) {
      const PoolWindow columns = pool.columns->windows[static_cast<size_t>(ow)];
      const auto divisor = static_cast<Value>(pool.divisor_of(rows, columns));
      T* place = y + ((image * output_h(pool) + oh) * ows + ow) * lanes;
      if (lanes == 1) {  // a row of the window is a run of memory
        Value total = 0;
        for (int64_t h = rows.begin; h < rows.end; ++h) {
          const T* values = source + h * pool.w;
#pragma omp simd reduction(+ : total)
          for (int64_t w = columns.begin; w < columns.end; ++w) {
            total += static_cast<Value>(values[w]);
          }
        }
        assign(*place, total / divisor);
        continue;
      }
      auto* sum = sums.start(place);
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        for (int64_t w = columns.begin; w < columns.end; ++w) {
          const T* values = source + (h * pool.w + w) * lanes;
#pragma omp simd
          for (int64_t c = 0; c < lanes; ++c) {
            sum[c] += static_cast<Value>(values[c]);
          }
        }
      }
      sums.finish(sum, divisor, place);
    }
  });
}

template <class T>
void average_gradient(const PoolCase& pool, const T* dy, T* dx) {
  using Value = compute_t<T>;
  const int64_t lanes = pool.lanes;
  const int64_t ows = output_w(pool);
  for_each_row(pool, pool.h, pool.w * lanes, [&](int64_t image, int64_t h) {
    LaneSums<T> sums(lanes);
    const PoolAxis::Holders rows = pool.rows->holders[static_cast<size_t>(h)];
    for (int64_t w = 0; w < pool.w; ++w) {
      const PoolAxis::Holders columns = pool.columns->holders[static_cast<size_t>(w)];
      T* place = dx + ((image * pool.h + h) * pool.w + w) * lanes;
      auto* sum = sums.start(place);
      for (int64_t oh = rows.first; oh < rows.last; ++oh) {
        for (int64_t ow = columns.first; ow < columns.last; ++ow) {
          const int64_t count = pool.divisor_of(pool.rows->windows[static_cast<size_t>(oh)],
                                                pool.columns->windows[static_cast<size_t>(ow)]);
          const Value share = Value(1) / static_cast<Value>(count);
          const T* values = dy + ((image * output_h(pool) + oh) * ows + ow) * lanes;
#pragma omp simd
          for (int64_t c = 0; c < lanes; ++c) {
            sum[c] += static_cast<Value>(values[c]) * share;
          }
        }
      }
      sums.finish(sum, place);
    }
  });
}

void max_pool(const PoolCase& pool, const void* x, void* y, int32_t* index) {
  dispatch_any_floating("max_pool2d", pool.dtype, [&](auto zero) {
    using T = decltype(zero);
    max_forward(pool, static_cast<const T*>(x), static_cast<T*>(y), index);
  });
}

void max_pool_gradient(const PoolCase& pool, const void* dy, const int32_t* index, void* dx) {
  dispatch_any_floating("max_pool2d", pool.dtype, [&](auto zero) {
    using T = decltype(zero);
    max_gradient(pool, static_cast<const T*>(dy), index, static_cast<T*>(dx));
  });
}

void max_pool_pick(const PoolCase& pool, const void* x, const int32_t* index, void* y) {
  dispatch_any_floating("max_pool2d", pool.dtype, [&](auto zero) {
    using T = decltype(zero);
    max_pick(pool, static_cast<const T*>(x), index, static_cast<T*>(y));
  });
}

void average_pool(const PoolCase& pool, const void* x, void* y) {
  dispatch_any_floating("avg_pool2d", pool.dtype, [&](auto zero) {
    using T = decltype(zero);
    average_forward(pool, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void average_pool_gradient(const PoolCase& pool, const void* dy, void* dx) {
  dispatch_any_floating("avg_pool2d", pool.dtype, [&](auto zero) {
    using T = decltype(zero);
    average_gradient(pool, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

HWY_EXPORT(max_pool);
HWY_EXPORT(max_pool_gradient);
HWY_EXPORT(max_pool_pick);
HWY_EXPORT(average_pool);
HWY_EXPORT(average_pool_gradient);

constinit const PoolKernels pool_cpu{.max_pool = NORMA_SIMD_CALL(max_pool),
                                     .max_pool_gradient = NORMA_SIMD_CALL(max_pool_gradient),
                                     .max_pool_pick = NORMA_SIMD_CALL(max_pool_pick),
                                     .average_pool = NORMA_SIMD_CALL(average_pool),
                                     .average_pool_gradient = NORMA_SIMD_CALL(average_pool_gradient)};

}  // namespace norma::kernels
#endif
