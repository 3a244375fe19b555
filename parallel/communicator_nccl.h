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

/// A communicator of NCCL for the current device, and the stream of its work. It is non-blocking: NCCL's calls return
/// at once, and while one is in progress, `look` is called again and again, so that no call waits for ever. An error of
/// NCCL, or an exception from `look`, aborts the communicator; its work on the GPU then ends with undefined results.
class Communicator {
 public:
  /// All ranks of `host` construct one together. `look` gets the seconds that the call has waited.
  Communicator(ProcessGroup& host, std::function<void(double seconds)> look);
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] const cuda::Stream& stream() const { return stream_; }
  /// Queues on the stream the sends and receives of these, all at the same time.
  void exchange(std::span<const Part> sent, std::span<const Part> received);
  /// Throws Error if work on the stream has failed.
  void check_work();
  /// Waits until all work is done, and the others have what this rank has sent. Nothing but the destructor may follow.
  void close();
  void abort();

 private:
  /// Waits until a call is no longer in progress; `result` is what it has returned.
  void wait_for(ncclResult_t result, const char* call);
  [[noreturn]] void fail(ncclResult_t result, const char* call);

  ProcessGroup& host_;
  std::function<void(double)> look_;
  cuda::Stream stream_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace norma::parallel
