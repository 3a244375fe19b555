#pragma once

#include "parallel/peers.h"
#include "parallel/process_group.h"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace norma::parallel {

/// Memory that goes to, or comes from, a rank.
struct Piece {
  int rank = 0;
  void* memory = nullptr;
  size_t bytes = 0;
};

/// Point-to-point messages between the processes of MPI_COMM_WORLD, so that a rank knows whose message is missing. The
/// constructor starts MPI; all calls come from the thread that has constructed it.
class Exchange {
 public:
  explicit Exchange(const ProcessGroupOptions& options);
  /// Calls MPI_Finalize(), unless a rank is lost, for which that could wait for ever.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Sends and receives until all is done. Each rank's next message to this one is the one that is expected here.
  /// Throws PeerError for a lost rank, and Error for a piece of 2 GiB or more.
  void run(std::span<const Piece> sent, std::span<const Piece> received);
  /// See ProcessGroupOptions::on_lost; "" where no rank is lost.
  std::string find_lost();
  /// See ProcessGroup::look_for_lost() and leave().
  void look_for_lost(double seconds);
  std::vector<std::string> leave(std::string_view text);

  /// The number of threads that wait for this one. If there are any, it polls for messages without pause at first.
  std::atomic<int> waiting = 0;

 private:
  /// ranks[i] is the other side of requests[i].
  void wait_for(std::vector<MPI_Request>& requests, const std::vector<int>& ranks);
  void look_for_debtors(const std::vector<MPI_Request>& requests, const std::vector<int>& ranks, double seconds);
  /// Throws PeerError where a rank has left.
  void look_for_farewells();
  /// Throws PeerError where this rank has left or its process has ended. After the timeout, also where it `owes` a
  /// message or its process is stopped.
  void look_for(int rank, bool owes, double seconds);
  /// Receives the farewells that have come.
  void take_farewells();
  [[nodiscard]] std::string lost_text(int rank, const std::string& reason) const;
  [[noreturn]] void lose(int rank, const std::string& reason);

  ProcessGroupOptions options_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm farewells_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<Peer> peers_;
  std::vector<std::string> left_;  // what each rank left with; "" where it has not
  std::vector<std::string> sent_;  // farewells under way
  bool broken_ = false;
};

}  // namespace norma::parallel
