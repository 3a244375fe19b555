#include "parallel/exchange_mpi.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <limits>
#include <thread>

namespace norma::parallel {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMessageTag = 1;
constexpr int kFarewellTag = 2;
constexpr const char* kSilentEnd = "has ended without a word";
constexpr size_t kMostBytes = std::numeric_limits<int>::max();  // that MPI counts in one message

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_mpi(int status, std::string_view call) {
  if (status != MPI_SUCCESS) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(status, text.data(), &length);
    fail("mpi", "{}: {}", call, std::string_view(text.data(), static_cast<size_t>(length)));
  }
}

}  // namespace

Exchange::Exchange(const ProcessGroupOptions& options) : options_(options) {
  int given = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  for (MPI_Comm* comm : {&messages_, &farewells_}) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  }
  const Peer self = Peer::self();
  peers_.resize(static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(&self, sizeof self, MPI_BYTE, peers_.data(), sizeof self, MPI_BYTE, messages_),
            "MPI_Allgather");
  left_.resize(peers_.size());
}

Exchange::~Exchange() {
  if (!broken_) {
    MPI_Finalize();
  }
}

void Exchange::run(std::span<const Piece> sent, std::span<const Piece> received) {
  std::vector<MPI_Request> requests;
  std::vector<int> ranks;
  const auto start = [&](std::span<const Piece> pieces, auto call, std::string_view name) {
    for (const Piece& piece : pieces) {
      if (piece.bytes > 0) {
        check(piece.bytes <= kMostBytes, "mpi", "expected messages below 2 GiB, got {} bytes", piece.bytes);
        check_mpi(call(piece.memory, static_cast<int>(piece.bytes), MPI_BYTE, piece.rank, kMessageTag, messages_,
                       &requests.emplace_back()),
                  name);
        ranks.push_back(piece.rank);
      }
    }
  };
  start(received, MPI_Irecv, "MPI_Irecv");
  start(sent, MPI_Isend, "MPI_Isend");
  wait_for(requests, ranks);
}

void Exchange::wait_for(std::vector<MPI_Request>& requests, const std::vector<int>& ranks) {
  // Asking costs a processor, which may have other work to do: the steps of this process and of others. So the thread
  // sleeps between two questions, except at the start, when the answer is most likely near.
  // Farewells count only where a message stays out: a rank that leaves for an error that all have found sent its part.
  constexpr double kEagerSeconds = 2e-3;
  constexpr double kLookSeconds = 0.1;
  constexpr auto kNap = std::chrono::microseconds(50);
  const Clock::time_point start = Clock::now();
  double next_look = kLookSeconds;
  while (true) {
    int done = 0;
    // The statuses are ignored: a rank that is lost shows in what follows.
    const int status = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    const double seconds = seconds_since(start);
    if (status != MPI_SUCCESS) {
      look_for_debtors(requests, ranks, seconds);
      broken_ = true;
      check_mpi(status, "a message");
    }
    if (done != 0) {
      return;
    }
    if (seconds > next_look) {
      next_look = seconds + kLookSeconds;
      look_for_debtors(requests, ranks, seconds);
    }
    if (waiting.load(std::memory_order_relaxed) > 0 && seconds < kEagerSeconds) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void Exchange::take_farewells() {
  while (true) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kFarewellTag, farewells_, &there, &status) != MPI_SUCCESS || there == 0) {
      return;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string text(static_cast<size_t>(bytes), '\0');
    MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kFarewellTag, farewells_, MPI_STATUS_IGNORE);
    left_.at(static_cast<size_t>(status.MPI_SOURCE)) = text;
  }
}

void Exchange::look_for_farewells() {
  take_farewells();
  const auto left = std::ranges::find_if(left_, [](const std::string& text) { return !text.empty(); });
  if (left != left_.end()) {
    broken_ = true;
    // One that itself was told of another passes that on.
    throw PeerError(left->starts_with("rank ") ? *left : fmt::format("rank {}: {}", left - left_.begin(), *left));
  }
}

void Exchange::look_for_lost(double seconds) {
  look_for_farewells();
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      look_for(rank, /* owes= */ false, seconds);
    }
  }
}

void Exchange::look_for_debtors(const std::vector<MPI_Request>& requests, const std::vector<int>& ranks,
                                double seconds) {
  look_for_farewells();
  if (seconds > options_.timeout) {
    look_for_lost(seconds);  // one that owes a message may itself wait for one that is stopped
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] != MPI_REQUEST_NULL) {
      look_for(ranks[i], /* owes= */ true, seconds);
    }
  }
}

void Exchange::look_for(int rank, bool owes, double seconds) {
  const PeerState state = state_of(peers_[static_cast<size_t>(rank)], peers_[static_cast<size_t>(rank_)]);
  if (state == PeerState::gone) {
    take_farewells();  // its last word may have come since
    if (left_[static_cast<size_t>(rank)].empty()) {
      lose(rank, kSilentEnd);
    }
    look_for_farewells();
  }
  const bool is_stopped = state == PeerState::stopped;
  if (seconds > options_.timeout && (owes || is_stopped)) {
    lose(rank, fmt::format("has said nothing for {:.0f} s (--timeout){}", options_.timeout,
                           is_stopped ? ": it is stopped" : ""));
  }
}

std::string Exchange::find_lost() {
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (rank != rank_ && state_of(peer, peers_[static_cast<size_t>(rank_)]) == PeerState::gone) {
      take_farewells();
      if (left_[static_cast<size_t>(rank)].empty()) {
        return lost_text(rank, kSilentEnd);
      }
    }
  }
  return "";
}

std::string Exchange::lost_text(int rank, const std::string& reason) const {
  return fmt::format("rank {} ({}) {}", rank, peers_[static_cast<size_t>(rank)].text(), reason);
}

void Exchange::lose(int rank, const std::string& reason) {
  broken_ = true;
  throw PeerError(lost_text(rank, reason));
}

std::vector<std::string> Exchange::leave(std::string_view text) {
  // Seconds in which the others, too, may end. Where one is lost, mpirun is about to end them all.
  const double linger = broken_ ? 0.3 : 2;
  sent_.assign(peers_.size(), std::string(text.empty() ? "an error without a text" : text));
  std::vector<MPI_Request> requests;
  for (int rank = 0; rank < size_; ++rank) {
    const std::string& own = sent_[static_cast<size_t>(rank)];
    if (rank != rank_) {
      MPI_Isend(own.data(), static_cast<int>(std::min(own.size(), kMostBytes)), MPI_BYTE, rank, kFarewellTag,
                farewells_, &requests.emplace_back());
    }
  }
  left_[static_cast<size_t>(rank_)] = sent_[0];
  const Clock::time_point start = Clock::now();
  bool all_left = false;
  int sent = 0;
  while (seconds_since(start) < linger && (!all_left || sent == 0)) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &sent, MPI_STATUSES_IGNORE);
    take_farewells();
    all_left = std::ranges::none_of(left_, &std::string::empty);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  broken_ = broken_ || !all_left || sent == 0;
  return left_;
}

}  // namespace norma::parallel
