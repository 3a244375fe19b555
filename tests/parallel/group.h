#pragma once

#include "parallel/process_group.h"

#include <cstdlib>
#include <memory>

namespace norma::test {

/// The group of the processes that mpirun started with this one, or of one. MPI starts once in a process.
inline parallel::ProcessGroup& group() {
  static const std::shared_ptr<parallel::ProcessGroup> all = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr
                                                                 ? parallel::make_mpi_group({.timeout = 60})
                                                                 : parallel::make_single_group();
  return *all;
}

}  // namespace norma::test
