#pragma once

#include "ops/map_norm/kernels.h"
#include "ops/norm/kernels.h"

#include <cmath>
#include <numbers>

// The numbers of a map from parameters and stats, and the results of its sums: formulas of one map, in double, for
// every device. Some need a total over the maps of a set, which the loops around them add up.

namespace norma::kernels {

/// The maps that share a total: those of a group, of a channel in all images, or of an image.
enum class MapSet : uint8_t { none, group, channel, image };

/// The input of the formulas. T is the dtype of the numbers.
template <class T>
struct Maps {
  MapSources sources;
  int64_t maps;
  int64_t channels;
  double pixels;  ///< elements of a map

  Maps(const MapProblem& problem, const MapSources& of)
      : sources(of),
        maps(problem.shape.maps()),
        channels(problem.shape.channels),
        pixels(static_cast<double>(problem.shape.inner)) {}

  /// Parameter `i` of a map's channel; `otherwise` if there is none.
  [[nodiscard]] constexpr double parameter(int i, int64_t map, double otherwise) const {
    return sources.parameters[i] == nullptr ? otherwise : sources.parameters[i][map % channels];
  }
  /// A row of the first stats, for a set: a map or a group.
  [[nodiscard]] constexpr double stat(StatsRow row, int64_t set) const {
    return static_cast<const T*>(sources.stats[0])[row * sources.sets + set];
  }
  /// A row of the second stats, for a map's channel.
  [[nodiscard]] constexpr double channel_stat(StatsRow row, int64_t map) const {
    return static_cast<const T*>(sources.stats[1])[row * channels + map % channels];
  }

  /// The number of maps in a set, and of sets.
  [[nodiscard]] constexpr int64_t size_of(MapSet kind) const {
    return kind == MapSet::group ? maps / sources.sets : kind == MapSet::channel ? maps / channels : channels;
  }
  [[nodiscard]] constexpr int64_t count_of(MapSet kind) const { return maps / size_of(kind); }
  /// The set of a map, and map `i` of a set.
  [[nodiscard]] constexpr int64_t set_of(MapSet kind, int64_t map) const {
    return kind == MapSet::channel ? map % channels : map / size_of(kind);
  }
  [[nodiscard]] constexpr int64_t member(MapSet kind, int64_t set, int64_t i) const {
    return kind == MapSet::channel ? i * channels + set : set * size_of(kind) + i;
  }
};

/// The column of one map in an array of (rows, maps), which may be null.
template <class T>
struct MapColumn {
  T* first;
  int64_t maps;

  constexpr MapColumn(T* array, int64_t map_count, int64_t map)
      : first(array == nullptr ? nullptr : array + map), maps(map_count) {}
  constexpr double operator[](int64_t row) const { return first[row * maps]; }
  constexpr void set(int64_t row, double value) const { first[row * maps] = static_cast<T>(value); }
};

/// The rows of MapArrays::through_stats.
enum ThroughStatsRow : int { kMean, kMeanLow, kRstd, kBy, kShift };

/// The terms of a map that come through its stats.
struct ThroughStats {
  double mean = 0;
  double mean_low = 0;
  double rstd;
  double by;
  double shift = 0;

  template <class T>
  constexpr void write(const MapColumn<T>& to) const {
    to.set(kMean, mean);
    to.set(kMeanLow, mean_low);
    to.set(kRstd, rstd);
    to.set(kBy, by);
    to.set(kShift, shift);
  }
};

// Each struct below has
//   numbers(m, map, response, to): the numbers of a map;
//   finish(m, map, response, total, sums, to): through_stats, and the sums in the form of the parameters' gradients;
//   kGradientRows: the rows of those sums, one for each parameter; -1: there is no such parameter.
// If kResponses is a set, `response` is the total of response() over its maps. If kTotals is one, `total` is that of
// share(), from sums that are not finished yet.

/// The common case: no totals, and parameters with a number for each channel. The first kOfAll parameters are one
/// number each, whose gradient is a sum over all maps.
struct CommonNumbers {
  static constexpr int kOfAll = 0;
  static constexpr MapSet kResponses = MapSet::none;
  static constexpr MapSet kTotals = MapSet::none;

  template <class T>
  static constexpr double response(const Maps<T>&, int64_t) {
    return 0;
  }
  template <class T>
  static constexpr double share(const Maps<T>&, int64_t, double, const MapColumn<double>&) {
    return 0;
  }
};

/// Filter response norm with its threshold.
struct ThresholdNumbers : CommonNumbers {
  static constexpr int kGradientRows[kMaxMapParameters] = {1, 0, 2, -1};

  template <class T>
  static constexpr void numbers(const Maps<T>& m, int64_t map, double, const MapColumn<T>& to) {
    to.set(0, m.stat(kRstdRow, map));
    to.set(1, m.parameter(0, map, 1));
    to.set(2, m.parameter(1, map, 0));
    to.set(3, m.parameter(2, map, 0));
  }
  /// With g = dz * weight where z > tau, and xhat = x * rstd: dx = rstd * (g - xhat * mean(g * xhat))
  template <class T>
  static constexpr void finish(const Maps<T>& m, int64_t map, double, double, const MapColumn<double>& sums,
                               const MapColumn<T>& to) {
    const double rstd = m.stat(kRstdRow, map);
    ThroughStats{.rstd = rstd, .by = -rstd * m.parameter(0, map, 1) * sums[1] / m.pixels}.write(to);
  }
};

/// EvoNorm S0.
struct GateNumbers : CommonNumbers {
  static constexpr int kGradientRows[kMaxMapParameters] = {2, 1, 0, -1};
  static constexpr MapSet kTotals = MapSet::group;

  template <class T>
  static constexpr void numbers(const Maps<T>& m, int64_t map, double, const MapColumn<T>& to) {
    to.set(0, m.parameter(0, map, 1));
    to.set(1, m.stat(kRstdRow, m.set_of(MapSet::group, map)));
    to.set(2, m.parameter(1, map, 1));
    to.set(3, m.parameter(2, map, 0));
  }
  template <class T>
  static constexpr double share(const Maps<T>& m, int64_t map, double, const MapColumn<double>& sums) {
    return m.parameter(1, map, 1) * sums[1];
  }
  /// y - bias = f * rstd, so rstd = (var + eps)^-1/2 adds
  ///   dx = -rstd * mean of the group of dy * (y - bias) * (x - centre) * rstd
  template <class T>
  static constexpr void finish(const Maps<T>& m, int64_t map, double, double total, const MapColumn<double>& sums,
                               const MapColumn<T>& to) {
    const int64_t group = m.set_of(MapSet::group, map);
    const double elements = static_cast<double>(m.size_of(MapSet::group)) * m.pixels;
    sums.set(2, sums[2] * m.parameter(1, map, 1));
    const double rstd = m.stat(kRstdRow, group);
    ThroughStats{.mean = m.stat(kMeanRow, group),
                 .mean_low = m.stat(kMeanLowRow, group),
                 .rstd = rstd,
                 .by = -rstd * total / elements}
        .write(to);
  }
};

/// EvoNorm B0.
struct EvoNumbers : CommonNumbers {
  static constexpr int kGradientRows[kMaxMapParameters] = {2, 1, 0, -1};
  static constexpr MapSet kTotals = MapSet::channel;

  template <class T>
  static constexpr double map_root(const Maps<T>& m, int64_t map) {
    return 1 / m.stat(kRstdRow, map);
  }
  template <class T>
  static constexpr double batch_root(const Maps<T>& m, int64_t map) {
    return 1 / m.channel_stat(kRstdRow, map);
  }

  template <class T>
  static constexpr void numbers(const Maps<T>& m, int64_t map, double, const MapColumn<T>& to) {
    to.set(0, m.parameter(0, map, 1));
    to.set(1, map_root(m, map));
    to.set(2, batch_root(m, map));
    to.set(3, m.parameter(1, map, 1));
    to.set(4, m.parameter(2, map, 0));
  }
  template <class T>
  static constexpr double share(const Maps<T>& m, int64_t map, double, const MapColumn<double>& sums) {
    return sums[4] * -m.parameter(1, map, 1);
  }
  /// root = sqrt(var + eps), so dx = droot / (root * n) * (x - mean) for each of the two roots. Their means differ: (x
  /// - mean of the batch) = (x - mean of the map) + (mean of the map - mean of the batch).
  template <class T>
  static constexpr void finish(const Maps<T>& m, int64_t map, double, double total, const MapColumn<double>& sums,
                               const MapColumn<T>& to) {
    const double weight = m.parameter(1, map, 1);
    for (int64_t k = 2; k < 5; ++k) {
      sums.set(k, sums[k] * -weight);
    }
    double by = sums[3] / m.pixels;
    double shift = 0;
    const double mean = m.stat(kMeanRow, map);
    const double mean_low = m.stat(kMeanLowRow, map);
    if (!m.sources.fixed_stats) {
      const auto images = static_cast<double>(m.size_of(MapSet::channel));
      const double through_batch = total / (batch_root(m, map) * m.pixels * images);
      by += through_batch * map_root(m, map);
      shift = through_batch * ((mean - m.channel_stat(kMeanRow, map)) + (mean_low - m.channel_stat(kMeanLowRow, map)));
    }
    // rstd is kept apart, since 1 / root² need not fit T.
    ThroughStats{.mean = mean, .mean_low = mean_low, .rstd = m.stat(kRstdRow, map), .by = by, .shift = shift}.write(to);
  }
};

/// Global response norm: g = sqrt(sum of x²) of each map, n = g / (mean of g over the channels + eps).
struct AffineNumbers : CommonNumbers {
  static constexpr int kGradientRows[kMaxMapParameters] = {1, 0, -1, -1};
  static constexpr MapSet kResponses = MapSet::image;
  static constexpr MapSet kTotals = MapSet::image;

  /// g
  template <class T>
  static constexpr double response(const Maps<T>& m, int64_t map) {
    return std::sqrt(m.pixels) / m.stat(kRstdRow, map);  // rstd is 1 / sqrt(mean of x²)
  }
  template <class T>
  static constexpr double mean(const Maps<T>& m, double response) {
    return response / static_cast<double>(m.channels) + m.sources.eps;
  }
  /// 1 / g, or 0 for a map of zeros, which has no gradient through g.
  static constexpr double inverse(double g) { return g == 0 ? 0 : 1 / g; }

  template <class T>
  static constexpr void numbers(const Maps<T>& m, int64_t map, double total_response, const MapColumn<T>& to) {
    const double g = response(m, map);
    to.set(0, 1 + m.parameter(0, map, 1) * (g / mean(m, total_response)));
    to.set(1, m.parameter(1, map, 0));
    to.set(2, inverse(g));
  }
  /// dn = weight * sum(dy * x); the sums hold dy * x / g.
  template <class T>
  static constexpr double dn(const Maps<T>& m, int64_t map, const MapColumn<double>& sums) {
    return sums[1] * (m.parameter(0, map, 1) * response(m, map));
  }
  template <class T>
  static constexpr double share(const Maps<T>& m, int64_t map, double total_response, const MapColumn<double>& sums) {
    return dn(m, map, sums) * (response(m, map) / mean(m, total_response));
  }
  /// dg = (dn - mean over the channels of dn * n) / mean of g;  dx = dy * scale + x / g * dg
  template <class T>
  static constexpr void finish(const Maps<T>& m, int64_t map, double total_response, double total,
                               const MapColumn<double>& sums, const MapColumn<T>& to) {
    const double g = response(m, map);
    const double mean_response = mean(m, total_response);
    const double by = (dn(m, map, sums) - total / static_cast<double>(m.channels)) / mean_response;
    ThroughStats{.rstd = inverse(g), .by = by}.write(to);
    sums.set(1, sums[1] * (g * (g / mean_response)));
  }
};

/// Dynamic tanh, whose alpha is one number.
struct TanhNumbers : CommonNumbers {
  static constexpr int kOfAll = 1;
  static constexpr int kGradientRows[kMaxMapParameters] = {2, 1, 0, -1};

  template <class T>
  static constexpr void numbers(const Maps<T>& m, int64_t map, double, const MapColumn<T>& to) {
    to.set(0, *m.sources.parameters[0]);
    to.set(1, m.parameter(1, map, 1));
    to.set(2, m.parameter(2, map, 0));
  }
  template <class T>
  static constexpr void finish(const Maps<T>& m, int64_t map, double, double, const MapColumn<double>& sums,
                               const MapColumn<T>&) {
    sums.set(2, sums[2] * m.parameter(1, map, 1));
  }
};

/// Dynamic erf, whose alpha and shift are one number each.
struct ErfNumbers : CommonNumbers {
  static constexpr int kOfAll = 2;
  static constexpr int kGradientRows[kMaxMapParameters] = {3, 2, 1, 0};

  /// 2 / sqrt(pi) * weight
  template <class T>
  static constexpr double steepness(const Maps<T>& m, int64_t map) {
    return 2 * std::numbers::inv_sqrtpi * m.parameter(2, map, 1);
  }
  template <class T>
  static constexpr void numbers(const Maps<T>& m, int64_t map, double, const MapColumn<T>& to) {
    const double alpha = *m.sources.parameters[0];
    to.set(0, alpha);
    to.set(1, *m.sources.parameters[1]);
    to.set(2, m.parameter(2, map, 1));
    to.set(3, m.parameter(3, map, 0));
    to.set(4, alpha * steepness(m, map));
  }
  template <class T>
  static constexpr void finish(const Maps<T>& m, int64_t map, double, double, const MapColumn<double>& sums,
                               const MapColumn<T>&) {
    sums.set(2, sums[2] * steepness(m, map));
    sums.set(3, sums[3] * steepness(m, map));
  }
};

/// Calls f(formulas, maps) for the function of a problem and the dtype of its computation.
template <class F>
void with_map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, F&& f) {
  const auto with = [&](auto formulas) {
    dtype == DType::float64 ? f(formulas, Maps<double>(problem, sources)) : f(formulas, Maps<float>(problem, sources));
  };
  switch (problem.function) {
    case MapFunction::threshold: return with(ThresholdNumbers{});
    case MapFunction::gate: return with(GateNumbers{});
    case MapFunction::evo: return with(EvoNumbers{});
    case MapFunction::affine: return with(AffineNumbers{});
    case MapFunction::tanh: return with(TanhNumbers{});
    case MapFunction::erf: return with(ErfNumbers{});
  }
}

}  // namespace norma::kernels
