#include "ops/map_norm/numbers.h"
#include "core/cpu/scratch.h"
#include "ops/map_norm/cpu/map_kernels.h"

#include <algorithm>
#include <numeric>

// The work done once for each map, in double and in plain loops.

namespace norma::kernels::cpu {

namespace {

/// The totals of f(map) over the maps of each set; null if there are none.
template <MapSet kind, class T, class F>
const double* totals_of(const Maps<T>& m, Scratch& scratch, F&& f) {
  if constexpr (kind == MapSet::none) {
    return nullptr;
  } else {
    double* totals = scratch.take<double>(m.count_of(kind));
    for (int64_t set = 0; set < m.count_of(kind); ++set) {
      totals[set] = 0;
      for (int64_t i = 0; i < m.size_of(kind); ++i) {
        totals[set] += f(m.member(kind, set, i));
      }
    }
    return totals;
  }
}
template <MapSet kind, class T>
double total_of(const Maps<T>& m, const double* totals, int64_t map) {
  return kind == MapSet::none ? 0 : totals[m.set_of(kind, map)];
}

template <class Formulas, class T>
const double* responses_of(const Maps<T>& m, Scratch& scratch) {
  return totals_of<Formulas::kResponses>(m, scratch, [&](int64_t map) { return Formulas::response(m, map); });
}

/// sums[c] = the sum of of_maps over the maps of channel c.
template <class T>
void over_maps(const Maps<T>& m, const double* of_maps, double* sums) {
  std::fill_n(sums, m.channels, 0.0);
  for (int64_t first = 0; first < m.maps; first += m.channels) {
    for (int64_t c = 0; c < m.channels; ++c) {
      sums[c] += of_maps[first + c];
    }
  }
}

}  // namespace

void map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    Scratch scratch;
    const double* responses = responses_of<Formulas>(m, scratch);
    for (int64_t map = 0; map < m.maps; ++map) {
      Formulas::numbers(m, map, total_of<Formulas::kResponses>(m, responses, map),
                        MapColumn<T>(static_cast<T*>(numbers), m.maps, map));
    }
  });
}

void map_numbers_backward(DType dtype, const MapProblem& problem, const MapSources& sources,
                          const MapNumbersBackward& arrays) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    Scratch scratch;
    const double* responses = responses_of<Formulas>(m, scratch);
    const auto response = [&](int64_t map) { return total_of<Formulas::kResponses>(m, responses, map); };
    const auto sums = [&](int64_t map) { return MapColumn<double>(arrays.sums, m.maps, map); };
    const double* totals = totals_of<Formulas::kTotals>(
        m, scratch, [&](int64_t map) { return Formulas::share(m, map, response(map), sums(map)); });
    for (int64_t map = 0; map < m.maps; ++map) {
      Formulas::finish(m, map, response(map), total_of<Formulas::kTotals>(m, totals, map), sums(map),
                       MapColumn<T>(static_cast<T*>(arrays.through_stats), m.maps, map));
    }
    for (int i = 0; i < kMaxMapParameters; ++i) {
      double* gradient = arrays.parameters[i];
      if (gradient == nullptr) {
        continue;
      }
      const double* of_maps = arrays.sums + Formulas::kGradientRows[i] * m.maps;
      if (i < Formulas::kOfAll) {
        *gradient = std::accumulate(of_maps, of_maps + m.maps, 0.0);
      } else {
        over_maps(m, of_maps, gradient);
      }
    }
  });
}

}  // namespace norma::kernels::cpu
