#include "virtual_gpu/test_convolution_cudnn.h"

#include <fmt/format.h>

using namespace virtual_gpu;
using namespace virtual_gpu::test;

namespace {

/// A convolution of 8 to 16 channels with its memory.
struct Program {
  explicit Program(int64_t engine = kDirect, const ConvolutionCase& wanted = {})
      : graph(graph_of(wanted)), plan(plan_of(graph, engine)) {
    REQUIRE(plan.text() == "");
  }

  /// What cudnnBackendExecute says, "" for a success.
  std::string text(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace = nullptr) {
    Made pack = pack_of(ids, pointers, workspace);
    pack.finalize();
    REQUIRE(pack.text() == "");
    status = cudnnBackendExecute(handle(), plan.get(), pack.get());
    return status == CUDNN_STATUS_SUCCESS ? "" : cudnn_text();
  }
  std::string text(void* to_x, void* to_w, void* to_y, void* workspace = nullptr) {
    return text({kX, kW, kY}, {to_x, to_w, to_y}, workspace);
  }

  Made graph;
  Made plan;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  static constexpr size_t kXs = 2 * 8 * 7 * 6, kWs = 16 * 8 * 3 * 3, kYs = 2 * 16 * 7 * 6;
  DeviceNumbers x{NumberType::kFloat32, some_numbers(kXs, 1)};
  DeviceNumbers w{NumberType::kFloat32, some_numbers(kWs, 2)};
  DeviceNumbers y{NumberType::kFloat32, kYs};
};

}  // namespace

TEST_CASE("virtual cuDNN: a variant pack has the tensors of its plan") {
  Program program;
  void* const x = program.x.get();
  void* const w = program.w.get();
  void* const y = program.y.get();
  CHECK(program.text(x, w, y) == "");
  CHECK(program.text({kX, kW}, {x, w}) == "cudnnBackendExecute: y: expected a data pointer for unique id 3, got none");
  CHECK(program.text({kX, kW, kY, 9}, {x, w, y, y}) ==
        "cudnnBackendExecute: expected unique ids of the plan's tensors with memory, got 9");
  CHECK(program.text(x, nullptr, y) == "cudnnBackendExecute: w: expected the device's memory, got null");
  CHECK(program.status == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(pack_of({1, 2}, {x}, nullptr).finalize().text() ==
        "variant pack: data pointers: expected 2, one for each id, got 1");
  CHECK(pack_of({1, 1}, {x, x}, nullptr).finalize().text() ==
        "variant pack: unique ids: expected each once, got 1 twice");
  CHECK(fault_of_work() == "");
}

TEST_CASE("virtual cuDNN: addresses keep the alignment that the tensors promise") {
  Program program;
  const DeviceNumbers odd(NumberType::kFloat32, some_numbers(Program::kXs, 1), 4);
  CHECK(program.text(odd.get(), program.w.get(), program.y.get()) ==
        fmt::format("cudnnBackendExecute: x: expected an address aligned to CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT 16, got "
                    "0x{:x}",
                    odd.address()));
  CHECK(program.status == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  CHECK(fault_of_work() == "");
}

TEST_CASE("virtual cuDNN: the output has memory of its own") {
  Program program;
  CHECK(program.text(program.x.get(), program.w.get(), program.x.get()) ==
        "cudnnBackendExecute: y: expected memory of its own for the output, got bytes of x");
  const DeviceNumbers both(NumberType::kFloat32, some_numbers(Program::kXs + Program::kYs, 1));
  CHECK(program.text(both.get(), program.w.get(), both.get() + 4 * Program::kXs) == "");
  CHECK(program.text(both.get(), program.w.get(), both.get() + 4 * Program::kXs - 16) ==
        "cudnnBackendExecute: y: expected memory of its own for the output, got bytes of x");
  CHECK(fault_of_work() == "");
}

TEST_CASE("virtual cuDNN: the workspace is there, has memory of its own, and holds nothing") {
  Program program(1);
  const int64_t bytes = workspace_of(program.plan);
  REQUIRE(bytes == 8 * 3 * 3 * 7 * 6 * 4);
  void* const x = program.x.get();
  void* const w = program.w.get();
  void* const y = program.y.get();
  CHECK(program.text(x, w, y) == fmt::format("cudnnBackendExecute: workspace: expected {} bytes, got null", bytes));
  const DeviceNumbers room(NumberType::kFloat32, some_numbers(static_cast<size_t>(bytes / 4) + 4, 5));
  CHECK(program.text(x, w, y, room.get() + 4) ==
        fmt::format("cudnnBackendExecute: workspace: expected an address aligned to 16 bytes, got 0x{:x}",
                    room.address() + 4));
  CHECK(program.text(x, w, room.get(), room.get()) ==
        "cudnnBackendExecute: workspace: expected memory of its own, got bytes of y");
  CHECK(fault_of_work() == "");
  CHECK(room.written_bytes() == static_cast<size_t>(bytes) + 16);
  CHECK(program.text(x, w, y, room.get()) == "");
  CHECK(fault_of_work() == "");
  CHECK(room.written_bytes() == 16);  // the rest means nothing now
  const DeviceNumbers small(NumberType::kFloat32, static_cast<size_t>(bytes / 4) - 1);
  CHECK(program.text(x, w, y, small.get()) == "");
  CHECK(fault_of_work().find(fmt::format("cudnnBackendExecute: workspace: expected {} bytes at 0x{:x} inside one "
                                         "allocation, got {} of them: ",
                                         bytes, small.address(), bytes - 4)) != std::string::npos);
}

TEST_CASE("virtual cuDNN: the stream finds memory that is too small, freed, or was never written") {
  Program program;
  const auto has = [](const std::string& text) { return fault_of_work().find(text) != std::string::npos; };
  const DeviceNumbers small(NumberType::kFloat32, some_numbers(Program::kXs - 1, 1));
  CHECK(program.text(small.get(), program.w.get(), program.y.get()) == "");
  CHECK(has(fmt::format("cudnnBackendExecute: x: expected 2688 bytes at 0x{:x} inside one allocation, got 2684 of them",
                        small.address())));
  const DeviceNumbers unwritten(NumberType::kFloat32, Program::kWs);
  CHECK(program.text(program.x.get(), unwritten.get(), program.y.get()) == "");
  CHECK(
      has(fmt::format("cudnnBackendExecute: w: read of what was never written: element 0 of (16, 8, 3, 3), at "
                      "0x{:x}",
                      unwritten.address())));
  DeviceNumbers freed(NumberType::kFloat32, Program::kYs);
  void* const gone = freed.get();
  freed.free();
  CHECK(program.text(program.x.get(), program.w.get(), gone) == "");
  CHECK(has(fmt::format("cudnnBackendExecute: y: expected 5376 bytes of the device's memory at 0x{:x}, got ",
                        reinterpret_cast<uint64_t>(gone))));
  std::vector<float> of_host(Program::kYs + 4);
  void* const host = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(of_host.data()) + 15) / 16 * 16);
  CHECK(program.text(program.x.get(), program.w.get(), host) == "");
  CHECK(has("cudnnBackendExecute: y: expected 5376 bytes of the device's memory at 0x"));
  CHECK(of_host == std::vector<float>(of_host.size()));
}

TEST_CASE("virtual cuDNN: only the output becomes written, and gaps between its rows stay") {
  const DeviceNumbers x(NumberType::kFloat32, some_numbers(2 * 2, 1));
  const DeviceNumbers w(NumberType::kFloat32, some_numbers(1, 2));
  const DeviceNumbers y(NumberType::kFloat32, 2 * 4);
  ConvolutionCase of;
  of.shape = {.n = 1, .c = 1, .h = 2, .w = 2, .o = 1, .kh = 1, .kw = 1, .oh = 2, .ow = 2};
  Made to_x = tensor(kX, of.type, of.x_sizes(), strides_of(of.x_sizes(), false));
  Made to_w = tensor(kW, of.type, of.w_sizes(), strides_of(of.w_sizes(), false));
  Made to_y = tensor(kY, of.type, of.y_sizes(), {8, 8, 4, 1});
  Made shape = convolution(of);
  for (Made* one : {&to_x, &to_w, &to_y, &shape}) {
    one->finalize();
  }
  Made made = operation(of, shape, to_x, to_w, to_y);
  made.finalize();
  Made graph = graph_of({made.get()});
  graph.finalize();
  const Made plan = plan_of(graph, kDirect);
  Made pack = pack_of({kX, kW, kY}, {x.get(), w.get(), y.get()}, nullptr);
  pack.finalize();
  CHECK(cudnnBackendExecute(handle(), plan.get(), pack.get()) == CUDNN_STATUS_SUCCESS);
  CHECK(fault_of_work() == "");
  CHECK(y.written_bytes() == 4 * sizeof(float));
}

TEST_CASE("virtual cuDNN: handles, versions and texts") {
  CHECK(cudnnGetVersion() == CUDNN_VERSION);
  CHECK(std::string(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM)) == "CUDNN_STATUS_BAD_PARAM");
  CHECK(cudnnCreate(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  cudnnHandle_t other = nullptr;
  REQUIRE(cudnnCreate(&other) == CUDNN_STATUS_SUCCESS);
  Program program;
  Made pack = pack_of({kX, kW, kY}, {program.x.get(), program.w.get(), program.y.get()}, nullptr);
  pack.finalize();
  CHECK(cudnnBackendExecute(other, program.plan.get(), pack.get()) == CUDNN_STATUS_BAD_PARAM);
  CHECK(cudnn_text() == "cudnnBackendExecute: handle: expected the plan's own, got another one");
  CHECK(cudnnDestroy(other) == CUDNN_STATUS_SUCCESS);
  CHECK(cudnnSetStream(other, nullptr) == CUDNN_STATUS_NOT_INITIALIZED);
  CHECK(cudnn_text() == "cudnnSetStream: handle: expected one of cudnnCreate, got one that is destroyed or never was");
  std::array<char, 8> little{};
  cudnnGetLastErrorString(little.data(), little.size());
  CHECK(std::string(little.data()) == "cudnnSe");
}
