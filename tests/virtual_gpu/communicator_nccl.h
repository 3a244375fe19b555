#pragma once

#include "virtual_gpu/mailbox_nccl.h"

#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace virtual_gpu {

/// A message of a group: it is sent to another rank, or received from it.
struct Transfer {
  bool is_sent = false;
  int peer = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  ///< of the messages from the one rank to the other
};

/// The state behind one ncclComm_t that answers at once (ncclConfig_t::blocking = 0). As NCCL does, it says now and
/// then that a call is in progress, and then the call's work has not begun: no stream has it.
///
/// NORMA_VIRTUAL_NCCL_FAULT=1:3:kill has rank 1 fail at its third group of messages; the group 0 is the beginning of
/// the communicator, and the number behind the last group is its end. Several faults have commas between them. The
/// fault is one of
/// - kill, stop: the process gets SIGKILL or SIGSTOP
/// - call: the call answers ncclSystemError
/// - work: the work in the stream never ends, and ncclCommGetAsyncError tells ncclRemoteError
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const std::string& folder, int rank, int ranks, int device, uint64_t seed);

  /// What ncclCommGetAsyncError tells.
  ncclResult_t state();
  /// Whether calls may be made: none is in progress, and there was no error.
  [[nodiscard]] bool is_free() const { return under_way_ == nullptr && error_ == ncclSuccess; }
  [[nodiscard]] const std::string& error_text() const { return error_text_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

  /// Waits for all ranks. Throws nothing; ncclInvalidUsage where two of them have the same GPU.
  ncclResult_t join();
  /// Gives a stream the messages of a group.
  ncclResult_t exchange(std::vector<Transfer> transfers, cudaStream_t stream);
  /// Done when all ranks have called it.
  ncclResult_t finalize();
  [[nodiscard]] bool is_finalized() const { return finalized_; }
  /// Ends the work that streams have: what it would have received is noise.
  void abort() { aborted_ = true; }
  [[nodiscard]] bool is_aborted() const { return aborted_; }
  void fail(ncclResult_t error, const std::string& text);

  Mailbox mailbox;

 private:
  /// Goes on with a call: `work` is asked until it is true, and at times not at once.
  ncclResult_t begin(std::function<bool()> work);
  /// Carries out the fault that is planned for a group; true for one of its work.
  bool fail_as_planned(uint64_t group);

  int rank_;
  int ranks_;
  int device_;
  std::mt19937_64 random_;
  std::map<uint64_t, std::string> planned_faults_;
  uint64_t groups_ = 0;
  std::map<int, uint64_t> sent_;  // messages, by the other rank
  std::map<int, uint64_t> received_;
  std::function<bool()> under_way_;
  int answers_left_ = 0;  // "in progress", before under_way_ is asked
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
  bool finalized_ = false;
  bool aborted_ = false;
};

}  // namespace virtual_gpu
