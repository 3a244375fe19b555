#include "virtual_gpu/communicator_nccl.h"
#include "virtual_gpu/operand.h"
#include "virtual_gpu/refusal.h"
#include "virtual_gpu/registry.h"
#include "virtual_gpu/runtime.h"

#include <nccl.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

// NCCL's entry points, as far as Norma calls them. A communicator that was ended is used no more, and each one is ended
// once before the program is: what breaks that is a fault of the program, as NCCL has no answer to it.

namespace {

using namespace virtual_gpu;

/// What went wrong last on this thread.
thread_local std::string last_text;

/// The calls between ncclGroupStart and ncclGroupEnd of this thread.
struct Group {
  bool is_open = false;
  std::shared_ptr<Communicator> communicator;
  cudaStream_t stream = nullptr;
  std::vector<Transfer> transfers;
};
thread_local Group group;

Registry<std::shared_ptr<Communicator>>& communicators() {
  static auto* const all = new Registry<std::shared_ptr<Communicator>>;
  return *all;
}

std::shared_ptr<Communicator> communicator_of(ncclComm_t handle) {
  const auto* const found = communicators().find(handle);
  if (found == nullptr) {
    throw Fault(Fault::Kind::kIllegalAddress,
                fmt::format("expected a communicator, got {}", communicators().describe(handle)));
  }
  return *found;
}

/// One that a new call may be made for.
std::shared_ptr<Communicator> free_communicator(ncclComm_t handle) {
  std::shared_ptr<Communicator> result = communicator_of(handle);
  expect(result->is_free(), ncclInvalidArgument,
         "Attempt to use communicator before the previous operation returned ncclSuccess");
  return result;
}

/// The body of an entry point, one thread at a time.
template <class Work>
ncclResult_t answer(const char* call, const Work& work) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  try {
    return work(runtime);
  } catch (const Refusal<ncclResult_t>& refusal) {
    last_text = refusal.what();
    return refusal.status();
  } catch (const Refused& refused) {  // the stream takes no work
    last_text = refused.what();
    return ncclUnhandledCudaError;
  } catch (const std::exception& error) {
    runtime.fail(call, error);
    last_text = error.what();
    return ncclInternalError;
  }
}

void end(Runtime& runtime, ncclComm_t handle) {
  communicators().destroy(handle);
  runtime.go_on_alone_no_more();
}

/// Tells of a communicator that nobody has ended; its work ends, so that the program can.
void look_at_end(Runtime& runtime, const std::weak_ptr<Communicator>& made, ncclComm_t handle) {
  if (communicators().find(handle) != nullptr) {
    const std::shared_ptr<Communicator> left = made.lock();
    runtime.fail("the program's end",
                 Fault(Fault::Kind::kUndefined,
                       fmt::format("expected ncclCommDestroy or ncclCommAbort for each communicator, got none for that "
                                   "of rank {} of {}",
                                   left->rank(), left->ranks())));
    left->abort();
  }
}

uint64_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: break;
  }
  refuse(ncclInvalidArgument, "unknown type {}", static_cast<int>(type));
}

void add_transfer(bool is_sent, const void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                  cudaStream_t stream) {
  const std::shared_ptr<Communicator> communicator = free_communicator(handle);
  expect(group.is_open, ncclInvalidUsage, "the virtual NCCL takes messages between ncclGroupStart and ncclGroupEnd");
  expect(peer >= 0 && peer < communicator->ranks() && peer != communicator->rank(), ncclInvalidArgument,
         "expected another rank from 0 to {}, got {}", communicator->ranks() - 1, peer);
  expect(memory != nullptr || count == 0, ncclInvalidArgument, "expected memory of the device, got null");
  expect(group.communicator == nullptr || (group.communicator == communicator && group.stream == stream),
         ncclInvalidUsage, "the virtual NCCL takes one communicator and one stream in a group");
  group.communicator = communicator;
  group.stream = stream;
  if (count > 0) {
    group.transfers.push_back(
        {.is_sent = is_sent, .peer = peer, .address = address_of(memory), .bytes = count * bytes_of(type)});
  }
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t handle) {
  const auto* const found = communicators().find(handle);
  return found != nullptr && !(*found)->error_text().empty() ? (*found)->error_text().c_str() : last_text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return answer("ncclGetUniqueId", [&](Runtime&) {
    const std::string folder = Mailbox::make_folder();
    expect(folder.size() < sizeof id->internal, ncclSystemError, "the path {} is too long", folder);
    std::memset(id->internal, 0, sizeof id->internal);
    folder.copy(id->internal, folder.size());
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return answer("ncclCommInitRankConfig", [&](Runtime& runtime) {
    expect(config != nullptr && config->magic == 0xcafebeef, ncclInvalidArgument,
           "expected a config that begins as NCCL_CONFIG_INITIALIZER");
    expect(config->blocking == 0, ncclInvalidUsage, "the virtual NCCL takes blocking = 0, got {}", config->blocking);
    expect(rank >= 0 && rank < ranks, ncclInvalidArgument, "expected a rank from 0 to {}, got {}", ranks - 1, rank);
    const auto made = std::make_shared<Communicator>(id.internal, rank, ranks, current_device(), runtime.seed());
    *handle = communicators().create<ncclComm_t>(made);
    runtime.at_end.push_back(
        [&runtime, left = std::weak_ptr(made), handle = *handle] { look_at_end(runtime, left, handle); });
    runtime.go_on_alone();
    return made->join();
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  return answer("ncclCommGetAsyncError", [&](Runtime&) {
    *state = communicator_of(handle)->state();
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupStart() {
  return answer("ncclGroupStart", [](Runtime&) {
    expect(!group.is_open, ncclInvalidUsage, "the virtual NCCL takes no group in a group");
    group = {.is_open = true};
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  return answer("ncclGroupEnd", [](Runtime&) {
    expect(group.is_open, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    Group whole = std::exchange(group, {});
    return whole.transfers.empty() ? ncclSuccess
                                   : whole.communicator->exchange(std::move(whole.transfers), whole.stream);
  });
}

ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return answer("ncclSend", [&](Runtime&) {
    add_transfer(/*is_sent=*/true, memory, count, type, peer, handle, stream);
    return ncclSuccess;
  });
}

ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return answer("ncclRecv", [&](Runtime&) {
    add_transfer(/*is_sent=*/false, memory, count, type, peer, handle, stream);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return answer("ncclCommFinalize", [&](Runtime&) { return free_communicator(handle)->finalize(); });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return answer("ncclCommDestroy", [&](Runtime& runtime) {
    expect(free_communicator(handle)->is_finalized(), ncclInvalidUsage,
           "the virtual NCCL takes ncclCommDestroy behind ncclCommFinalize");
    end(runtime, handle);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return answer("ncclCommAbort", [&](Runtime& runtime) {
    communicator_of(handle)->abort();
    end(runtime, handle);
    return ncclSuccess;
  });
}

}  // extern "C"
