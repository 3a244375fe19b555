#include "virtual_gpu/test_device.h"
#include "virtual_gpu/test_kernels.h"

// Streams that are captured, and the graphs that come of them.

namespace virtual_gpu::test {
namespace {

using Floats = std::vector<float>;

/// A graph that can be launched.
class Executable {
 public:
  explicit Executable(cudaGraph_t graph) {
    REQUIRE(cudaGraphInstantiate(&executable_, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  }
  ~Executable() { cudaGraphExecDestroy(executable_); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  void launch(const OwnStream& stream) const { CHECK(cudaGraphLaunch(executable_, stream.get()) == cudaSuccess); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

void begin(const OwnStream& stream) {
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
}

/// A graph that adds 1 to x.
cudaGraph_t addition(const DeviceFloats& x, const OwnStream& stream) {
  begin(stream);
  add(x.get(), 1, 1, stream.get());
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  return graph;
}

TEST_CASE("graphs: captured work is not done until the graph is launched, and then each time") {
  const Fresh fresh;
  const DeviceFloats x(Floats{1, 2});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const OwnStream stream;
  const PinnedFloats source({10, 20});
  begin(stream);
  cudaStreamCaptureStatus status{};
  CHECK(cudaStreamIsCapturing(stream.get(), &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  REQUIRE(cudaMemcpyAsync(x.get(), source.get(), 8, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  add(x.get(), 1, 1, stream.get());
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
  CHECK(nodes == 2);
  CHECK(x.values() == Floats{1, 2});
  source.get()[0] = 30;  // a graph reads its source at each launch
  const Executable executable(graph);
  executable.launch(stream);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(x.values() == Floats{31, 20});
  source.get()[0] = 40;
  executable.launch(stream);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(x.values() == Floats{41, 20});
  executable.launch(stream);
  source.get()[0] = 50;  // too early
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchFailure);
}

TEST_CASE("graphs: an event brings another stream into the capture, and orders the graph") {
  const Fresh fresh;
  const OwnStream stream;
  const OwnStream other;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  const DeviceFloats x(Floats{5});
  const DeviceFloats y(Floats{5});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaGraph_t graph = nullptr;
  SUBCASE("joined again") {
    begin(stream);
    REQUIRE(cudaMemsetAsync(x.get(), 0, 4, stream.get()) == cudaSuccess);
    REQUIRE(cudaEventRecord(event, stream.get()) == cudaSuccess);
    CHECK(cudaEventQuery(nullptr) == cudaErrorInvalidResourceHandle);
    REQUIRE(cudaStreamWaitEvent(other.get(), event, 0) == cudaSuccess);
    add(x.get(), 1, 1, other.get());
    REQUIRE(cudaMemsetAsync(y.get(), 0, 4, stream.get()) == cudaSuccess);
    REQUIRE(cudaEventRecord(event, other.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(stream.get(), event, 0) == cudaSuccess);
    add(x.get(), 2, 1, stream.get());
    REQUIRE(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
    const Executable executable(graph);
    for (int i = 0; i < 5; ++i) {
      executable.launch(stream);
      REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
      CHECK(x.values() == Floats{3});
      CHECK(y.values() == Floats{0});
    }
  }
  SUBCASE("left alone") {
    begin(stream);
    REQUIRE(cudaEventRecord(event, stream.get()) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(other.get(), event, 0) == cudaSuccess);
    add(x.get(), 1, 1, other.get());
    CHECK(cudaStreamEndCapture(other.get(), &graph) == cudaErrorStreamCaptureUnmatched);
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureUnjoined);
    CHECK(graph == nullptr);
  }
  SUBCASE("from outside") {
    REQUIRE(cudaEventRecord(event, other.get()) == cudaSuccess);
    begin(stream);
    CHECK(cudaStreamWaitEvent(stream.get(), event, 0) == cudaErrorStreamCaptureIsolation);
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SUBCASE("asked for by the host") {
    begin(stream);
    REQUIRE(cudaEventRecord(event, stream.get()) == cudaSuccess);
    CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  }
  CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("graphs: calls that wait or allocate end a capture with an error") {
  const Fresh fresh;
  const OwnStream stream;
  void* memory = nullptr;
  cudaGraph_t graph = nullptr;
  const auto ends_capture = [&](auto&& forbidden) {
    begin(stream);
    const cudaError_t error = forbidden();
    CHECK(cudaMemsetAsync(nullptr, 0, 0, stream.get()) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    return error;
  };
  CHECK(ends_capture([&] { return cudaMalloc(&memory, 4); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(ends_capture([&] { return cudaFree(nullptr); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(ends_capture([&] { return cudaMallocHost(&memory, 4); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(ends_capture([&] { return cudaDeviceSynchronize(); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(ends_capture([&] { return cudaStreamSynchronize(stream.get()); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(ends_capture([&] { return cudaStreamQuery(stream.get()); }) == cudaErrorStreamCaptureUnsupported);
  begin(stream);  // a thread whose mode is relaxed may allocate
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeGlobal);
  CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorIllegalState);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
}

TEST_CASE("graphs: the default stream may not be used beside a captured one that it waits for") {
  const Fresh fresh;
  const DeviceFloats x(Floats{1});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaMemsetAsync(x.get(), 0, 4, nullptr) == cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("graphs: one that was destroyed cannot be launched, and one that was launched may be destroyed") {
  const Fresh fresh;
  const DeviceFloats x(Floats{1});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const OwnStream stream;
  cudaGraph_t graph = addition(x, stream);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaErrorInvalidValue);
  CHECK(cudaGraphLaunch(executable, stream.get()) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
  CHECK(cudaGraphLaunch(executable, stream.get()) == cudaErrorInvalidValue);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(x.values() == Floats{2});
}

TEST_CASE("graphs: one takes memory of the device from its upload, or its first launch, until it is destroyed") {
  const Fresh fresh;
  const DeviceFloats x(Floats{1});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const OwnStream stream;
  cudaGraph_t graph = addition(x, stream);
  const auto available = [] {
    size_t left = 0;
    size_t total = 0;
    REQUIRE(cudaMemGetInfo(&left, &total) == cudaSuccess);
    return left;
  };
  const size_t before = available();
  for (const bool uploads : {false, true}) {
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(available() == before);
    if (uploads) {
      CHECK(cudaGraphUpload(executable, stream.get()) == cudaSuccess);
      CHECK(available() == before - (2 << 20));
    }
    CHECK(cudaGraphLaunch(executable, stream.get()) == cudaSuccess);
    CHECK(available() == before - (2 << 20));
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(available() == before);
  }
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

}  // namespace
}  // namespace virtual_gpu::test
