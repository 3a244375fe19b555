#include "session/environment.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

namespace norma::train {

namespace {

const char* runtime_name(unsigned runtime) {
  switch (runtime) {
    case DNNL_RUNTIME_SEQ: return "sequential";
    case DNNL_RUNTIME_OMP: return "OpenMP";
    case DNNL_RUNTIME_TBB: return "TBB";
    case DNNL_RUNTIME_THREADPOOL: return "threadpool";
    default: return "unknown runtime";
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> compute_libraries() {
  const dnnl_version_t* version = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{} ({})", version->major, version->minor, version->patch,
                                 runtime_name(version->cpu_runtime))}};
}

}  // namespace norma::train
