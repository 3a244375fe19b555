#pragma once

#include <nccl.h>

#include "core/cuda/runtime.h"
#include "parallel/process_group.h"

#include <cstddef>
#include <functional>
#include <span>

namespace norma::parallel {

/// Memory of this rank's GPU that goes to, or comes from, another rank.
struct Part {
  int rank = 0;
  void* memory = nullptr;
  size_t bytes = 0;
};

/// A communicator of NCCL for the current device, and the stream of its work. Its calls never wait without end: NCCL's
/// answer at once, and while one of them is in progress, `look` is called again and again. An error of NCCL, and what
/// `look` throws, ends the communicator: work that the GPU has of it ends with any result.
class Communicator {
 public:
  /// All ranks of `host` make one. `look` gets the seconds that the call has waited.
  Communicator(ProcessGroup& host, std::function<void(double seconds)> look);
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] const cuda::Stream& stream() const { return stream_; }
  /// Gives the stream the work to send and receive these at the same time.
  void exchange(std::span<const Part> sent, std::span<const Part> received);
  /// Throws the error of work under way.
  void check_work();
  /// Waits until all work is done, and the others have what this rank has sent. Nothing but the destructor may follow.
  void close();
  void abort();

 private:
  /// `result`: of a call that may be in progress.
  void wait_for(ncclResult_t result, const char* call);
  [[noreturn]] void fail(ncclResult_t result, const char* call);

  ProcessGroup& host_;
  std::function<void(double)> look_;
  cuda::Stream stream_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace norma::parallel
