#pragma once

#include "core/cuda/kernel.h"
#include "core/cuda/math.h"
#include "core/cuda/number.h"
#include "core/cuda/teams.h"
#include "ops/norm/formulas.h"
#include "ops/norm/kernels.h"

#include <algorithm>
#include <type_traits>

// What the kernels of the norms are made of.

namespace norma::kernels::NORMA_BACKEND {

// --- the walks ------------------------------------------------------------------------------------------------------

// The kernels for the cases that networks are made of. Each function returns whether it covers the case; if not, it has
// done nothing.

/// Sets that are one run of memory and fit into the registers of some threads; without running statistics.
bool rows_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool rows_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Sets side by side, or of a few neighbouring columns each, with weights that do not vary from row to row.
bool columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool columns_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Sets side by side, with weights that vary from row to row alone; without running statistics.
bool are_pixels(const NormProblem& problem);
bool pixels_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool pixels_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Sets of one or several runs of memory, with a weight for each.
bool runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Calls f(S{}) for the dtypes that have these kernels, and returns its result; false for the others.
template <class F>
bool dispatch_fast(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    default: return false;
  }
}

inline constexpr int kLoopThreads = 256;
/// Launches a kernel whose threads loop over `count`, if that is not 0.
template <class... Parameters, class... Arguments>
void launch_loop(int64_t count, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (count > 0) {
    launch(blocks_for(count, kLoopThreads), threads_for(count, kLoopThreads), 0, current_stream(), kernel,
           arguments...);
  }
}

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

/// The elements that share a weight: all of some of the four indices, one of each of the others.
class WeightElements {
 public:
  NORMA_DEVICE WeightElements(const NormProblem& problem, int64_t weight) : shape_(problem.shape) {
    const AffineShape& affine = problem.affine;
    int64_t rest = weight / affine.inner;
    const int64_t b = weight - rest * affine.inner;
    const int64_t kept = rest % affine.kept;
    rest /= affine.kept;
    period_a_ = affine.reduce_outer;
    const int64_t a = rest % period_a_;
    first_ = {.outer = rest / period_a_, .a = a, .kept = kept, .b = b * affine.segment};
    period_ = affine.outer_period;
    counts_ = {.outer = shape_.outer / period_,
               .a = shape_.reduce_outer / period_a_,
               .kept = affine.kept == 1 ? shape_.kept : 1,
               .b = affine.inner == 1 ? shape_.reduce_inner : affine.segment};
  }

  NORMA_DEVICE int64_t count() const { return counts_.outer * counts_.a * counts_.kept * counts_.b; }
  NORMA_DEVICE Place at(int64_t i) const {
    Place place = first_;
    int64_t rest = i / counts_.b;
    place.b += i - rest * counts_.b;
    int64_t next = rest / counts_.kept;
    place.kept += rest - next * counts_.kept;
    rest = next / counts_.a;
    place.a += (next - rest * counts_.a) * period_a_;
    place.outer += rest * period_;
    return place;
  }

 private:
  const NormShape& shape_;
  Place first_;
  Place counts_;
  int64_t period_;
  int64_t period_a_;
};

// --- vectors --------------------------------------------------------------------------------------------------------

/// True iff vectors of 16 bytes may be loaded from and stored to every operand that has as many elements as x.
template <class S>
bool are_aligned(const ForwardArrays<S>& arrays) {
  return are_aligned(arrays.x, arrays.y, arrays.residual);
}
template <class S>
bool are_aligned(const BackwardArrays<S>& arrays) {
  return are_aligned(arrays.dy, arrays.x, arrays.dx, arrays.residual, arrays.dresidual);
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

/// The constants that normalize an element: z = ((x - mean) - mean_low) · scale + shift.
template <class T>
struct Normalizer {
  T mean;
  T mean_low;
  T scale;
  T shift;

  NORMA_DEVICE T operator()(T x) const { return fused_multiply_add((x - mean) - mean_low, scale, shift); }
};

/// The Normalizer of set `set` and weight number `weight`. Null arrays stand for weights of 1 and biases of 0.
template <class T, class StatsOf>
NORMA_DEVICE Normalizer<T> normalizer(const StatsOf& stats, const T* weights, const T* biases, int64_t set,
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

/// Writes y = f(z + residual) of neighbours begin to end of `width`, whose x is given. normalizer_of(j) gives z of
/// number j. Returns bits, unless none are kept: number j is set where z + residual is positive or NaN.
template <class S, int width, class NormaliserOf, class T = compute_t<S>>
NORMA_DEVICE unsigned write_normalized(const ForwardArrays<S>& arrays, int64_t at, const T (&x)[width],
                                       NormaliserOf normalizer_of, int begin = 0, int end = width) {
  T z[width];
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    z[j] = normalizer_of(j)(x[j]);
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

/// Turns dz, which holds dy, of `width` neighbours into dy · f'(z + residual). normalizer_of(j) gives z of number j.
template <class S, int width, class NormaliserOf, class T = compute_t<S>>
NORMA_DEVICE void through_activations(const BackwardArrays<S>& arrays, int64_t at, const T (&x)[width],
                                      NormaliserOf normalizer_of, T (&dz)[width]) {
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
        dz[j] = through_activation<activation>(normalizer_of(j)(x[j]) + residual[j], dz[j]);
      }
    });
  }
}

/// dz of one element.
template <class S, class T = compute_t<S>>
NORMA_DEVICE T dz_of(const BackwardArrays<S>& arrays, int64_t offset, int64_t set, int64_t weight) {
  T dz[1] = {to_number(arrays.dy[offset])};
  if (arrays.activation == Activation::identity) {
    return dz[0];
  }
  const T x[1] = {to_number(arrays.x[offset])};
  through_activations(
      arrays, offset, x, [&](int) { return normalizer(arrays, arrays.weight, arrays.bias, set, weight); }, dz);
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
NORMA_DEVICE void load_dz(const BackwardArrays<S>& arrays, int64_t at, const ColumnConstants<T> (&columns)[width],
                          const T (&x)[width], T (&dz)[width]) {
  load<S, width>(arrays.dy + at, dz);
  through_activations(
      arrays, at, x,
      [&](int j) {
        const ColumnConstants<T>& c = columns[j];
        return Normalizer<T>{c.mean, c.mean_low, c.rstd * c.weight, c.bias};
      },
      dz);
}

// --- sums that a thread adds up of a set, before its team does ------------------------------------------------------

/// The number of terms that a thread adds up in T before it moves them to double.
inline constexpr int kChain = 32;

/// Two sums: in T over some elements, then in double.
template <class T>
struct ChainedSums {
  T first = 0;
  T second = 0;
  double total_first = 0;
  double total_second = 0;
  int length = 0;

  /// Adds `a` to one sum and left · right to the other.
  NORMA_DEVICE void add(T a, T left, T right) {
    first += a;
    second = fused_multiply_add(left, right, second);
  }
  /// To be called after some terms, not for each: that would take as long as adding it.
  NORMA_DEVICE void have_added(int terms) {
    length += terms;
    if (length >= kChain) {
      move();
    }
  }
  NORMA_DEVICE void move() {
    total_first += first;
    total_second += second;
    first = 0;
    second = 0;
    length = 0;
  }
};

/// As ChainedSums, in double from the start, where speed does not matter.
template <class T>
struct WideSums {
  double total_first = 0;
  double total_second = 0;

  NORMA_DEVICE void add(T a, T left, T right) {
    total_first += static_cast<double>(a);
    total_second = fused_multiply_add(static_cast<double>(left), static_cast<double>(right), total_second);
  }
};

/// Weights and biases whose parts a block of add_partials() adds up: as many as a sector of memory holds. Each has a
/// warp's number of threads.
inline constexpr int kPartialsOfBlock = 8;
inline constexpr int kPartialThreads = kPartialsOfBlock * kWarp;

/// Adds the parts of the blocks up to dweight and dbias, in a fixed order; either may be null. Each part is a row of
/// `count` numbers for the weights and one for the biases.
template <class T>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kPartialThreads)
    add_partials(int64_t count, int64_t parts, const T* partials, T* dweight, T* dbias) {
  double* shared = shared_memory<double>();
  // Neighbouring threads read neighbouring numbers of a part, and the threads of a number every 32nd part.
  const int64_t first = block() * kPartialsOfBlock;
  const int64_t read = first + thread() % kPartialsOfBlock;
  double sum = 0;
  for (int64_t part = thread() / kPartialsOfBlock; part < parts && read < 2 * count; part += kWarp) {
    sum += static_cast<double>(partials[2 * part * count + read]);
  }
  shared[thread()] = sum;
  sync_threads();
  // A warp for each number.
  const int warp = thread() / kWarp;
  const double total = LaneTeam().sum(shared[lane() * kPartialsOfBlock + warp]);
  const int64_t write = first + warp;
  if (lane() != 0 || write >= 2 * count) {
    return;
  }
  T* to = write < count ? dweight : dbias;
  if (to != nullptr) {
    to[write < count ? write : write - count] = static_cast<T>(total);
  }
}

/// Launches add_partials().
template <class T>
void launch_add_partials(int64_t count, int64_t parts, const T* partials, T* dweight, T* dbias) {
  launch(ceil_div(2 * count, kPartialsOfBlock), kPartialThreads, kPartialThreads * sizeof(double), current_stream(),
         add_partials<T>, count, parts, partials, dweight, dbias);
}

// --- statistics of a set, which the threads of a team compute together ----------------------------------------------

/// The moments of a set from its sums of d and d² with d = x - pivot.
NORMA_DEVICE Moments moments_of(bool raw, double count, double pivot, double sum, double squares) {
  if (raw) {
    return {0, sum, squares};
  }
  const double offset = sum / count;
  const double m2 = fused_multiply_add(-sum, offset, squares);
  return {pivot, offset, m2 < 0 ? 0 : m2};
}

/// The moments of a set by sums about `near`. All threads of the team call it.
template <class S, class Team, class T = compute_t<S>>
NORMA_DEVICE Moments moments_about(const NormProblem& problem, const S* x, int64_t set, T near, const Team& team) {
  WideSums<double> sums;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    const double d = static_cast<double>(to_number(x[i.offset()])) - static_cast<double>(near);
    sums.add(d, d, d);
  }
  double sum = sums.total_first;
  double squares = sums.total_second;
  team.sum(sum, squares);
  return moments_of(/* raw= */ false, static_cast<double>(problem.shape.set_size()), static_cast<double>(near), sum,
                    squares);
}

/// The statistics of sets as statistics_of() has them, from sums about a mean that is nearly right. It computes in T,
/// with a low part where T alone would lose digits: float64 takes many times as long on most GPUs. Hosts make it.
template <class T>
class NearStatistics {
 public:
  explicit NearStatistics(const NormProblem& problem)
      : by_count_(static_cast<T>(1 / static_cast<double>(problem.shape.set_size()))),
        eps_(static_cast<T>(problem.eps)),
        eps_low_(static_cast<T>(problem.eps - static_cast<double>(eps_))),
        centred_(problem.centring != Centring::none) {
    const double freedom = static_cast<double>(problem.shape.set_size() - (centred_ ? problem.correction : 0));
    by_freedom_ = static_cast<T>(1 / freedom);
    by_freedom_low_ = static_cast<T>(1 / freedom - static_cast<double>(by_freedom_));
  }

  /// mean + mean_low = pivot + sum / n, from the sum of x - pivot.
  NORMA_DEVICE void near_mean(T pivot, T sum, T& mean, T& mean_low) const {
    const T offset = sum * by_count_;
    mean = pivot + offset;
    mean_low = (pivot - mean) + offset;
  }

  /// sum and squares: of d = (x - mean) - mean_low. Where nothing is centred, mean and mean_low are 0.
  NORMA_DEVICE SetStatistics<T> of(T mean, T mean_low, T sum, T squares) const {
    const T offset = centred_ ? sum * by_count_ : T(0);
    const T difference = fused_multiply_add(-sum, offset, squares);
    const T m2 = difference < T(0) ? T(0) : difference;  // NaN stays
    // var = m2 / freedom and var + eps, each in two parts
    const T var = m2 * by_freedom_;
    const T var_low = fused_multiply_add(m2, by_freedom_low_, fused_multiply_add(m2, by_freedom_, -var));
    const T sum_eps = var + eps_;
    const T of_eps = sum_eps - var;
    const T lost_eps = (var - (sum_eps - of_eps)) + (eps_ - of_eps);
    const T sum_low = lost_eps + (var_low + eps_low_);
    // A step of Newton's makes 1 / sqrt exact but for its last rounding: r (1 + e / 2) with e = 1 - (v + v_low) r².
    T rstd = T(1) / std::sqrt(sum_eps);
    const T vr = sum_eps * rstd;
    const T vr_low = fused_multiply_add(sum_eps, rstd, -vr);
    const T e = fused_multiply_add(-vr, rstd, T(1)) - (vr_low + sum_low * rstd) * rstd;
    rstd = sum_eps > T(0) && e - e == T(0) ? fused_multiply_add(rstd * T(0.5), e, rstd) : rstd;
    const T low = mean_low + offset;
    const T whole = mean + low;
    constexpr T kLeast = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
    return {whole, (mean - whole) + low, rstd, var + var_low, !(var - var == T(0)) || sum_eps < kLeast};
  }

 private:
  T by_count_;
  T by_freedom_;
  T by_freedom_low_;
  T eps_;
  T eps_low_;
  bool centred_;
};

/// True iff the pivot was more than two standard deviations from the mean: m2 has lost digits.
NORMA_DEVICE bool is_far(double count, double sum, double squares) {
  const double offset = sum / count;
  return offset * offset * count > 4 * (squares - sum * offset);
}

/// Goes over a set by the threads of a team, each of which takes every size-th element: see formulas.h. All threads of
/// the team call its functions together.
template <class S, class Team>
class SetPass {
 public:
  using T = compute_t<S>;

  NORMA_DEVICE SetPass(const NormShape& shape, const S* x, int64_t set, const Team& team)
      : shape_(shape), x_(x), set_(set), team_(team) {}

  NORMA_DEVICE T first() const { return to_number(x_[SetElements(shape_, set_, 0, 1).offset()]); }
  template <class State, class Add>
  NORMA_DEVICE State each(Add add) const {
    State state{};
    for (SetElements i(shape_, set_, team_.rank(), team_.size()); !i.ended(); i.next()) {
      add(state, to_number(x_[i.offset()]));
    }
    return state;
  }
  template <class State, class Term>
  NORMA_DEVICE double sum(const State& state, Term term) const {
    return team_.sum(term(state));
  }
  template <class State, class Term>
  NORMA_DEVICE double largest(const State& state, Term term) const {
    return team_.largest(term(state));
  }
  NORMA_DEVICE void sum_in_two_parts(const CompensatedSum<T>& state, double& high, double& low) const {
    high = static_cast<double>(state.sum);
    low = static_cast<double>(state.lost);
    team_.sum_in_two_parts(high, low);
  }

 private:
  const NormShape& shape_;
  const S* x_;
  int64_t set_;
  const Team& team_;
};

/// scaled_statistics() of a set. All threads of the team call it.
template <class S, class Team, class T = compute_t<S>>
NORMA_DEVICE SetStatistics<T> scaled_statistics(const NormProblem& problem, const S* x, int64_t set, const Team& team,
                                                const SetStatistics<T>& plain) {
  return scaled_statistics(problem, SetPass<S, Team>(problem.shape, x, set, team), plain);
}

/// The constants of a set's dx from its sums of g and g * xhat.
template <class T>
NORMA_DEVICE InputGradient<T> input_gradient(const NormProblem& problem, T mean, T rstd, double sum_g,
                                             double sum_g_xhat) {
  return InputGradients(problem).of<T>(static_cast<double>(mean), static_cast<double>(rstd), sum_g, sum_g_xhat);
}

/// Writes dweight and dbias of a weight, where they are wanted.
template <class S>
NORMA_DEVICE void store_weight_gradient(const BackwardArrays<S>& arrays, int64_t weight, double sum_dz,
                                        double sum_dz_xhat) {
  using T = compute_t<S>;
  if (arrays.dweight != nullptr) {
    arrays.dweight[weight] = static_cast<T>(sum_dz_xhat);
  }
  if (arrays.dbias != nullptr) {
    arrays.dbias[weight] = static_cast<T>(sum_dz);
  }
}

/// dx = dz · by_dz + xhat · by_xhat + shift, with by_dz = weight · rstd. Fixed statistics leave the first term alone.
template <class T>
NORMA_DEVICE T dx_of(bool fixed_stats, T dz, T by_dz, T xhat, const InputGradient<T>& of_set) {
  return fixed_stats ? dz * by_dz
                     : fused_multiply_add(dz, by_dz, fused_multiply_add(xhat, of_set.by_xhat, of_set.shift));
}

// --- the second stage of columns and runs ---------------------------------------------------------------------------

// The second stage of columns and runs. The first stage left two sums for each part of a set: a chunk of rows of a
// column, or a run. Here a warp for each set or weight adds them up in a fixed order.
//
// `Parts` knows where the parts are:
//   for_each_of_set(set, f)        calls f(part) for the parts of a set that this lane takes
//   for_each_of_weight(weight, f)  does so for the parts of a weight
// A part has `sums` and `second_sums`, the numbers of its sums, `pivot`, that of its pivot, `elements`, their count,
// and `weight`, the number of the weight that its elements have.

struct Part {
  int64_t sums;
  int64_t second_sums;
  int64_t pivot;
  double elements;
  int64_t weight;
};

/// The square of the distance of pivots from the mean, in standard deviations, beyond which a set of `count` elements
/// is added up once more. Then the sums, in float32, lose digits that the results can show; the errors of many partial
/// sums cancel, so that large sets lose fewer. One warp adds a set up, and takes milliseconds for a large one.
template <class S>
NORMA_DEVICE double far_from_mean(double count) {
  constexpr double kManyElements = 4096;
  return sizeof(S) == 2 || count > kManyElements ? 64 : 4;
}

/// Writes the stats of each set. sums: of d and d² with d = x - pivot.
template <class S, class Parts, class T = compute_t<S>>
NORMA_KERNEL void finish_statistics(NormProblem problem, Parts parts, ForwardArrays<S> arrays, const T* pivots,
                                    const double* sums) {
  const LaneTeam team;
  const auto count = static_cast<double>(problem.shape.set_size());
  const int64_t warps = global_threads() / kWarp;
  for (int64_t set = global_thread() / kWarp; set < problem.shape.sets(); set += warps) {
    double total = 0;
    double squares = 0;
    parts.for_each_of_set(set, [&](const Part& part) {
      total += fused_multiply_add(part.elements, static_cast<double>(pivots[part.pivot]), sums[part.sums]);
      squares += sums[part.second_sums];
    });
    team.sum(total, squares);
    Moments moments{0, total, squares};
    if (!problem.raw_sums()) {
      const double mean = total / count;
      double m2 = 0;
      double from_pivots = 0;
      parts.for_each_of_set(set, [&](const Part& part) {
        const double d = static_cast<double>(pivots[part.pivot]) - mean;
        m2 += sums[part.second_sums] + 2 * sums[part.sums] * d + part.elements * d * d;
        from_pivots += part.elements * d * d;
      });
      team.sum(m2, from_pivots);
      moments = {mean, 0, m2 < 0 ? 0 : m2};
      if (from_pivots > far_from_mean<S>(count) * m2) {  // sums once more about the mean
        moments = moments_about(problem, arrays.x, set, static_cast<T>(mean), team);
      }
    }
    auto of_set = statistics_of<T>(problem, moments);
    if (of_set.lost) {
      of_set = scaled_statistics(problem, arrays.x, set, team, of_set);
    }
    if (lane() == 0) {
      store_set(arrays, set, of_set);
      update_running_set(arrays.running, set, of_set.mean, of_set.var);
    }
  }
}

/// Writes the constants of the dx of `sets` sets, then dweight and dbias of `weights` weights; either may be null.
/// sums: of dz and dz · xhat.
template <class S, class Parts, class T = compute_t<S>>
NORMA_KERNEL void finish_gradients(NormProblem problem, int64_t sets, int64_t weights, Parts parts,
                                   BackwardArrays<S> arrays, const double* sums, InputGradient<T>* gradients) {
  const LaneTeam team;
  const int64_t warps = global_threads() / kWarp;
  for (int64_t task = global_thread() / kWarp; task < sets + weights; task += warps) {
    double sum = 0;
    double sum_xhat = 0;
    if (task < sets) {
      parts.for_each_of_set(task, [&](const Part& part) {
        const double weight = arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[part.weight]);
        sum = fused_multiply_add(weight, sums[part.sums], sum);
        sum_xhat = fused_multiply_add(weight, sums[part.second_sums], sum_xhat);
      });
    } else {
      parts.for_each_of_weight(task - sets, [&](const Part& part) {
        sum += sums[part.sums];
        sum_xhat += sums[part.second_sums];
      });
    }
    team.sum(sum, sum_xhat);
    if (lane() != 0) {
      continue;
    }
    if (task < sets) {
      gradients[task] = input_gradient(problem, arrays.mean[task], arrays.rstd[task], sum, sum_xhat);
    } else {
      store_weight_gradient(arrays, task - sets, sum, sum_xhat);
    }
  }
}

// --- the plan of columns --------------------------------------------------------------------------------------------

inline constexpr int kColumnThreads = 256;
inline constexpr int kMostColumnLanes = 16;
/// The plan by which blocks share the rows and columns of one outer index.
struct ColumnPlan {
  int64_t columns = 0;        ///< elements of a row
  int lanes = 0;              ///< threads along a row; the others of a block take other rows
  int64_t tiles = 0;          ///< blocks along a row
  int64_t rows_of_chunk = 0;  ///< rows of a block
  int64_t chunks = 0;

  [[nodiscard]] int64_t blocks(const NormShape& shape) const { return shape.outer * chunks * tiles; }
};

/// The plan for a device that runs `resident` blocks at the same time: all blocks do.
///
/// Where each column is a set (by_tile), each block of the backward pass adds up the sums of all chunks of its columns:
/// two for each chunk and column of its tile. The chunks are about resident / tiles, so narrow tiles keep that small. A
/// line of the cache is the narrowest that reads memory well; half of one is better where few columns leave many
/// chunks.
///
/// A chunk of eight steps of its block or more is an odd number of them. With chunks that begin at multiples of a large
/// power of two, as most layers of ResNet-50 had them where three blocks run on a processor, its step took 46 ms on an
/// H200, and 21 with layer2d: all blocks load from the same few channels of the memory at a time.
inline ColumnPlan plan_columns(const NormShape& shape, int vector, int64_t resident) {
  constexpr int64_t kLeastRows = 4;  // of a thread, where there are so many
  constexpr int64_t kFewVectors = 32;
  ColumnPlan plan;
  plan.columns = shape.kept * shape.reduce_inner;
  const int64_t vectors = ceil_div(plan.columns, vector);
  plan.lanes = vectors < kFewVectors ? 4 : kMostColumnLanes / 2;
  // What a thread does before its rows is shared by more of them, where all processors still have work.
  const bool few_rows = shape.reduce_outer <= kLeastRows * (kColumnThreads / plan.lanes);
  if (few_rows && shape.outer > 1 && shape.outer * (vectors / kMostColumnLanes) >= resident) {
    plan.lanes = kMostColumnLanes;
  }
  plan.tiles = ceil_div(vectors, plan.lanes);
  const int64_t rows_at_once = kColumnThreads / plan.lanes;
  const int64_t most = ceil_div(shape.reduce_outer, kLeastRows * rows_at_once);
  const int64_t chunks = std::clamp<int64_t>(resident / (shape.outer * plan.tiles), 1, most);
  const int64_t steps = ceil_div(ceil_div(shape.reduce_outer, chunks), rows_at_once);
  // One more of a few steps would leave many processors idle, and so few rows lie in the cache.
  constexpr int64_t kFewSteps = 8;
  plan.rows_of_chunk = (steps < kFewSteps ? steps : steps | 1) * rows_at_once;
  plan.chunks = ceil_div(shape.reduce_outer, plan.rows_of_chunk);
  return plan;
}

}  // namespace norma::kernels::NORMA_BACKEND
