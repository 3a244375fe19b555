#include "cli/onnxruntime.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "cli/python.h"
#include "core/copy.h"
#include "core/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace norma::cli {

namespace {

constexpr int kNotInstalled = 3;
constexpr int kNoPython = 127;
constexpr const char* kProgram = R"(
import sys
sys.path = [path for path in sys.path if path]  # without the folder where somebody happens to be
try:
    import numpy, onnxruntime
except ImportError:
    sys.exit(3)
folder, dtype, sizes = sys.argv[1:]
x = numpy.fromfile(folder + "/input", dtype).reshape([int(size) for size in sizes.split(",")])
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
try:
    session = onnxruntime.InferenceSession(folder + "/model.onnx", options, providers=["CPUExecutionProvider"])
    y, = session.run(None, {session.get_inputs()[0].name: x})
except Exception as error:
    sys.exit(" ".join(str(error).split()))
numpy.ascontiguousarray(y).tofile(folder + "/output")
print("onnxruntime", onnxruntime.__version__)
)";

}  // namespace

std::optional<OnnxRuntimeResult> run_onnxruntime(const OnnxModel& model, const Tensor& input,
                                                 const Sizes& output_sizes) {
  const ScratchFolder folder("export");
  const Tensor x = contiguous_copy(to_device(input.detach(), kCpu), MemoryFormat::contiguous);
  const auto write = [&](const std::string& name, const void* bytes, size_t count) {
    std::ofstream out(folder.path() / name, std::ios::binary);
    out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count)).flush();
    check(out.good(), "export", "cannot write {}", (folder.path() / name).string());
  };
  write("input", x.device_pointer(), static_cast<size_t>(x.numel()) * size_of(x.dtype()));
  write("model.onnx", model.bytes.data(), model.bytes.size());
  if (!model.data_file.empty()) {
    write(model.data_file, model.data.data(), model.data.size());
  }
  const PythonRun ran = run_python("export", {"-c", kProgram, folder.path().string(), std::string(to_string(x.dtype())),
                                              fmt::format("{}", fmt::join(x.sizes(), ","))});
  if (ran.code == kNotInstalled || ran.code == kNoPython) {
    return std::nullopt;
  }
  check(ran.code == 0, "export", "onnxruntime refuses the model: {}", excerpt(ran.err));
  const Tensor y = empty(output_sizes, {.dtype = x.dtype(), .device = kCpu});
  const auto bytes = static_cast<std::streamsize>(y.numel()) * static_cast<std::streamsize>(size_of(y.dtype()));
  std::error_code none;
  const auto size = static_cast<std::streamsize>(std::filesystem::file_size(folder.path() / "output", none));
  check(size == bytes, "export", "expected {} bytes of onnxruntime, got {}", bytes, std::max<std::streamsize>(size, 0));
  std::ifstream(folder.path() / "output", std::ios::binary).read(static_cast<char*>(y.device_pointer()), bytes);
  return OnnxRuntimeResult{.output = y, .version = ran.out};
}

}  // namespace norma::cli
