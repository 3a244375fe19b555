#pragma once

#include "base/error.h"
#include "core/tensor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::parallel {

/// An operation of a group that is under way.
class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Returns when the host can read the results. For a tensor of a GPU it may return earlier: all work that the GPU is
  /// given afterwards has the results. Throws what went wrong; for a GPU the host's next wait for the GPU may throw
  /// that instead. Call it once.
  virtual void wait() = 0;
};

/// Processes, the ranks 0 to size() - 1, that do one piece of work together. All of them must call the same functions
/// in the same order. A function that waits for another rank throws PeerError where that rank has ended, has reported
/// an error, or sends nothing for as long as ProcessGroupOptions::timeout.
///
/// Not for calls from several threads at once.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] bool is_first() const { return rank() == 0; }

  /// Begins the sum of x over the ranks, which x has after wait(): ((x_0 + x_1) + x_2) + … in float64, rounded once, so
  /// that all ranks have the same bits in every run. x is dense, float32 or float64, else Error is thrown. Nobody may
  /// use x until then.
  [[nodiscard]] virtual std::unique_ptr<Work> begin_all_reduce(const Tensor& x) = 0;
  void all_reduce(const Tensor& x) { begin_all_reduce(x)->wait(); }
  /// Gives x, which is dense, the elements that x has on rank `root`.
  virtual void broadcast(const Tensor& x, int root = 0) = 0;
  /// The tensors of all ranks, which have one shape, along a new axis in front; contiguous.
  [[nodiscard]] virtual Tensor all_gather(const Tensor& x) = 0;
  /// The texts of all ranks, each of less than 2 GiB.
  [[nodiscard]] virtual std::vector<std::string> all_gather_text(std::string_view text) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;
  /// The seconds that this rank's messages have taken so far, waits for other ranks included, whether or not a caller
  /// waited meanwhile; 0 where they are not counted.
  [[nodiscard]] virtual double message_seconds() const { return 0; }

  /// Throws PeerError where another rank has left, or its process on this machine has ended; where `seconds` are more
  /// than the timeout, also where its process is stopped. For callers that wait for another rank by other means.
  virtual void look_for_lost(double seconds) = 0;

  /// Tells the others that this rank ends for an error: a function that waits for this rank throws PeerError "rank N:
  /// text" there. Waits a moment for the texts of the others, and returns those of all ranks; "" where none came. Only
  /// the destructor may follow.
  virtual std::vector<std::string> leave(std::string_view text) = 0;
};

/// Thrown for a fault of another rank, which the text names: "rank 2: …", "rank 2 (process 4711 on node3) has …".
class PeerError : public Error {
 public:
  using Error::Error;
};

struct ProcessGroupOptions {
  double timeout = 300;  ///< seconds of waiting for a rank's message after which the rank counts as lost
  /// Called, by another thread, when the process of a rank on this machine has ended without leave() and this rank
  /// waits for none. The next wait would throw PeerError with the same text, but mpirun may end this process before
  /// that. May be empty.
  std::function<void(const std::string& text)> on_lost = {};
};

/// A group of this process alone, whose functions never wait. all_gather() of a contiguous x is a view of x.
std::shared_ptr<ProcessGroup> make_single_group();

/// The group of the processes that mpirun, or srun with PMIx, started with this one; at most once in a process. Its
/// functions throw Error where one rank would have to send another 2 GiB or more at once. Throws Error where MPI is not
/// in this build.
std::shared_ptr<ProcessGroup> make_mpi_group(const ProcessGroupOptions& options = {});
/// False: make_mpi_group() throws.
bool has_mpi();
/// "Open MPI v4.1.4"; "" where MPI is not in this build.
std::string mpi_version();

/// A group of the ranks of `host` that sums, broadcasts and gathers tensors of GPUs by NCCL, from GPU to GPU, while the
/// GPU and the host do other work. All else is done by `host`. Each rank has one GPU, that of the first such tensor,
/// and no two ranks have the same. Sums have the bits of make_mpi_group(). While the host waits for the GPU, it looks
/// for lost ranks: any wait may throw PeerError, or Error "nccl: …". Throws Error where NCCL is not in this build.
std::shared_ptr<ProcessGroup> make_nccl_group(std::shared_ptr<ProcessGroup> host,
                                              const ProcessGroupOptions& options = {});
/// False: make_nccl_group() throws.
bool has_nccl();
/// "2.28.9"; "" where NCCL is not in this build.
std::string nccl_version();

/// Throws Error unless x is a dense tensor, whose elements lie side by side.
void check_dense(std::string_view op, const Tensor& x);
/// Throws Error unless x is dense, and float32 or float64, as begin_all_reduce() takes it.
void check_summand(const Tensor& x);
void check_root(int root, int ranks);

}  // namespace norma::parallel
