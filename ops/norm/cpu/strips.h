// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_NORM_CPU_STRIPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_STRIPS_H
#undef NORMA_OPS_NORM_CPU_STRIPS_H
#else
#define NORMA_OPS_NORM_CPU_STRIPS_H
#endif

#include "ops/norm/cpu/loops.h"

#include <cstdint>

// Strips: runs of one length that follow each other in memory. Where the length is no multiple of a vector (7x7
// images), a loop for each run would have vectors across cache lines and a part of one at its end. Here vectors are
// aligned, and one in which a run ends has constants of both.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// True iff runs of this length are taken as strips.
template <class T>
constexpr bool makes_strips(int64_t length) {
  return length >= kLanes<T> && length % kLanes<T> != 0;
}

/// The elements before the first aligned vector.
template <class S>
inline int64_t before_alignment(const S* at) {
  constexpr uintptr_t kBytes = kLanes<compute_t<S>> * sizeof(S);
  const uintptr_t beyond = reinterpret_cast<uintptr_t>(at) % kBytes;
  return static_cast<int64_t>((beyond == 0 ? 0 : kBytes - beyond) / sizeof(S));
}

/// Calls f(i, part, constants) for the vectors of a strip of `runs` runs, the first after `head` elements.
/// constants_of(run) gives a run's constants, whose blend(first, next) takes the first few lanes of its own and the
/// others of `next`. `head` and the lanes of a vector are at most `length`.
template <class T, class ConstantsOf, class F>
HWY_INLINE void for_each_lanes_of_strip(int64_t runs, int64_t length, int64_t head, ConstantsOf constants_of, F f) {
  constexpr int64_t lanes = kLanes<T>;
  auto constants = constants_of(0);
  if (head > 0) {
    f(0, First{static_cast<int>(head)}, constants);
  }
  int64_t i = head;
  int64_t left = length - head;  // of the run
  for (int64_t run = 0;;) {
    for (; left >= lanes; left -= lanes, i += lanes) {
      f(i, Whole{}, constants);
    }
    const First rest{static_cast<int>(left)};
    if (++run == runs) {
      if (left > 0) {
        f(i, rest, constants);
      }
      return;
    }
    const auto next = constants_of(run);
    if (left > 0) {
      f(i, Whole{}, constants.blend(rest, next));
      i += lanes;
      left -= lanes;
    }
    left += length;
    constants = next;
  }
}

/// The first few lanes of a, and the others of b.
template <class R, int n>
HWY_INLINE Parts<R, n> blend(First first, const Parts<R, n>& a, const Parts<R, n>& b) {
  return select(first_lanes<hn::TFromV<R>>(first.count), a, b);
}

/// The constants of z = ((x - mean) - mean_low) * scale + shift for the runs of a strip.
template <class T>
struct StripConstants {
  const T* mean;
  const T* mean_low;
  const T* scale;
  const T* shift;
};

/// An operand of a run that stands in a register.
template <class T>
struct Held {
  Lanes<T> value;
  template <class Part>
  HWY_INLINE Lanes<T> get(int64_t, Part) const {
    return value;
  }
};

/// y = z, f(z) or f(z + residual), where f is relu if `rectified`. residual may be null.
template <class S, class T = compute_t<S>>
inline void apply_strip(int64_t runs, int64_t length, const S* x, const S* residual, bool rectified, S* y,
                        const StripConstants<T>& of, const StreamingStore& out) {
  struct Constants {
    Lanes<T> mean;
    Lanes<T> mean_low;
    Lanes<T> scale;
    Lanes<T> shift;
    HWY_INLINE Constants blend(First first, const Constants& next) const {
      using HWY_NAMESPACE::blend;
      return {blend(first, mean, next.mean), blend(first, mean_low, next.mean_low), blend(first, scale, next.scale),
              blend(first, shift, next.shift)};
    }
  };
  const auto run = [&](auto then) {
    for_each_lanes_of_strip<T>(
        runs, length, before_alignment(y),
        [&](int64_t r) NORMA_INLINE {
          return Constants{broadcast(of.mean[r]), broadcast(of.mean_low[r]), broadcast(of.scale[r]),
                           broadcast(of.shift[r])};
        },
        [&](int64_t i, auto part, const Constants& c) NORMA_INLINE {
          const Lanes<T> d = difference(x, i, part, Held<T>{c.mean}, Held<T>{c.mean_low});
          out(y + i, then(multiply_add(d, c.scale, c.shift), i, part), part);
        });
  };
  const auto relu = [](Lanes<T> z) NORMA_INLINE { return zero_where(z <= broadcast(T(0)), z); };
  if (residual == nullptr) {
    rectified ? run([=](Lanes<T> z, int64_t, auto) NORMA_INLINE { return relu(z); })
              : run([](Lanes<T> z, int64_t, auto) NORMA_INLINE { return z; });
  } else {
    rectified ? run([=](Lanes<T> z, int64_t i, auto part) NORMA_INLINE { return relu(z + load(residual + i, part)); })
              : run([=](Lanes<T> z, int64_t i, auto part) NORMA_INLINE { return z + load(residual + i, part); });
  }
}

/// The constants of dx for the runs of a strip, as input_gradient_run() has them; mean, mean_low and bias are those of
/// z = ((x - mean) - mean_low) * by_dz + bias.
template <class T>
struct StripGradientConstants {
  const T* centre;
  const T* centre_low;
  const T* rstd;
  const T* by_dz;
  const T* by_xhat;
  const T* shift;
  const T* mean;
  const T* mean_low;
  const T* bias;
};

/// dx, as input_gradient_run() computes it. dz_of(constants of a vector, as Held) gives the operand dz.
template <class S, class DzOf, class T = compute_t<S>>
inline void input_gradient_strip(bool fixed_stats, int64_t runs, int64_t length, DzOf dz_of, const S* x, S* dx,
                                 const StripGradientConstants<T>& of, const StreamingStore& out) {
  struct Constants {
    Held<T> centre;
    Held<T> centre_low;
    Held<T> rstd;
    Held<T> by_dz;
    Held<T> by_xhat;
    Held<T> shift;
    Held<T> mean;
    Held<T> mean_low;
    Held<T> bias;
    HWY_INLINE Constants blend(First first, const Constants& next) const {
      const auto both = [first](const Held<T>& a, const Held<T>& b)
                            NORMA_INLINE { return Held<T>{HWY_NAMESPACE::blend(first, a.value, b.value)}; };
      return {both(centre, next.centre), both(centre_low, next.centre_low), both(rstd, next.rstd),
              both(by_dz, next.by_dz),   both(by_xhat, next.by_xhat),       both(shift, next.shift),
              both(mean, next.mean),     both(mean_low, next.mean_low),     both(bias, next.bias)};
    }
  };
  const auto run = [&](auto gradient) {
    for_each_lanes_of_strip<T>(
        runs, length, before_alignment(dx),
        [&](int64_t r) NORMA_INLINE {
          const auto held = [r](const T* numbers) NORMA_INLINE { return Held<T>{broadcast(numbers[r])}; };
          return Constants{held(of.centre), held(of.centre_low), held(of.rstd),     held(of.by_dz), held(of.by_xhat),
                           held(of.shift),  held(of.mean),       held(of.mean_low), held(of.bias)};
        },
        [&](int64_t i, auto part, const Constants& c)
            NORMA_INLINE { out(dx + i, gradient(i, part, c, dz_of(c).get(i, part)), part); });
  };
  if (fixed_stats) {
    run([](int64_t, auto, const Constants& c, const Lanes<T>& dz) NORMA_INLINE { return dz * c.by_dz.value; });
  } else {
    run([x](int64_t i, auto part, const Constants& c, const Lanes<T>& dz) NORMA_INLINE {
      const auto xhat = difference(x, i, part, c.centre, c.centre_low) * c.rstd.value;
      return multiply_add(dz, c.by_dz.value, multiply_add(xhat, c.by_xhat.value, c.shift.value));
    });
  }
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
