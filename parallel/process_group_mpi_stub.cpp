#include "base/error.h"
#include "parallel/process_group.h"

namespace norma::parallel {

bool has_mpi() {
  return false;
}
std::string mpi_version() {
  return "";
}

std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& /* options */) {
  fail("mpi",
       "expected a build with MPI for several processes; install openmpi-bin and libopenmpi-dev, and build again");
}

}  // namespace norma::parallel
