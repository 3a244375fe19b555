#include "parallel/process_group.h"

#include <algorithm>

namespace norma::parallel {

Share share_of(int64_t total, int rank, int ranks) {
  const int64_t least = total / ranks;
  const int64_t more = total % ranks;
  return {.first = rank * least + std::min<int64_t>(rank, more), .count = least + (rank < more ? 1 : 0)};
}

}  // namespace norma::parallel
