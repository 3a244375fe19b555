#include "virtual_gpu/communicator_nccl.h"

#include "virtual_gpu/operand.h"
#include "virtual_gpu/runtime.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace virtual_gpu {

namespace {

/// The faults of a rank, by group.
std::map<uint64_t, std::string> planned_faults(int rank) {
  static const std::set<std::string> known{"kill", "stop", "call", "work"};
  const char* const text = std::getenv("NORMA_VIRTUAL_NCCL_FAULT");
  std::istringstream in(text == nullptr ? "" : text);
  std::map<uint64_t, std::string> result;
  for (std::string fault; std::getline(in, fault, ',');) {
    int of_rank = 0;
    uint64_t group = 0;
    char colon = 0;
    char second_colon = 0;
    std::string what;
    std::istringstream(fault) >> of_rank >> colon >> group >> second_colon >> what;
    if (colon != ':' || second_colon != ':' || !known.contains(what)) {
      std::fprintf(stderr, "virtual GPU: NORMA_VIRTUAL_NCCL_FAULT: expected 1:3:kill (or stop, call, work), got '%s'\n",
                   fault.c_str());
      std::_Exit(2);
    }
    if (of_rank == rank) {
      result[group] = what;
    }
  }
  return result;
}

/// The messages of a group, as work of a stream.
class Exchange {
 public:
  Exchange(std::shared_ptr<Communicator> communicator, std::vector<Transfer> transfers, bool never_ends)
      : communicator_(std::move(communicator)), transfers_(std::move(transfers)), never_ends_(never_ends) {
    received_.resize(transfers_.size());
  }

  /// Like a kernel of NCCL, it is done when the others, too, have come to it: what it sends has been taken.
  bool is_ready() {
    if (communicator_->is_aborted() || fault_) {
      return true;
    }
    if (never_ends_) {
      communicator_->fail(ncclRemoteError, "the connection was closed, as was asked for");
      return false;
    }
    try {
      return is_done();
    } catch (...) {
      fault_ = std::current_exception();
      return true;
    }
  }

  double finish() const {
    if (fault_) {
      std::rethrow_exception(fault_);
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& one = transfers_[i];
      if (!one.is_sent) {
        const bool is_here = received_[i].has_value() && !communicator_->is_aborted();
        write_bytes("ncclRecv", one.address, is_here ? *received_[i] : std::vector(one.bytes, std::byte{0xFF}));
      }
      bytes += one.bytes;
    }
    constexpr double kSeconds = 1e-5;  // of the virtual clock
    constexpr double kBytesPerSecond = 100e9;
    return kSeconds + static_cast<double>(bytes) / kBytesPerSecond;
  }

 private:
  bool is_done() {
    Mailbox& mailbox = communicator_->mailbox;
    bool done = true;
    for (size_t i = 0; i < transfers_.size(); ++i) {
      const Transfer& one = transfers_[i];
      if (one.is_sent) {
        if (!posted_) {
          mailbox.post(one.peer, one.number, read_bytes("ncclSend", one.address, one.bytes));
        }
        done = mailbox.is_taken(one.peer, one.number) && done;
      } else if (!received_[i]) {
        received_[i] = mailbox.take(one.peer, one.number);
        if (received_[i] && received_[i]->size() != one.bytes) {
          throw Fault(Fault::Kind::kUndefined,
                      fmt::format("ncclRecv: expected {} bytes from rank {}, as ncclRecv asks for, got a message of {}",
                                  one.bytes, one.peer, received_[i]->size()));
        }
        done = received_[i].has_value() && done;
      }
    }
    posted_ = true;
    return done;
  }

  std::shared_ptr<Communicator> communicator_;
  std::vector<Transfer> transfers_;
  bool never_ends_;
  bool posted_ = false;
  std::vector<std::optional<std::vector<std::byte>>> received_;
  std::exception_ptr fault_;
};

}  // namespace

Communicator::Communicator(const std::string& folder, int rank, int ranks, int device, uint64_t seed)
    : mailbox(folder, rank, ranks),
      rank_(rank),
      ranks_(ranks),
      device_(device),
      random_(seed + static_cast<uint64_t>(rank)),
      planned_faults_(planned_faults(rank)) {}

void Communicator::fail(ncclResult_t error, const std::string& text) {
  error_ = error;
  error_text_ = text;
}

ncclResult_t Communicator::state() {
  if (error_ == ncclSuccess && under_way_ != nullptr) {
    if (answers_left_ > 0) {
      --answers_left_;
    } else if (under_way_()) {
      under_way_ = nullptr;
    }
  }
  return error_ != ncclSuccess ? error_ : under_way_ != nullptr ? ncclInProgress : ncclSuccess;
}

ncclResult_t Communicator::begin(std::function<bool()> work) {
  under_way_ = std::move(work);
  answers_left_ = static_cast<int>(random_() % 3);
  return state();
}

bool Communicator::fail_as_planned(uint64_t group) {
  const auto found = planned_faults_.find(group);
  const std::string what = found == planned_faults_.end() ? "" : found->second;
  if (what == "kill" || what == "stop") {
    ::raise(what == "kill" ? SIGKILL : SIGSTOP);
  } else if (what == "call") {
    fail(ncclSystemError, "the call failed, as was asked for");
  }
  return what == "work";
}

ncclResult_t Communicator::join() {
  if (fail_as_planned(0)) {
    fail(ncclRemoteError, "the connection was closed, as was asked for");
  }
  mailbox.say("device", std::to_string(device_));
  return begin([this] {
    const std::vector<std::string> devices = mailbox.said("device");
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      for (size_t other = 0; other < rank; ++other) {
        if (devices[rank] == devices[other]) {
          fail(ncclInvalidUsage, fmt::format("Duplicate GPU detected : rank {} and rank {} both on CUDA device {}",
                                             other, rank, devices[rank]));
        }
      }
    }
    return !devices.empty();
  });
}

ncclResult_t Communicator::exchange(std::vector<Transfer> transfers, cudaStream_t stream) {
  const bool never_ends = fail_as_planned(++groups_);
  for (Transfer& one : transfers) {
    one.number = one.is_sent ? ++sent_[one.peer] : ++received_[one.peer];
  }
  Stream& found = Runtime::get().stream_for_work(stream);
  require_current(found, "ncclGroupEnd");
  const auto work = std::make_shared<Exchange>(shared_from_this(), std::move(transfers), never_ends);
  return begin([&found, work, what = fmt::format("the messages of group {} of NCCL", groups_)] {
    Runtime::get().streams.put(found, {.what = what,
                                       .begin = [work](Ticket) { return [work] { return work->finish(); }; },
                                       .is_ready = [work] { return work->is_ready(); }});
    return true;
  });
}

ncclResult_t Communicator::finalize() {
  (void)fail_as_planned(groups_ + 1);
  if (error_ != ncclSuccess) {
    return error_;
  }
  mailbox.say("finalized", "");
  return begin([this] {
    finalized_ = !mailbox.said("finalized").empty();
    return finalized_;
  });
}

}  // namespace virtual_gpu
