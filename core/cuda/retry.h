#pragma once

namespace norma::cuda {

/// Returns the status of start(). Where failed(status) is true, calls release(), which gives cached memory back to the
/// device, and start() once more: CUDA needs memory for a kernel when it is first used, and for a graph. The allocator
/// may have left none.
template <class Start, class Failed, class Release>
auto start_with_memory(Start&& start, Failed&& failed, Release&& release) {
  auto status = start();
  if (failed(status)) {
    release();
    status = start();
  }
  return status;
}

}  // namespace norma::cuda
