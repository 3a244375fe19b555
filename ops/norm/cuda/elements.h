#pragma once

#include "core/cuda/math.h"
#include "ops/norm/kernels.h"

#include <type_traits>

// The places of a set's elements, the weight of an element, and the steps of a norm for one element.

namespace norma::kernels::NORMA_BACKEND {

// --- places ---------------------------------------------------------------------------------------------------------

/// An element by its indices.
struct Place {
  int64_t outer;
  int64_t a;  ///< along reduce_outer
  int64_t kept;
  int64_t b;  ///< along reduce_inner

  NORMA_DEVICE int64_t set(const NormShape& shape) const { return outer * shape.kept + kept; }
  NORMA_DEVICE int64_t offset(const NormShape& shape) const {
    return ((outer * shape.reduce_outer + a) * shape.kept + kept) * shape.reduce_inner + b;
  }
  /// Moves to the next element in the order of memory.
  NORMA_DEVICE void next(const NormShape& shape) {
    if (++b < shape.reduce_inner) {
      return;
    }
    b = 0;
    if (++kept < shape.kept) {
      return;
    }
    kept = 0;
    if (++a < shape.reduce_outer) {
      return;
    }
    a = 0;
    ++outer;
  }
};

NORMA_DEVICE Place place_of(const NormShape& shape, int64_t offset) {
  Place place;
  const int64_t rest = quotient(offset, shape.reduce_inner);
  place.b = offset - rest * shape.reduce_inner;
  const int64_t next = quotient(rest, shape.kept);
  place.kept = rest - next * shape.kept;
  place.outer = quotient(next, shape.reduce_outer);
  place.a = next - place.outer * shape.reduce_outer;
  return place;
}

/// The number of an element's weight and bias.
NORMA_DEVICE int64_t weight_of(const AffineShape& affine, const Place& place) {
  const int64_t outer = affine.outer_period == 1 ? 0 : place.outer % affine.outer_period;
  const int64_t a = place.a < affine.reduce_outer ? place.a : place.a % affine.reduce_outer;
  const int64_t kept = affine.kept == 1 ? 0 : place.kept;
  const int64_t b = affine.inner == 1 ? 0 : affine.segment == 1 ? place.b : place.b / affine.segment;
  return ((outer * affine.reduce_outer + a) * affine.kept + kept) * affine.inner + b;
}

/// The elements of a set that one of `step` threads takes, in the order of memory: first, first + step, …
class SetElements {
 public:
  NORMA_DEVICE SetElements(const NormShape& shape, int64_t set, int64_t first, int64_t step)
      : shape_(shape), step_a_(step / shape.reduce_inner), step_b_(step - step_a_ * shape.reduce_inner) {
    place_.outer = set / shape.kept;
    place_.kept = set - place_.outer * shape.kept;
    place_.a = first / shape.reduce_inner;
    place_.b = first - place_.a * shape.reduce_inner;
  }

  NORMA_DEVICE bool ended() const { return place_.a >= shape_.reduce_outer; }
  NORMA_DEVICE void next() {
    place_.a += step_a_;
    place_.b += step_b_;
    if (place_.b >= shape_.reduce_inner) {
      place_.b -= shape_.reduce_inner;
      ++place_.a;
    }
  }
  NORMA_DEVICE const Place& place() const { return place_; }
  NORMA_DEVICE int64_t offset() const { return place_.offset(shape_); }

 private:
  const NormShape& shape_;
  int64_t step_a_;
  int64_t step_b_;
  Place place_;
};

// --- vectors --------------------------------------------------------------------------------------------------------

/// True iff vectors of 16 bytes may be loaded from and stored to every operand that has as many elements as x.
template <class S>
bool are_aligned(const NormArrays<S>& arrays) {
  return are_aligned(arrays.x, arrays.y, arrays.residual, arrays.dy, arrays.dx, arrays.dresidual);
}

// --- one element ----------------------------------------------------------------------------------------------------

/// Calls f(std::integral_constant<Activation, …>): a choice for a whole vector costs less than one for each element.
template <class F>
NORMA_DEVICE void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::identity: return f(std::integral_constant<Activation, Activation::identity>{});
    case Activation::relu: return f(std::integral_constant<Activation, Activation::relu>{});
    case Activation::gelu: return f(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::silu: return f(std::integral_constant<Activation, Activation::silu>{});
  }
}

/// f(z)
template <Activation activation, class T>
NORMA_DEVICE T activated(T z) {
  if constexpr (activation == Activation::relu) {
    return z <= T(0) ? T(0) : z;  // NaN stays
  } else if constexpr (activation == Activation::gelu) {
    return z * normal(z).distribution;
  } else if constexpr (activation == Activation::silu) {
    return z / (T(1) + std::exp(-z));
  } else {
    return z;
  }
}

/// dy · f'(z)
template <Activation activation, class T>
NORMA_DEVICE T through_activation(T z, T dy) {
  if constexpr (activation == Activation::relu) {
    return z <= T(0) ? T(0) : dy;
  } else if constexpr (activation == Activation::gelu) {
    const Normal<T> at = normal(z);
    return dy * (at.distribution + z * at.density);
  } else if constexpr (activation == Activation::silu) {
    const T s = T(1) / (T(1) + std::exp(-z));
    return dy * (s * (T(1) + z * (T(1) - s)));
  } else {
    return dy;
  }
}

/// The constants that normalise an element: z = ((x - mean) - mean_low) · scale + shift.
template <class T>
struct Normaliser {
  T mean;
  T mean_low;
  T scale;
  T shift;

  NORMA_DEVICE T operator()(T x) const { return fused_multiply_add((x - mean) - mean_low, scale, shift); }
};

/// The Normaliser of set `set` and weight number `weight`. Null arrays stand for weights of 1 and biases of 0.
template <class T, class StatsOf>
NORMA_DEVICE Normaliser<T> normaliser(const StatsOf& stats, const T* weights, const T* biases, int64_t set,
                                      int64_t weight) {
  const T rstd = stats.rstd[set];
  return {stats.mean[set], stats.mean_low[set], weights == nullptr ? rstd : rstd * weights[weight],
          biases == nullptr ? T(0) : biases[weight]};
}

/// Stores numbers begin to end of a vector.
template <class S, int width, class T = compute_t<S>>
NORMA_DEVICE void store_part(S* to, const T (&numbers)[width], int begin, int end) {
  if (begin == 0 && end == width) {
    store<S, width>(to, numbers);
    return;
  }
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    if (j >= begin && j < end) {
      to[j] = to_element<S>(numbers[j]);
    }
  }
}

/// Writes y = f(z + residual) of neighbours begin to end of `width`, whose x is given. normaliser_of(j) gives z of
/// number j. Returns bits, unless none are kept: number j is set where z + residual is positive or NaN.
template <class S, int width, class NormaliserOf, class T = compute_t<S>>
NORMA_DEVICE unsigned write_normalised(const NormArrays<S>& arrays, int64_t at, const T (&x)[width],
                                       NormaliserOf normaliser_of, int begin = 0, int end = width) {
  T z[width];
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    z[j] = normaliser_of(j)(x[j]);
  }
  if (arrays.residual != nullptr) {
    T residual[width];
    load<S, width>(arrays.residual + at, residual);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      z[j] += residual[j];
    }
  }
  unsigned positive = 0;
  if (arrays.bits != nullptr) {
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      positive |= (z[j] <= T(0) ? 0U : 1U) << j;
    }
  }
  with_activation(arrays.activation, [&](auto activation) {
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      z[j] = activated<activation>(z[j]);
    }
  });
  store_part<S, width>(arrays.y + at, z, begin, end);
  return positive;
}

/// Writes the bits of the `width` neighbours at `at`, unless `bits` is null. All lanes of a warp call it, `writes` says
/// whether this one has such neighbours. Bits are kept for vectors alone.
template <int width>
NORMA_DEVICE void write_bits(uint8_t* bits, int64_t at, bool writes, unsigned positive) {
  if constexpr (width >= 4) {
    if (bits == nullptr) {
      return;
    }
    if constexpr (width == 4) {  // two lanes have a byte
      positive |= shuffle_xor(positive, 1) << 4;
    }
    if (writes && at % 8 == 0) {
      bits[at / 8] = static_cast<uint8_t>(positive);
    }
  }
}

/// Turns dz, which holds dy, of `width` neighbours into dy · f'(z + residual). normaliser_of(j) gives z of number j.
template <class S, int width, class NormaliserOf, class T = compute_t<S>>
NORMA_DEVICE void through_activations(const NormArrays<S>& arrays, int64_t at, const T (&x)[width],
                                      NormaliserOf normaliser_of, T (&dz)[width]) {
  if (arrays.bits != nullptr) {
    const unsigned bits = arrays.bits[at / 8] >> (at % 8);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      dz[j] = ((bits >> j) & 1U) != 0 ? dz[j] : T(0);
    }
  } else if (arrays.activation != Activation::identity) {
    T residual[width] = {};
    if (arrays.residual != nullptr) {
      load<S, width>(arrays.residual + at, residual);
    }
    with_activation(arrays.activation, [&](auto activation) {
      NORMA_UNROLL
      for (int j = 0; j < width; ++j) {
        dz[j] = through_activation<activation>(normaliser_of(j)(x[j]) + residual[j], dz[j]);
      }
    });
  }
}

/// dz of one element.
template <class S, class T = compute_t<S>>
NORMA_DEVICE T dz_of(const NormArrays<S>& arrays, int64_t offset, int64_t set, int64_t weight) {
  T dz[1] = {to_number(arrays.dy[offset])};
  if (arrays.activation == Activation::identity) {
    return dz[0];
  }
  const T x[1] = {to_number(arrays.x[offset])};
  through_activations(
      arrays, offset, x, [&](int) { return normaliser(arrays, arrays.weight, arrays.bias, set, weight); }, dz);
  return dz[0];
}

/// The constants of a column that a thread keeps in backward.
template <class T>
struct ColumnConstants {
  T mean;
  T mean_low;
  T rstd;
  T weight;
  T bias;
};

/// Loads dz of the vector at `at`, whose x is given.
template <class S, int width, class T = compute_t<S>>
NORMA_DEVICE void load_dz(const NormArrays<S>& arrays, int64_t at, const ColumnConstants<T> (&columns)[width],
                          const T (&x)[width], T (&dz)[width]) {
  load<S, width>(arrays.dy + at, dz);
  through_activations(
      arrays, at, x,
      [&](int j) {
        const ColumnConstants<T>& c = columns[j];
        return Normaliser<T>{c.mean, c.mean_low, c.rstd * c.weight, c.bias};
      },
      dz);
}

}  // namespace norma::kernels::NORMA_BACKEND
