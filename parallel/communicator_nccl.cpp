#include "parallel/communicator_nccl.h"

#include "core/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace norma::parallel {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_error(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

/// The id that rank 0 makes for all.
ncclUniqueId common_id(ProcessGroup& host) {
  const Tensor bytes = zeros({NCCL_UNIQUE_ID_BYTES}, {.dtype = DType::uint8, .device = kCpu});
  auto* const id = static_cast<ncclUniqueId*>(bytes.device_pointer());
  if (host.is_first()) {
    const ncclResult_t result = ncclGetUniqueId(id);
    check(result == ncclSuccess, "nccl", "ncclGetUniqueId: {}", ncclGetErrorString(result));
  }
  host.broadcast(bytes);
  return *id;
}

}  // namespace

Communicator::Communicator(ProcessGroup& host, std::function<void(double)> look) : host_(host), look_(std::move(look)) {
  const ncclUniqueId id = common_id(host);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  wait_for(ncclCommInitRankConfig(&communicator_, host.size(), id, host.rank(), &config), "ncclCommInitRank");
}

void Communicator::exchange(std::span<const Part> sent, std::span<const Part> received) {
  check(communicator_ != nullptr, "nccl", "expected no work after an error, got some");
  const auto has_bytes = [](const Part& part) { return part.bytes > 0; };
  if (std::ranges::none_of(sent, has_bytes) && std::ranges::none_of(received, has_bytes)) {
    return;
  }
  ncclResult_t result = ncclGroupStart();
  const auto add = [&](std::span<const Part> parts, auto call) {
    for (const Part& part : parts) {
      if (!is_error(result) && has_bytes(part)) {
        result = call(part.memory, part.bytes, ncclUint8, part.rank, communicator_, stream_.get());
      }
    }
  };
  add(sent, ncclSend);
  add(received, ncclRecv);
  const ncclResult_t ended = ncclGroupEnd();
  wait_for(is_error(result) ? result : ended, "ncclSend and ncclRecv");
}

void Communicator::check_work() {
  ncclResult_t state = ncclSuccess;
  if (communicator_ == nullptr || ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) {
    return;
  }
  if (is_error(state)) {
    fail(state, "work of the GPU");
  }
}

void Communicator::close() {
  if (communicator_ != nullptr) {
    stream_.synchronize();
    wait_for(ncclCommFinalize(communicator_), "ncclCommFinalize");
    (void)ncclCommDestroy(std::exchange(communicator_, nullptr));
  }
}

void Communicator::abort() {
  if (communicator_ != nullptr) {
    (void)ncclCommAbort(std::exchange(communicator_, nullptr));
  }
}

void Communicator::wait_for(ncclResult_t result, const char* call) {
  constexpr auto kNap = std::chrono::microseconds(20);
  const Clock::time_point start = Clock::now();
  while (result == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
    result = asked == ncclSuccess ? result : asked;
    if (result == ncclInProgress) {
      try {
        look_(seconds_since(start));
      } catch (...) {
        abort();
        throw;
      }
      std::this_thread::sleep_for(kNap);
    }
  }
  if (result != ncclSuccess) {
    fail(result, call);
  }
}

void Communicator::fail(ncclResult_t result, const char* call) {
  std::string text = fmt::format("{}: {}", call, ncclGetErrorString(result));
  if (const std::string more = ncclGetLastError(communicator_); !more.empty()) {
    text += ": " + more.substr(0, more.find('\n'));
  }
  // Where another process is the reason, NCCL may see it first. A moment later its word is here, or it is known to be
  // gone. No other process is to blame for a wrong call.
  const double patience = result == ncclInvalidArgument || result == ncclInvalidUsage ? 0 : 1;
  constexpr auto kNap = std::chrono::milliseconds(50);
  try {
    for (const Clock::time_point start = Clock::now(); seconds_since(start) < patience;) {
      host_.look_for_lost(0);
      std::this_thread::sleep_for(kNap);
    }
  } catch (...) {
    abort();
    throw;
  }
  abort();
  norma::fail("nccl", "{}", text);
}

}  // namespace norma::parallel
