#include "cli/onnxruntime.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace norma::cli {

namespace {

constexpr int kNotInstalled = 3;
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

/// A folder that goes with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "norma-export-XXXXXX").string();
    check(::mkdtemp(name.data()) != nullptr, "export", "cannot make a folder in '{}'",
          std::filesystem::temp_directory_path().string());
    path_ = name;
  }
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

/// Runs a program with its outputs in files of `folder`, and returns its exit code; 127 if there is none.
int run_program(std::vector<std::string> words, const std::filesystem::path& folder) {
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const std::string out = (folder / "stdout").string();
  const std::string err = (folder / "stderr").string();
  const pid_t child = ::fork();
  check(child >= 0, "export", "cannot start {}", words[0]);
  if (child == 0) {
    if (std::freopen(out.c_str(), "w", stdout) != nullptr && std::freopen(err.c_str(), "w", stderr) != nullptr) {
      ::execvp(arguments[0], arguments.data());
    }
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::optional<OnnxRuntimeResult> run_onnxruntime(std::string_view model, const Tensor& input,
                                                 const Sizes& output_sizes) {
  const Folder folder;
  const Tensor x = contiguous_copy(to_device(input.detach(), kCpu), MemoryFormat::contiguous);
  std::ofstream(folder.path() / "input", std::ios::binary)
      .write(static_cast<const char*>(x.device_pointer()),
             static_cast<std::streamsize>(x.numel()) * static_cast<std::streamsize>(size_of(x.dtype())));
  std::ofstream(folder.path() / "model.onnx", std::ios::binary)
      .write(model.data(), static_cast<std::streamsize>(model.size()));
  const char* const python = std::getenv("NORMA_PYTHON");
  const int code = run_program({python != nullptr ? python : "python3", "-c", kProgram, folder.path().string(),
                                std::string(to_string(x.dtype())), fmt::format("{}", fmt::join(x.sizes(), ","))},
                               folder.path());
  if (code == kNotInstalled || code == 127) {
    return std::nullopt;
  }
  check(code == 0, "export", "onnxruntime refuses the model: {}", excerpt(text_of(folder.path() / "stderr")));
  const Tensor y = empty(output_sizes, {.dtype = x.dtype(), .device = kCpu});
  const auto bytes = static_cast<std::streamsize>(y.numel()) * static_cast<std::streamsize>(size_of(y.dtype()));
  check(std::filesystem::file_size(folder.path() / "output") == static_cast<uintmax_t>(bytes), "export",
        "expected {} bytes of onnxruntime, got {}", bytes, std::filesystem::file_size(folder.path() / "output"));
  std::ifstream(folder.path() / "output", std::ios::binary).read(static_cast<char*>(y.device_pointer()), bytes);
  return OnnxRuntimeResult{.output = y, .version = text_of(folder.path() / "stdout")};
}

}  // namespace norma::cli
