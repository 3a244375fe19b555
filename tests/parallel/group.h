#pragma once

#include "core/device.h"
#include "parallel/process_group.h"

#include <cstdlib>
#include <memory>

namespace norma::test {

/// The group of the processes that mpirun started with this one, or of one. MPI starts once in a process.
inline const std::shared_ptr<parallel::ProcessGroup>& host_group() {
  static const std::shared_ptr<parallel::ProcessGroup> all = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr
                                                                 ? parallel::make_mpi_group({.timeout = 60})
                                                                 : parallel::make_single_group();
  return all;
}

/// The same processes. With NORMA_DEVICE=cuda:N, which the tensors of the tests then have, they use NCCL.
inline parallel::ProcessGroup& group() {
  static const std::shared_ptr<parallel::ProcessGroup> all =
      host_group()->size() > 1 && default_device().type == DeviceType::cuda
          ? parallel::make_nccl_group(host_group(), {.timeout = 60})
          : host_group();
  return *all;
}

}  // namespace norma::test
