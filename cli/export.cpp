#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/not_copied.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "cli/run_files.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/random.h"
#include "core/tape.h"
#include "core/tensor.h"
#include "data/atomic_file.h"
#include "data/json.h"
#include "data/safetensors.h"
#include "export/onnx.h"
#include "export/torch.h"
#include "models/registry.h"
#include "nn/module.h"
#include "nn/norm/convert.h"
#include "ops/shape/copy.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/recipe.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>

namespace norma::cli {

namespace {

/// A folder for temporary files, which is removed with the object.
class ScratchFolder : NotCopied {
 public:
  /// A new one in TMPDIR. `op` begins the text of an Error.
  explicit ScratchFolder(const std::string& op) {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    const char* const given = std::getenv("TMPDIR");
    check(!error, op, "expected a folder for temporary files in TMPDIR, got '{}'", given == nullptr ? "/tmp" : given);
    std::string name = (parent / "norma-XXXXXX").string();
    check(::mkdtemp(name.data()) != nullptr, op, "cannot make a folder in '{}'", parent.string());
    path_ = name;
  }
  /// This one, made anew.
  ScratchFolder(const std::string& op, std::filesystem::path path) : path_(std::move(path)) {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
    std::filesystem::create_directories(path_, error);
    check(!error, op, "cannot make the folder {}: {}", path_.string(), error.message());
  }
  ~ScratchFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a run of Python ended, and what it printed.
struct PythonRun {
  int code = 0;  ///< exit code; 127: there is no Python; 128 + the signal that ended it
  std::string out;
  std::string err;
};

std::string printed_in(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

/// Runs Python (NORMA_PYTHON, or python3 in PATH) with these arguments, as a process of its own, to its end. `op`
/// begins the text of an Error. A signal that comes meanwhile ends Python, and throws Interrupted.
PythonRun run_python(const std::string& op, const std::vector<std::string>& arguments) {
  const char* const given = std::getenv("NORMA_PYTHON");
  std::vector<std::string> words = {given != nullptr ? given : "python3"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> pointers = arguments_of(words);
  const ScratchFolder folder(op);
  const std::string out = (folder.path() / "stdout").string();
  const std::string err = (folder.path() / "stderr").string();
  const train::InterruptGuard guard(train::AfterSignal::no_result);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  check(child >= 0, op, "cannot start {}", words[0]);
  if (child == 0) {
    for (const int signal : train::InterruptGuard::kSignals) {
      ::signal(signal, SIG_DFL);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it goes on for nobody
    if (::getppid() != self) {
      ::_exit(127);
    }
    if (std::freopen(out.c_str(), "w", stdout) != nullptr && std::freopen(err.c_str(), "w", stderr) != nullptr) {
      ::execvp(pointers[0], pointers.data());
    }
    ::_exit(127);
  }
  int status = 0;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (train::interrupted()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      throw Interrupted{interrupted_code()};
    }
    ::nanosleep(&kPause, nullptr);
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = printed_in(out),
          .err = printed_in(err)};
}

struct State {
  RecipeOptions recipe{{}};
  RunOptions running;
  std::string checkpoint;
  std::string output;
  Option model;
  Option opset_option;
  bool torch = false;
  std::optional<TorchLibrary> library = {};  ///< none: timm
  int64_t num_classes = models::ModelOptions{}.num_classes;
  int64_t opset = OnnxOptions{}.opset;
  int64_t batch_size = 1;
  bool dynamic_batch = false;
  bool external_data = false;
  bool fold = false;
  train::WeightsOptions weights;
  bool check = false;
};

/// A network that is to be exported: on the CPU, float32, in evaluation.
struct ExportedNetwork {
  train::Recipe recipe;
  std::shared_ptr<nn::Module> model;
  Tensor example;  ///< an input
  Tensor output;   ///< of the example
  /// What a program needs beside the network: "image_size", "class_names" and "normalization" as JSON.
  std::map<std::string, std::string> about = {};
};

/// How far an output a is from the expected one, b.
struct OutputError {
  double largest = 0;  ///< |a - b| as a share of the largest |b|
  double rms = 0;      ///< root mean square of a - b, as a share of that of b
};

/// What onnxruntime makes of an ONNX file.
struct OnnxRuntimeResult {
  Tensor output;
  std::string version;  ///< "onnxruntime 1.23.0"
};

constexpr int kNotInstalled = 3;
constexpr int kNoPython = 127;

constexpr const char* kProgramName = "network.py";

OutputError output_error(const Tensor& found, const Tensor& expected) {
  const std::vector<double> a = found.to_vector<double>();
  const std::vector<double> b = expected.to_vector<double>();
  double difference = 0;
  double size = 0;
  double squares = 0;
  double all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]);
    difference = std::isfinite(distance) ? std::max(difference, distance) : INFINITY;
    size = std::max(size, std::abs(b[i]));
    squares += distance * distance;
    all += b[i] * b[i];
  }
  return {.largest = difference / size, .rms = std::sqrt(squares / all)};
}

/// The largest `rms` of another library that float32's rounding explains, from Norma's own. Convolutions of another
/// library add up in another order, which costs no more digits than ours.
double error_limit(const OutputError& own) {
  constexpr double kTimes = 4;
  constexpr double kFloat32 = 0x1p-20;  // of small networks, where Norma may have hardly any error
  return kTimes * own.rms + kFloat32;
}

/// The output of the example, computed in float64.
Tensor exact_output(const ExportedNetwork& network) {
  network.model->to(DType::float64);
  const Tensor output = (*network.model)(to(network.example, DType::float64));
  network.model->to(DType::float32);  // the weights have the same bits again
  return output;
}

/// Runs a model with one input and one output by onnxruntime for Python (NORMA_PYTHON, or
/// python3 in PATH), which it starts as a process of its own. The output has the dtype of `input`. Returns nothing
/// where Python or onnxruntime is not installed. Throws Error with onnxruntime's words where it refuses the model.
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
  const PythonRun ran =
      run_python("export", {"-c", std::string(onnxruntime_program()), folder.path().string(),
                            std::string(to_string(x.dtype())), fmt::format("{}", fmt::join(x.sizes(), ","))});
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

/// Makes the folder of `norma export --format torch`, whole or not at all. `checked`: PyTorch must compute the same;
/// where it does not, the folder stays for a look at it.
void write_torch(const ExportedNetwork& network, const std::filesystem::path& folder, TorchLibrary library,
                 bool checked) {
  const Tensor exact = exact_output(network);
  const double limit = error_limit(output_error(network.output, exact));
  const TorchNetwork torch = export_torch(network.recipe.model, train::model_options(network.recipe),
                                          network.model->state_dict(), library, limit, network.about);
  // It becomes the folder at the end, so that a killed export leaves nothing that the next one refuses.
  const std::filesystem::path whole = folder.has_filename() ? folder : folder.parent_path();
  std::filesystem::path partial = whole;
  partial += ".partial";
  const auto status = std::filesystem::symlink_status(partial);
  if (!std::filesystem::is_directory(status) ||
      !train::holds_only(partial, {"weights.safetensors", "example.safetensors", kProgramName})) {
    train::check_new("export", "--output", partial);
  }
  const ScratchFolder scratch("export", partial);
  std::map<std::string, std::string> metadata{{"format", "pt"}, {"norma.recipe", to_toml(network.recipe)}};
  for (const auto& [name, text] : network.about) {
    metadata["norma." + name] = text;
  }
  data::save_safetensors(partial / "weights.safetensors", torch.weights, metadata);
  data::save_safetensors(partial / "example.safetensors",
                         {{"input", network.example}, {"output", to(exact, DType::float32)}}, {{"format", "pt"}});
  train::write_text_file("export", partial / kProgramName, torch.program);
  const std::string program = train::shown(folder / kProgramName);
  std::string said = program + " compares PyTorch with Norma";
  PythonRun ran;
  if (checked) {
    ran = run_python("export", {(partial / kProgramName).string()});
    said = ran.out;
  }
  std::error_code error;
  std::filesystem::rename(partial, whole, error);  // nothing, or empty
  check(!error, "export", "cannot make the folder {}: {}", folder.string(), error.message());
  const size_t line = ran.err.rfind('\n') + 1;  // 0 where there is one line; the last one has the reason
  check(ran.code == 0, "export", "--check: expected {} to end without an error, got: {}", program,
        excerpt(ran.code == 127 ? "there is no Python" : ran.err.substr(line)));
  train::say("{}: weights.safetensors, example.safetensors, {}; {}\n", train::shown(folder), kProgramName, said);
}

/// The recipe gets what the file says of the network.
std::shared_ptr<nn::Module> make_network(const State& state, train::Recipe& recipe, const Trained& trained,
                                         const std::filesystem::path& file) {
  const int64_t classes =
      trained.class_names.empty() ? state.num_classes : static_cast<int64_t>(trained.class_names.size());
  const bool channels_last = std::exchange(recipe.channels_last, false);
  const auto model = train::load_network("export", recipe, classes, file, state.weights,
                                         [](const std::string& line) { train::say("{}\n", line); });
  recipe.channels_last = channels_last;
  model->eval();
  return model;
}

void check_options(const State& state) {
  const std::filesystem::path output = state.output;
  check(state.torch || output.extension() == ".onnx", "export", "--output: expected a name *.onnx, got '{}'",
        state.output);
  train::check_new("export", "--output", output);
  check(!state.torch || !(state.fold || state.dynamic_batch || state.external_data || state.opset_option.given()),
        "export", "--fold, --dynamic-batch, --external-data, --opset: expected --format onnx, got torch");
  check(state.torch || !state.library, "export", "--library: expected --format torch, got onnx");
}

/// True iff the weights are so large that one file, of less than 2 GiB, may not hold them.
bool needs_data_file(const nn::Module& model) {
  constexpr double kLargest = 2e9;  // the rest is for nodes, names and what is computed from weights
  return sum_of(model.state_dict(), [](const auto& one) { return bytes_of(one.second); }) > kLargest;
}

/// Writes the file, and a second one for large weights. Where onnxruntime is installed, it checks what is written.
void write_onnx(const State& state, const ExportedNetwork& network) {
  const std::filesystem::path output = state.output;
  data::AtomicFile written("export", output);  // before the work, which would be lost
  OnnxOptions options{.opset = state.opset, .dynamic_batch = state.dynamic_batch};
  std::optional<data::AtomicFile> data;
  if (state.external_data || needs_data_file(*network.model)) {
    options.data_file = output.filename().string() + ".data";
    const std::filesystem::path file = output.parent_path() / options.data_file;
    train::check_new("export", "--output", file);
    data.emplace("export", file);
  }
  OnnxModel model = export_onnx(*network.model, network.example, options);
  add_metadata(model, "norma.recipe", to_toml(network.recipe));
  for (const auto& [name, text] : network.about) {
    add_metadata(model, "norma." + name, text);
  }
  const std::optional<OnnxRuntimeResult> other = run_onnxruntime(model, network.example, network.output.sizes());
  check(other.has_value() || !state.check, "export",
        "--check: expected onnxruntime for Python, got none; install it with: pip install onnxruntime");
  std::string compared = "onnxruntime for Python is not installed, which would check it";
  if (other) {
    const Tensor exact = exact_output(network);
    const OutputError theirs = output_error(other->output, exact);
    const OutputError own = output_error(network.output, exact);
    check(!state.check || theirs.rms <= error_limit(own), "export",
          "--check: expected an error of at most {:.2g}, from float32's rounding, got {:.2g} (root mean squares, as a "
          "share of the output's)",
          error_limit(own), theirs.rms);
    compared = fmt::format("{}: largest error {:.2g} of the largest output, Norma's {:.2g}", other->version,
                           theirs.largest, own.largest);
    add_metadata(model, "norma.largest_error", compared);
  }
  if (!model.data_file.empty()) {
    data->write(model.data.data(), model.data.size());
  }
  written.write(model.bytes.data(), model.bytes.size());
  if (!model.data_file.empty()) {  // first, so that the other never stands there without it
    data->commit();
  }
  written.commit();
  train::say("{}: {:.1f} MB{}, opset {}; {}\n", train::shown(output), static_cast<double>(model.bytes.size()) / 1e6,
             model.data_file.empty() ? ""
                                     : fmt::format(", {}: {:.1f} MB", train::shown(model.data_file),
                                                   static_cast<double>(model.data.size()) / 1e6),
             state.opset, compared);
}

int run(const State& state) {
  state.running.apply("export");
  set_default_device(kCpu);  // the file is the same for every device
  check_options(state);
  const std::filesystem::path file = checkpoint_file("export", state.checkpoint);
  const Trained trained = trained_in(file, "export", state.recipe, state.model.given());
  train::Recipe recipe = recipe_for(trained, state.recipe);
  check_norms_are_loaded("export", kept_norms(trained, recipe), trained.plugins, "checkpoint", state.checkpoint);
  warn_of_other_norm("export", trained, recipe);
  train::check_recipe(recipe, /* with_weights= */ true);
  Generator generator(0);
  const int64_t size = recipe.image_size;
  const auto model = make_network(state, recipe, trained, file);
  ExportedNetwork network{.recipe = recipe,
                          .model = model,
                          .example = randn({state.batch_size, 3, size, size}, {.device = kCpu}, generator),
                          .output = {}};
  network.about = {
      {"image_size", std::to_string(size)},
      {"class_names", trained.class_names.empty() ? "" : data::json_text(nlohmann::json(trained.class_names))},
      {"normalization", trained.normalization}};
  std::erase_if(network.about, [](const auto& text) { return text.second.empty(); });
  const NoGradGuard no_grad;
  if (state.fold) {
    const int64_t folded = nn::fold_batch_norm(*network.model, network.example);
    train::say("{} batch norms are folded into the convolutions before them\n", folded);
  }
  network.output = (*network.model)(network.example);
  if (state.torch) {
    write_torch(network, state.output, state.library.value_or(TorchLibrary::timm), state.check);
  } else {
    write_onnx(state, network);
  }
  return kSuccess;
}

}  // namespace

Command add_export(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "export");
  auto state = std::make_shared<State>();
  add_path(app, "--checkpoint", state->checkpoint, "the file, or the folder of a run for its newest one",
           {.value = "PATH", .required = true});
  add_path(app, "-o,--output", state->output, "the file to write; the folder, for torch",
           {.value = "PATH", .required = true});
  add_item(app, "--format", "onnx or torch",
           [s = state.get()](const std::string& text) {
             s->torch = text == "torch";
             return s->torch || text == "onnx";
           },
           "onnx or torch: what is written", {.value = "NAME", .otherwise = "onnx", .choices = {"onnx", "torch"}});
  add_item(app, "--library", "timm or torchvision",
           [s = state.get()](const std::string& text) {
             s->library = text == "timm" ? TorchLibrary::timm : TorchLibrary::torchvision;
             return text == to_string(*s->library);
           },
           "for torch: timm or torchvision, which builds the network",
           {.value = "NAME", .otherwise = to_string(TorchLibrary::timm), .choices = {"timm", "torchvision"}});
  state->opset_option =
      add_value(app, "--opset", {.low = 18, .high = 23}, state->opset,
                "version of ONNX's ops; from 20 on gelu, from 21 group norm, from 23 attention and RMS norms are ops",
                {.value = "N", .otherwise = std::to_string(state->opset)});
  add_value(app, "-b,--batch-size", train::ranges::kSteps, state->batch_size, "images of an input",
            {.value = "N", .otherwise = "1"});
  add_switch(app, "--dynamic-batch", state->dynamic_batch, "inputs may have any number of images");
  add_switch(app, "--external-data", state->external_data,
             "weights go to a second file, OUTPUT.data, as those of 2 GB and more always do");
  add_switch(app, "--fold", state->fold, "first fold batch norms into the convolutions before them");
  add_weights_options(app, state->weights);
  add_switch(app, "--check", state->check,
             "exit with an error unless onnxruntime, or PyTorch, agrees to float32's rounding");
  add_value(app, "--num-classes", train::ranges::kClasses, state->num_classes, "classes of a file of weights alone",
            {.value = "K", .otherwise = std::to_string(state->num_classes)});
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::model, Part::network, Part::shape}, {"batch-size", "channels-last"});
  state->running.add(app);
  state->model = option_of(app, "--model");
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
