#include "base/error.h"
#include "parallel/process_group.h"

namespace norma::parallel {

bool has_nccl() {
  return false;
}
std::string nccl_version() {
  return "";
}

std::shared_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<ProcessGroup> /* host */,
                                              const ProcessGroupOptions& /* options */) {
  fail("nccl", "expected a build with NCCL, got one without; install libnccl-dev, and build with NORMA_CUDA=ON");
}

}  // namespace norma::parallel
