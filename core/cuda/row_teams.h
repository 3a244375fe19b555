#pragma once

#include "core/cuda/teams.h"

#include <algorithm>

// The plan by which threads share rows.

namespace norma::kernels::NORMA_BACKEND {

/// `lanes` lanes of a warp for each row, or a block for each where lanes is 0.
struct RowTeams {
  int lanes = 0;
  int threads = 0;  ///< of a block
  int64_t blocks = 0;
};

/// For rows of `length` elements. `side_by_side`: neighbouring rows lie nearer to each other than the elements of a row
/// do, so that threads with a row each read neighbouring memory.
inline RowTeams teams_of_rows(int64_t rows, int64_t length, bool side_by_side) {
  constexpr int kThreads = 128;
  constexpr int kBlockThreads = 256;
  constexpr int64_t kFewElements = 32;     // of a row that a thread has for itself
  constexpr int64_t kManyRows = 8192;      // that fill the device, a thread each
  constexpr int64_t kLaneElements = 4;     // of a row, for each of its lanes
  constexpr int64_t kWarpElements = 2048;  // of a row, for one warp
  const bool by_thread = side_by_side && (length <= kFewElements || rows >= kManyRows);
  if (!by_thread && length > kWarpElements) {
    return {.lanes = 0, .threads = kBlockThreads, .blocks = std::min(rows, int64_t{processors()} * 16)};
  }
  int lanes = 1;
  while (!by_thread && lanes < kWarp && lanes * kLaneElements < length) {
    lanes *= 2;
  }
  const int threads = threads_for(rows * lanes, kThreads);
  return {.lanes = lanes, .threads = threads, .blocks = blocks_for(rows * lanes, threads)};
}

/// Calls f(team, row, there) for the rows that this thread takes part in. A thread without a row goes along with its
/// warp, for the shuffles: its `there` is false, and its row is the last.
template <bool by_block, class F>
NORMA_DEVICE void for_each_row(int64_t rows, int lanes, F&& f) {
  const auto team = row_team<by_block>(lanes);
  const int64_t rows_of_block = threads() / team.size();
  for (int64_t first = block() * rows_of_block; first < rows; first += blocks() * rows_of_block) {
    const int64_t wanted = first + thread() / team.size();
    const bool there = wanted < rows;
    f(team, there ? wanted : rows - 1, there);
  }
}

/// Calls f(by_block, teams, shared_bytes) with a constant that says whether a row has a block.
template <class F>
void with_row_teams(const RowTeams& teams, F&& f) {
  if (teams.lanes == 0) {
    f(std::true_type{}, teams, BlockTeam::kBytes);
  } else {
    f(std::false_type{}, teams, size_t{0});
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
