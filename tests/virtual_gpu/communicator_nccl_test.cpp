#include "virtual_gpu/communicator_nccl.h"
#include "virtual_gpu/test_library.h"

#include <array>
#include <filesystem>
#include <string>
#include <vector>

// NCCL's functions, with all ranks in this process: nothing of a communicator that answers at once waits.

using namespace virtual_gpu;
using namespace virtual_gpu::test;

namespace {

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  REQUIRE(ncclCommGetAsyncError(communicator, &state) == ncclSuccess);
  return state;
}

/// Numbers that every stream may read.
struct Numbers : DeviceNumbers {
  explicit Numbers(const std::vector<double>& values) : DeviceNumbers(NumberType::kFloat32, values) {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
};

/// A rank with a GPU and a stream of its own.
struct Rank {
  Rank(int number, int ranks, const ncclUniqueId& id, int of_device) : device(of_device) {
    current_device() = device;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    (void)ncclCommInitRankConfig(&communicator, ranks, id, number, &config);  // settled() tells
  }
  ~Rank() {
    if (communicator != nullptr) {
      CHECK(ncclCommAbort(communicator) == ncclSuccess);
    }
    CHECK(fault_of_work().empty());
    cudaStreamDestroy(stream);
    current_device() = 0;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Waits until the call that is in progress has ended.
  [[nodiscard]] ncclResult_t settled() const {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 100 && state == ncclInProgress; ++i) {
      state = state_of(communicator);
    }
    return state;
  }
  /// Sends some numbers, and receives others.
  [[nodiscard]] ncclResult_t trade(int other, const DeviceNumbers& sent, const DeviceNumbers& received) const {
    current_device() = device;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(sent.get(), sent.bytes(), ncclUint8, other, communicator, stream) == ncclSuccess);
    CHECK(ncclRecv(received.get(), received.bytes(), ncclUint8, other, communicator, stream) == ncclSuccess);
    const ncclResult_t ended = ncclGroupEnd();
    return ended == ncclInProgress ? settled() : ended;
  }

  int device;
  cudaStream_t stream = nullptr;
  ncclComm_t communicator = nullptr;
};

ncclUniqueId new_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

struct Two {
  ncclUniqueId id = new_id();
  Rank first{0, 2, id, 0};
  Rank second{1, 2, id, 1};
};

}  // namespace

TEST_CASE("virtual NCCL: messages come in the order of the groups, when both have come to them") {
  std::string folder;
  {
    Two two;
    folder = two.id.internal;
    CHECK(two.first.settled() == ncclSuccess);
    CHECK(two.second.settled() == ncclSuccess);
    const Numbers a(std::vector<double>{1, 2, 3});
    const Numbers b(std::vector<double>{4, 5, 6});
    const DeviceNumbers at_first(NumberType::kFloat32, 3);
    const DeviceNumbers at_second(NumberType::kFloat32, 3);
    CHECK(two.first.trade(1, a, at_first) == ncclSuccess);
    CHECK(two.first.trade(1, b, at_first) == ncclSuccess);
    for (int i = 0; i < 100; ++i) {
      CHECK(cudaStreamQuery(two.first.stream) == cudaErrorNotReady);
    }
    CHECK(cudaGetLastError() == cudaErrorNotReady);
    CHECK(two.second.trade(0, b, at_second) == ncclSuccess);
    CHECK(two.second.trade(0, a, at_second) == ncclSuccess);
    CHECK(at_first.values() == std::vector<double>{1, 2, 3});
    CHECK(at_second.values() == std::vector<double>{4, 5, 6});
    for (Rank* rank : {&two.first, &two.second}) {
      const ncclResult_t begun = ncclCommFinalize(rank->communicator);
      CHECK((begun == ncclSuccess || begun == ncclInProgress));
    }
    for (Rank* rank : {&two.first, &two.second}) {
      CHECK(rank->settled() == ncclSuccess);
      CHECK(ncclCommDestroy(rank->communicator) == ncclSuccess);
      rank->communicator = nullptr;
    }
  }
  CHECK_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("virtual NCCL: a call is in progress at times, and until then its work is in no stream") {
  int in_progress = 0;
  Two two;
  CHECK(two.first.settled() == ncclSuccess);
  CHECK(two.second.settled() == ncclSuccess);
  const Numbers sent(std::vector<double>{7});
  const DeviceNumbers received(NumberType::kFloat32, 1);
  for (int i = 0; i < 20; ++i) {
    CHECK(two.second.trade(0, sent, received) == ncclSuccess);
    current_device() = 0;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(sent.get(), 4, ncclUint8, 1, two.first.communicator, two.first.stream) == ncclSuccess);
    CHECK(ncclRecv(received.get(), 4, ncclUint8, 1, two.first.communicator, two.first.stream) == ncclSuccess);
    if (ncclGroupEnd() == ncclInProgress) {
      ++in_progress;
      CHECK(cudaStreamQuery(two.first.stream) == cudaSuccess);
      CHECK(ncclCommFinalize(two.first.communicator) == ncclInvalidArgument);
      CHECK(std::string(ncclGetLastError(two.first.communicator)) ==
            "Attempt to use communicator before the previous operation returned ncclSuccess");
      CHECK(two.first.settled() == ncclSuccess);
    }
    CHECK(fault_of_work().empty());
  }
  CHECK(in_progress > 5);
  CHECK(in_progress < 20);
}

TEST_CASE("virtual NCCL: two ranks with one GPU are refused") {
  const ncclUniqueId id = new_id();
  const Rank first(0, 2, id, 1);
  const Rank second(1, 2, id, 1);
  CHECK(first.settled() == ncclInvalidUsage);
  CHECK(second.settled() == ncclInvalidUsage);
  CHECK(std::string(ncclGetLastError(second.communicator)) ==
        "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1");
}

TEST_CASE("virtual NCCL: after ncclCommAbort its work ends, and a call with it is a fault") {
  Two two;
  CHECK(two.first.settled() == ncclSuccess);
  CHECK(two.second.settled() == ncclSuccess);
  const Numbers sent(std::vector<double>{7});
  const DeviceNumbers received(NumberType::kFloat32, 1);
  CHECK(two.first.trade(1, sent, received) == ncclSuccess);
  ncclComm_t gone = std::exchange(two.first.communicator, nullptr);
  CHECK(ncclCommAbort(gone) == ncclSuccess);
  CHECK(fault_of_work().empty());  // it comes to an end
  CHECK(received.written_bytes() == 4);
  CHECK(ncclCommAbort(gone) == ncclInternalError);
  CHECK(fault_of_work() == "ncclCommAbort: expected a communicator, got one that was destroyed");
}

TEST_CASE("virtual NCCL: memory that is not the device's, or was never written, and lengths that differ are faults") {
  const Numbers four(std::vector<double>{1, 2, 3, 4});
  const DeviceNumbers room(NumberType::kFloat32, 4);
  const auto fault_of = [&](const DeviceNumbers& sent, const DeviceNumbers& received) {
    Two two;
    CHECK(two.first.settled() == ncclSuccess);
    CHECK(two.second.settled() == ncclSuccess);
    CHECK(two.first.trade(1, sent, received) == ncclSuccess);
    CHECK(two.second.trade(0, four, room) == ncclSuccess);
    return fault_of_work();
  };
  const Numbers three(std::vector<double>{1, 2, 3});
  const DeviceNumbers unwritten(NumberType::kFloat32, 4);
  CHECK(fault_of(four, unwritten).empty());
  CHECK(fault_of(three, room)
            .find("ncclRecv: expected 16 bytes from rank 0, as ncclRecv asks for, got a message of 12") !=
        std::string::npos);
  const DeviceNumbers never(NumberType::kFloat32, 4);
  CHECK(fault_of(never, room).find("ncclSend: read of what was never written: byte 0 of 16") != std::string::npos);
}
