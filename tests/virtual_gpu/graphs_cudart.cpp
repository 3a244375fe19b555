#include "virtual_gpu/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

// CUDA's functions for capturing streams into graphs and launching these.

namespace virtual_gpu {
namespace {

template <class Handle>
Graph& graph_of(const Runtime& runtime, Handle handle) {
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (!runtime.graphs.contains(graph)) {
    throw Refused(cudaErrorInvalidValue, "expected a graph, got one that was destroyed, or another handle");
  }
  return *graph;
}

template <class Handle>
void keep(Runtime& runtime, Handle* handle, Graph graph) {
  auto* made = new Graph(std::move(graph));
  runtime.graphs.insert(made);
  *handle = reinterpret_cast<Handle>(made);
}

/// Takes memory of the device for an executable graph, unless it has some: a step of the allocator at least.
void upload(Runtime& runtime, Graph& graph, int device) {
  constexpr uint64_t kStep = uint64_t{2} << 20;
  constexpr uint64_t kBytesOfNode = uint64_t{16} << 10;
  if (graph.memory == 0) {
    graph.memory = runtime.memory.allocate((graph.nodes.size() * kBytesOfNode / kStep + 1) * kStep, device);
    if (graph.memory == 0) {
      throw Refused(cudaErrorMemoryAllocation, "no memory is left for the graph");
    }
  }
}

template <class Handle>
cudaError_t destroy(const char* name, Handle handle) {
  return call(name, [&](Runtime& runtime) {
    Graph& graph = graph_of(runtime, handle);
    if (graph.memory != 0) {
      runtime.memory.release(graph.memory);
    }
    runtime.graphs.erase(&graph);
    delete &graph;
    return cudaSuccess;
  });
}

/// Whether each node but those that the stream's next one would come after has a node behind it: no other stream that
/// joined the capture was left on its own.
bool all_joined(const Stream& stream) {
  const auto& nodes = stream.capture->graph.nodes;
  std::vector<bool> followed(nodes.size());
  for (const Graph::Node& node : nodes) {
    for (const size_t earlier : node.after) {
      followed[earlier] = true;
    }
  }
  for (const size_t node : stream.captured) {
    followed[node] = true;
  }
  return std::find(followed.begin(), followed.end(), false) == followed.end();
}

}  // namespace
}  // namespace virtual_gpu

using virtual_gpu::call;
using virtual_gpu::Capture;
using virtual_gpu::Graph;
using virtual_gpu::graph_of;
using virtual_gpu::Refused;
using virtual_gpu::Runtime;
using virtual_gpu::Stream;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  return call("cudaStreamBeginCapture", [&](Runtime& runtime) {
    Stream& stream = runtime.stream_of(handle);
    if (&stream == &runtime.streams.default_stream()) {
      throw Refused(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
    }
    if (stream.capture != nullptr) {
      throw Refused(cudaErrorIllegalState, "the stream is captured already");
    }
    stream.capture = std::make_shared<Capture>();
    stream.captured.clear();
    stream.began_capture = true;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", [&](Runtime&) {
    std::swap(*mode, virtual_gpu::capture_mode());
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&](Runtime& runtime) {
    *graph = nullptr;
    Stream& stream = runtime.stream_of(handle);
    if (!stream.began_capture) {
      throw Refused(stream.capture == nullptr ? cudaErrorIllegalState : cudaErrorStreamCaptureUnmatched,
                    "the capture of this stream was not begun here");
    }
    const auto capture = stream.capture;
    const bool joined = virtual_gpu::all_joined(stream);
    runtime.streams.end_capture(capture);
    if (capture->broken) {
      throw Refused(cudaErrorStreamCaptureInvalidated, "a call that a capture forbids has ended it");
    }
    if (!joined) {
      throw Refused(cudaErrorStreamCaptureUnjoined,
                    "another stream took part, and the one that is captured does not wait for its end");
    }
    virtual_gpu::keep(runtime, graph, std::move(capture->graph));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&](Runtime& runtime) {
    const Stream& stream = runtime.stream_of(handle);
    *status = stream.capture == nullptr ? cudaStreamCaptureStatusNone
              : stream.capture->broken  ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return call("cudaGraphGetNodes", [&](const Runtime& runtime) {
    if (nodes != nullptr) {
      throw Refused(cudaErrorNotSupported, "the virtual GPU tells the number of nodes only");
    }
    *count = graph_of(runtime, handle).nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", [&](Runtime& runtime) {
    virtual_gpu::keep(runtime, executable, graph_of(runtime, graph));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphUpload", [&](Runtime& runtime) {
    virtual_gpu::upload(runtime, graph_of(runtime, executable), runtime.stream_for_work(stream).device);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&](Runtime& runtime) {
    Graph& graph = graph_of(runtime, executable);
    Stream& in = runtime.stream_for_work(stream);
    virtual_gpu::upload(runtime, graph, in.device);
    runtime.streams.launch(in, graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return virtual_gpu::destroy("cudaGraphDestroy", graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return virtual_gpu::destroy("cudaGraphExecDestroy", executable);
}

}  // extern "C"
