#pragma once

#include "core/cuda/row_teams.h"
#include "ops/map_norm/numbers.h"

// The work done once for each map: the formulas of ops/map_norm/numbers.h, with a thread for each map, and the totals
// that they need.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kMapNumberThreads = 256;

/// totals[set] = the total of Formulas::response() over its maps.
template <class Formulas, class T, bool by_block>
NORMA_KERNEL void add_responses(Maps<T> m, int lanes, double* totals) {
  constexpr MapSet kSet = Formulas::kResponses;
  for_each_row<by_block>(m.count_of(kSet), lanes, [&](const auto& team, int64_t set, bool there) {
    double total = 0;
    for (int64_t i = team.rank(); there && i < m.size_of(kSet); i += team.size()) {
      total += Formulas::response(m, m.member(kSet, set, i));
    }
    total = team.sum(total);
    if (there && team.rank() == 0) {
      totals[set] = total;
    }
  });
}

/// The total for a map; 0 if there are no totals.
template <MapSet kind, class T>
NORMA_DEVICE double total_of(const Maps<T>& m, const double* totals, int64_t map) {
  if constexpr (kind == MapSet::none) {
    return 0;
  } else {
    return totals[m.set_of(kind, map)];
  }
}

/// totals[set] = the total of Formulas::share() over its maps.
template <class Formulas, class T, bool by_block>
NORMA_KERNEL void add_shares(Maps<T> m, int lanes, const double* responses, double* sums, double* totals) {
  constexpr MapSet kSet = Formulas::kTotals;
  for_each_row<by_block>(m.count_of(kSet), lanes, [&](const auto& team, int64_t set, bool there) {
    double total = 0;
    for (int64_t i = team.rank(); there && i < m.size_of(kSet); i += team.size()) {
      const int64_t map = m.member(kSet, set, i);
      total += Formulas::share(m, map, total_of<Formulas::kResponses>(m, responses, map),
                               MapColumn<double>(sums, m.maps, map));
    }
    total = team.sum(total);
    if (there && team.rank() == 0) {
      totals[set] = total;
    }
  });
}

template <class Formulas, class T>
NORMA_KERNEL void make_numbers(Maps<T> m, const double* responses, T* numbers) {
  for (int64_t map = global_thread(); map < m.maps; map += global_threads()) {
    Formulas::numbers(m, map, total_of<Formulas::kResponses>(m, responses, map), MapColumn<T>(numbers, m.maps, map));
  }
}

template <class Formulas, class T>
NORMA_KERNEL void finish_sums(Maps<T> m, const double* responses, const double* totals, double* sums,
                              T* through_stats) {
  for (int64_t map = global_thread(); map < m.maps; map += global_threads()) {
    Formulas::finish(m, map, total_of<Formulas::kResponses>(m, responses, map),
                     total_of<Formulas::kTotals>(m, totals, map), MapColumn<double>(sums, m.maps, map),
                     MapColumn<T>(through_stats, m.maps, map));
  }
}

/// to[i] = the sum of x[i], x[i + step], … (`length` numbers).
template <bool by_block>
NORMA_KERNEL void add_with_step(int64_t count, int64_t length, int64_t step, int lanes, const double* x, double* to) {
  for_each_row<by_block>(count, lanes, [&](const auto& team, int64_t i, bool there) {
    double sum = 0;
    for (int64_t k = team.rank(); there && k < length; k += team.size()) {
      sum += x[i + k * step];
    }
    sum = team.sum(sum);
    if (there && team.rank() == 0) {
      to[i] = sum;
    }
  });
}

template <class T>
RowTeams teams_of(const Maps<T>& m, MapSet kind) {
  return teams_of_rows(m.count_of(kind), m.size_of(kind), /* side_by_side= */ kind == MapSet::channel);
}

/// The totals of the responses; empty if there are none.
template <class Formulas, class T>
class Responses {
 public:
  explicit Responses(const Maps<T>& m)
      : totals_(Formulas::kResponses == MapSet::none ? 0 : m.count_of(Formulas::kResponses)) {
    if constexpr (Formulas::kResponses != MapSet::none) {
      with_row_teams(teams_of(m, Formulas::kResponses), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
        launch(teams.blocks, teams.threads, shared_bytes, current_stream(), add_responses<Formulas, T, by_block>, m,
               teams.lanes, totals_.data());
      });
    }
  }
  /// The address, for kernels.
  [[nodiscard]] const double* data() const { return totals_.data(); }

 private:
  DeviceBuffer<double> totals_;
};

inline void map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    const Responses<Formulas, T> responses(m);
    launch(blocks_for(m.maps, kMapNumberThreads), threads_for(m.maps, kMapNumberThreads), 0, current_stream(),
           make_numbers<Formulas, T>, m, responses.data(), static_cast<T*>(numbers));
  });
}

inline void map_numbers_backward(DType dtype, const MapProblem& problem, const MapSources& sources,
                                 const MapNumbersBackward& arrays) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    constexpr MapSet kTotals = Formulas::kTotals;
    const Responses<Formulas, T> responses(m);
    const DeviceBuffer<double> totals(kTotals == MapSet::none ? 0 : m.count_of(kTotals));
    if constexpr (kTotals != MapSet::none) {
      with_row_teams(teams_of(m, kTotals), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
        launch(teams.blocks, teams.threads, shared_bytes, current_stream(), add_shares<Formulas, T, by_block>, m,
               teams.lanes, responses.data(), arrays.sums, totals.data());
      });
    }
    launch(blocks_for(m.maps, kMapNumberThreads), threads_for(m.maps, kMapNumberThreads), 0, current_stream(),
           finish_sums<Formulas, T>, m, responses.data(), totals.data(), arrays.sums,
           static_cast<T*>(arrays.through_stats));
    for (int i = 0; i < kMaxMapParameters; ++i) {
      if (arrays.parameters[i] == nullptr) {
        continue;
      }
      const bool of_all = i < Formulas::kOfAll;
      const int64_t count = of_all ? 1 : m.channels;
      const int64_t length = m.maps / count;
      const int64_t step = of_all ? 1 : m.channels;
      const RowTeams of_parameter = teams_of_rows(count, length, /* side_by_side= */ !of_all);
      with_row_teams(of_parameter, [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
        launch(teams.blocks, teams.threads, shared_bytes, current_stream(), add_with_step<by_block>, count, length,
               step, teams.lanes, arrays.sums + Formulas::kGradientRows[i] * m.maps, arrays.parameters[i]);
      });
    }
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
