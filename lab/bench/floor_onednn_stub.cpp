#include "lab/bench/floor.h"

namespace norma::lab::bench {

std::vector<FloorCandidate> onednn_candidates(const ProductCall& /*call*/) {
  return {};
}

}  // namespace norma::lab::bench
