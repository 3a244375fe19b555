#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/norm/cpu/scratch.h"
#include "ops/norm/kernels.h"

#include <algorithm>
#include <cmath>

// What is done once for a map, in double and in plain loops: the numbers of the maps from parameters and stats, and the
// gradients of both from the sums over maps.

namespace norma::kernels::cpu {

namespace {

/// What the formulas read and write. T: that of the numbers.
template <class T>
class Maps {
 public:
  Maps(const MapProblem& problem, const MapSources& sources)
      : sources_(sources),
        maps(problem.shape.maps()),
        channels(problem.shape.channels),
        pixels(static_cast<double>(problem.shape.inner)) {}

  /// Parameter `i` of a channel; `otherwise` where there is none.
  [[nodiscard]] double parameter(int i, int64_t channel, double otherwise) const {
    return sources_.parameters[i] == nullptr ? otherwise : sources_.parameters[i][channel];
  }
  /// A row of the first stats, for a set: a map or a group.
  [[nodiscard]] double stat(StatsRow row, int64_t set) const {
    return static_cast<const T*>(sources_.stats[0])[row * sources_.sets + set];
  }
  /// A row of the second ones.
  [[nodiscard]] double channel_stat(StatsRow row, int64_t channel) const {
    return static_cast<const T*>(sources_.stats[1])[row * channels + channel];
  }
  /// Calls f(map, channel) for all maps.
  template <class F>
  void for_each(F&& f) const {
    for (int64_t first = 0; first < maps; first += channels) {
      for (int64_t channel = 0; channel < channels; ++channel) {
        f(first + channel, channel);
      }
    }
  }

 private:
  const MapSources& sources_;

 public:
  const int64_t maps;
  const int64_t channels;
  const double pixels;  ///< elements of a map
};

/// Row `row` of `to`: f(map, channel).
template <class T, class F>
void fill_row(const Maps<T>& m, T* to, int64_t row, F&& f) {
  m.for_each([&](int64_t map, int64_t channel) { to[row * m.maps + map] = static_cast<T>(f(map, channel)); });
}
template <class T>
void parameter_row(const Maps<T>& m, T* to, int64_t row, int parameter, double otherwise) {
  fill_row(m, to, row, [&](int64_t, int64_t channel) { return m.parameter(parameter, channel, otherwise); });
}
template <class T>
void zero_row(const Maps<T>& m, T* to, int64_t row) {
  std::fill_n(to + row * m.maps, m.maps, T(0));
}
/// For sets that are maps.
template <class T>
void stats_row(const Maps<T>& m, T* to, int64_t row, StatsRow from) {
  fill_row(m, to, row, [&](int64_t map, int64_t) { return m.stat(from, map); });
}
/// For sets that are groups of neighbouring maps.
template <class T>
void group_stats_row(const Maps<T>& m, int64_t groups, T* to, int64_t row, StatsRow from) {
  const int64_t maps_of_group = m.maps / groups;
  for (int64_t group = 0; group < groups; ++group) {
    std::fill_n(to + row * m.maps + group * maps_of_group, maps_of_group, static_cast<T>(m.stat(from, group)));
  }
}

/// sums[c] = the sum over the maps of channel c of of_maps; null: nothing.
template <class T>
void over_maps(const Maps<T>& m, const double* of_maps, double* sums) {
  if (sums == nullptr) {
    return;
  }
  std::fill_n(sums, m.channels, 0.0);
  for (int64_t first = 0; first < m.maps; first += m.channels) {
    for (int64_t c = 0; c < m.channels; ++c) {
      sums[c] += of_maps[first + c];
    }
  }
}

/// The rows of MapGradient::through_stats.
enum ThroughStatsRow : int64_t { kMean, kMeanLow, kRstd, kBy, kShift };

// --- filter response norm with its threshold ------------------------------------------------------------------------

struct Threshold {
  template <class T>
  static void numbers(const Maps<T>& m, const MapSources&, T* to) {
    stats_row(m, to, 0, kRstdRow);
    parameter_row(m, to, 1, 0, 1);
    parameter_row(m, to, 2, 1, 0);
    parameter_row(m, to, 3, 2, 0);
  }

  /// With g = dz * weight where z > tau, and xhat = x * rstd: dx = rstd * (g - xhat * mean(g * xhat))
  template <class T>
  static void backward(const Maps<T>& m, const MapSources&, const MapNumbersBackward& a) {
    const double* sums = a.sums;
    T* to = static_cast<T*>(a.through_stats);
    zero_row(m, to, kMean);
    zero_row(m, to, kMeanLow);
    stats_row(m, to, kRstd, kRstdRow);
    fill_row(m, to, kBy, [&](int64_t map, int64_t channel) {
      return -m.stat(kRstdRow, map) * m.parameter(0, channel, 1) * sums[m.maps + map] / m.pixels;
    });
    zero_row(m, to, kShift);
    over_maps(m, sums + m.maps, a.parameters[0]);
    over_maps(m, sums, a.parameters[1]);
    over_maps(m, sums + 2 * m.maps, a.parameters[2]);
  }
};

// --- EvoNorm S0 -----------------------------------------------------------------------------------------------------

struct Gate {
  template <class T>
  static void numbers(const Maps<T>& m, const MapSources& sources, T* to) {
    parameter_row(m, to, 0, 0, 1);
    group_stats_row(m, sources.sets, to, 1, kRstdRow);
    parameter_row(m, to, 2, 1, 1);
    parameter_row(m, to, 3, 2, 0);
  }

  /// y - bias = f * rstd, so through rstd = (var + eps)^-1/2 comes
  ///   dx = -rstd * mean of the group of dy * (y - bias) * (x - centre) * rstd
  template <class T>
  static void backward(const Maps<T>& m, const MapSources& sources, const MapNumbersBackward& a) {
    double* sums = a.sums;
    T* to = static_cast<T*>(a.through_stats);
    const int64_t maps_of_group = m.maps / sources.sets;
    const double elements = static_cast<double>(maps_of_group) * m.pixels;
    for (int64_t group = 0; group < sources.sets; ++group) {
      const int64_t first = group * maps_of_group;
      const int64_t first_channel = first % m.channels;
      double sum = 0;
      for (int64_t i = 0; i < maps_of_group; ++i) {
        const double weight = m.parameter(1, first_channel + i, 1);
        sum += weight * sums[m.maps + first + i];
        sums[2 * m.maps + first + i] *= weight;
      }
      std::fill_n(to + kBy * m.maps + first, maps_of_group, static_cast<T>(-m.stat(kRstdRow, group) * sum / elements));
    }
    group_stats_row(m, sources.sets, to, kMean, kCentreRow);
    group_stats_row(m, sources.sets, to, kMeanLow, kCentreLowRow);
    group_stats_row(m, sources.sets, to, kRstd, kRstdRow);
    zero_row(m, to, kShift);
    over_maps(m, sums + 2 * m.maps, a.parameters[0]);
    over_maps(m, sums + m.maps, a.parameters[1]);
    over_maps(m, sums, a.parameters[2]);
  }
};

// --- EvoNorm B0 -----------------------------------------------------------------------------------------------------

struct Evo {
  template <class T>
  static double map_root(const Maps<T>& m, int64_t map) {
    return 1 / m.stat(kRstdRow, map);
  }
  template <class T>
  static double batch_root(const Maps<T>& m, int64_t channel) {
    return 1 / m.channel_stat(kRstdRow, channel);
  }

  template <class T>
  static void numbers(const Maps<T>& m, const MapSources&, T* to) {
    parameter_row(m, to, 0, 0, 1);
    fill_row(m, to, 1, [&](int64_t map, int64_t) { return map_root(m, map); });
    fill_row(m, to, 2, [&](int64_t, int64_t channel) { return batch_root(m, channel); });
    parameter_row(m, to, 3, 1, 1);
    parameter_row(m, to, 4, 2, 0);
  }

  /// root = sqrt(var + eps), so dx = droot / (root * n) * (x - mean) for each of both. The means differ:
  /// (x - mean of the batch) = (x - mean of the map) + (mean of the map - mean of the batch).
  template <class T>
  static void backward(const Maps<T>& m, const MapSources& sources, const MapNumbersBackward& a) {
    double* sums = a.sums;
    T* to = static_cast<T*>(a.through_stats);
    m.for_each([&](int64_t map, int64_t channel) {
      const double weight = m.parameter(1, channel, 1);
      for (const int64_t k : {2, 3, 4}) {
        sums[k * m.maps + map] *= -weight;
      }
    });
    Scratch scratch;
    double* of_batch = scratch.take<double>(m.channels);
    over_maps(m, sums + 4 * m.maps, of_batch);
    const int64_t image_count = m.maps / m.channels;
    const auto images = static_cast<double>(image_count);
    m.for_each([&](int64_t map, int64_t channel) {
      double by = sums[3 * m.maps + map] / m.pixels;
      double shift = 0;
      const double mean = m.stat(kMeanRow, map);
      const double mean_low = m.stat(kMeanLowRow, map);
      if (!sources.fixed_stats) {
        const double through_batch = of_batch[channel] / (batch_root(m, channel) * m.pixels * images);
        by += through_batch * map_root(m, map);
        shift = through_batch *
                ((mean - m.channel_stat(kMeanRow, channel)) + (mean_low - m.channel_stat(kMeanLowRow, channel)));
      }
      to[kMean * m.maps + map] = static_cast<T>(mean);
      to[kMeanLow * m.maps + map] = static_cast<T>(mean_low);
      // By itself, since 1 / root² need not fit T.
      to[kRstd * m.maps + map] = static_cast<T>(m.stat(kRstdRow, map));
      to[kBy * m.maps + map] = static_cast<T>(by);
      to[kShift * m.maps + map] = static_cast<T>(shift);
    });
    over_maps(m, sums + 2 * m.maps, a.parameters[0]);
    over_maps(m, sums + m.maps, a.parameters[1]);
    over_maps(m, sums, a.parameters[2]);
  }
};

// --- global response norm -------------------------------------------------------------------------------------------

/// What the maps of one image respond, and what that becomes.
struct Responses {
  double* g;        ///< sqrt(sum of x²) of each map
  double* n;        ///< g / mean
  double mean = 0;  ///< that of g over the channels, + eps

  template <class T>
  Responses(const Maps<T>& m, const MapSources& sources, int64_t first, Scratch& scratch)
      : g(scratch.take<double>(m.channels)), n(scratch.take<double>(m.channels)) {
    double sum = 0;
    for (int64_t c = 0; c < m.channels; ++c) {
      g[c] = std::sqrt(m.pixels) / m.stat(kRstdRow, first + c);  // rstd is 1 / sqrt(mean of x²)
      sum += g[c];
    }
    mean = sum / static_cast<double>(m.channels) + sources.eps;
    for (int64_t c = 0; c < m.channels; ++c) {
      n[c] = g[c] / mean;
    }
  }

  /// 0 for a map of zeros, which has no gradient through g.
  [[nodiscard]] double inverse(int64_t c) const { return g[c] == 0 ? 0 : 1 / g[c]; }
};

struct Affine {
  template <class T>
  static void numbers(const Maps<T>& m, const MapSources& sources, T* to) {
    for (int64_t first = 0; first < m.maps; first += m.channels) {
      Scratch scratch;
      const Responses r(m, sources, first, scratch);
      for (int64_t c = 0; c < m.channels; ++c) {
        to[first + c] = static_cast<T>(1 + m.parameter(0, c, 1) * r.n[c]);
        to[2 * m.maps + first + c] = static_cast<T>(r.inverse(c));
      }
    }
    parameter_row(m, to, 1, 1, 0);
  }

  /// dn = weight * sum(dy * x);  dg = (dn - mean over the channels of dn * n) / mean of g;
  /// dx = dy * scale + x / g * dg
  template <class T>
  static void backward(const Maps<T>& m, const MapSources& sources, const MapNumbersBackward& a) {
    T* to = static_cast<T*>(a.through_stats);
    for (int64_t first = 0; first < m.maps; first += m.channels) {
      Scratch scratch;
      const Responses r(m, sources, first, scratch);
      double* dn = scratch.take<double>(m.channels);
      double* dweight = a.sums + m.maps + first;  // in place of the sums of dy * x / g
      double shared = 0;
      for (int64_t c = 0; c < m.channels; ++c) {
        dn[c] = dweight[c] * (m.parameter(0, c, 1) * r.g[c]);
        dweight[c] *= r.g[c] * r.n[c];
        shared += dn[c] * r.n[c];
      }
      shared /= static_cast<double>(m.channels);
      for (int64_t c = 0; c < m.channels; ++c) {
        to[kRstd * m.maps + first + c] = static_cast<T>(r.inverse(c));
        to[kBy * m.maps + first + c] = static_cast<T>((dn[c] - shared) / r.mean);
      }
    }
    zero_row(m, to, kMean);
    zero_row(m, to, kMeanLow);
    zero_row(m, to, kShift);
    over_maps(m, a.sums + m.maps, a.parameters[0]);
    over_maps(m, a.sums, a.parameters[1]);
  }
};

// --- dynamic tanh ---------------------------------------------------------------------------------------------------

struct Tanh {
  template <class T>
  static void numbers(const Maps<T>& m, const MapSources& sources, T* to) {
    std::fill_n(to, m.maps, static_cast<T>(*sources.parameters[0]));
    parameter_row(m, to, 1, 1, 1);
    parameter_row(m, to, 2, 2, 0);
  }

  template <class T>
  static void backward(const Maps<T>& m, const MapSources&, const MapNumbersBackward& a) {
    double dalpha = 0;
    m.for_each([&](int64_t map, int64_t channel) { dalpha += m.parameter(1, channel, 1) * a.sums[2 * m.maps + map]; });
    if (a.parameters[0] != nullptr) {
      *a.parameters[0] = dalpha;
    }
    over_maps(m, a.sums + m.maps, a.parameters[1]);
    over_maps(m, a.sums, a.parameters[2]);
  }
};

/// Calls f(formulas, maps) for the function of a problem, and the dtype of its computation.
template <class F>
void dispatch(DType dtype, const MapProblem& problem, const MapSources& sources, F&& f) {
  const auto with = [&](auto formulas) {
    dtype == DType::float64 ? f(formulas, Maps<double>(problem, sources)) : f(formulas, Maps<float>(problem, sources));
  };
  switch (problem.function) {
    case MapFunction::threshold: return with(Threshold{});
    case MapFunction::gate: return with(Gate{});
    case MapFunction::evo: return with(Evo{});
    case MapFunction::affine: return with(Affine{});
    case MapFunction::tanh: return with(Tanh{});
  }
}

}  // namespace

void map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers) {
  dispatch(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& maps) {
    Formulas::numbers(maps, sources, static_cast<T*>(numbers));
  });
}

void map_numbers_backward(DType dtype, const MapProblem& problem, const MapSources& sources,
                          const MapNumbersBackward& arrays) {
  dispatch(dtype, problem, sources,
           [&]<class Formulas, class T>(Formulas, const Maps<T>& maps) { Formulas::backward(maps, sources, arrays); });
}

}  // namespace norma::kernels::cpu
