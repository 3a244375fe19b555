#include "virtual_gpu/descriptor_cudnn.h"
#include "virtual_gpu/execute_cudnn.h"
#include "virtual_gpu/refusal.h"

#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string>

// cuDNN's entry points, as its header declares them.

namespace {

using namespace virtual_gpu;

thread_local std::string last_error;

std::mutex handles_mutex;
std::set<cudnnHandle_t> handles;

void check_handle(cudnnHandle_t handle, const char* call) {
  const std::lock_guard lock(handles_mutex);
  expect(handles.count(handle) != 0, CUDNN_STATUS_NOT_INITIALIZED, "{}: handle: expected one of cudnnCreate, got {}",
         call, handle == nullptr ? "null" : "one that is destroyed or never was");
}

/// Keeps the text of what went wrong for cudnnGetLastErrorString.
template <class Work>
cudnnStatus_t answer(const Work& work) {
  try {
    work();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal<cudnnStatus_t>& refusal) {
    last_error = refusal.what();
    return refusal.status();
  } catch (const std::exception& error) {  // the stream takes no work
    last_error = error.what();
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
}

template <class T>
T& not_null(T* pointer, const char* call) {
  expect(pointer != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{}: expected room for the result, got null", call);
  return *pointer;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) {
  return CUDNN_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER: return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED: return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND: return "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND";
    case CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH: return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES: return "CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES";
    case CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE: return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE: return "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN: return "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN";
    case CUDNN_STATUS_NOT_SUPPORTED_SHAPE: return "CUDNN_STATUS_NOT_SUPPORTED_SHAPE";
    case CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE: return "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE";
    case CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING:
      return "CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "a cudnnStatus_t of which the virtual GPU has no name";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) {
    return;
  }
  const size_t count = std::min(last_error.size(), max_size - 1);
  std::memcpy(message, last_error.data(), count);
  message[count] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return answer([&] {
    cudnnHandle_t& result = not_null(handle, "cudnnCreate");
    result = new cudnnContext;
    const std::lock_guard lock(handles_mutex);
    handles.insert(result);
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return answer([&] {
    check_handle(handle, "cudnnDestroy");
    const std::lock_guard lock(handles_mutex);
    handles.erase(handle);
    delete handle;
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return answer([&] {
    check_handle(handle, "cudnnSetStream");
    handle->stream = stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return answer([&] {
    cudnnBackendDescriptor_t& result = not_null(descriptor, "cudnnBackendCreateDescriptor");
    result = create_descriptor(type);
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return answer([&] { destroy_descriptor(descriptor, "cudnnBackendDestroyDescriptor"); });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return answer([&] { finalize(descriptor_at(descriptor, "cudnnBackendFinalize")); });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return answer(
      [&] { set_attribute(descriptor_at(descriptor, "cudnnBackendSetAttribute"), name, type, count, values); });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* values) {
  return answer([&] {
    get_attribute(descriptor_at(descriptor, "cudnnBackendGetAttribute"), name, type, requested, count, values);
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return answer([&] {
    check_handle(handle, "cudnnBackendExecute");
    execute(handle, descriptor_at(plan, "cudnnBackendExecute"), descriptor_at(pack, "cudnnBackendExecute"));
  });
}

}  // extern "C"
