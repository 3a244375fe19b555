#include "cli/program.h"
#include "core/factory.h"
#include "core/tape.h"
#include "data/safetensors.h"
#include "models/registry.h"
#include "support.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

using namespace norma;
using test::differ;
using test::largest_number;
using test::max_difference;
using test::Outcome;
using test::random_tensor;
using test::run_norma;
using test::TemporaryFolder;

namespace {

constexpr const char* kCommand =
    "run --model resnet18 --num-classes 5 --weights W.safetensors --input X.safetensors --output Y.safetensors ";

/// W.safetensors and X.safetensors for resnet18 with 5 classes.
struct Files {
  TemporaryFolder folder;
  std::shared_ptr<nn::Module> model = models::create_model("resnet18", {.num_classes = 5, .seed = 1});
  Tensor input = random_tensor({2, 3, 33, 40}, 2, DType::float32);
  Tensor grad_output = random_tensor({2, 5}, 3, DType::float32);

  Files() {
    data::save_safetensors(folder / "W.safetensors", model->state_dict());
    data::save_safetensors(folder / "X.safetensors", {{"input", input}, {"grad_output", grad_output}});
  }
  [[nodiscard]] Outcome run(const std::string& options) const { return run_norma(folder.path(), kCommand + options); }
  [[nodiscard]] data::Safetensors result() const { return data::load_safetensors(folder / "Y.safetensors"); }
};

std::set<std::string> names_of(const data::Safetensors& file) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : file.tensors) {
    names.insert(name);
  }
  return names;
}

}  // namespace

TEST_CASE("norma run: evaluation gives the output and nothing else") {
  const Files files;
  const Outcome outcome = files.run("");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const data::Safetensors result = files.result();
  CHECK(names_of(result) == std::set<std::string>{"output"});
  files.model->eval();
  const NoGradGuard no_grad;
  CHECK(max_difference(result.find("output"), (*files.model)(files.input)) == 0);
}

TEST_CASE("norma run: training with backward gives every gradient and running statistic") {
  const Files files;
  const Outcome outcome = files.run("--train --backward");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const data::Safetensors result = files.result();

  Tensor input = files.input.detach();
  input.set_requires_grad();
  const Tensor output = (*files.model)(input);
  backward(output, files.grad_output);
  std::set<std::string> expected = {"output", "grad.input"};
  CHECK(max_difference(result.find("output"), output) == 0);
  CHECK(max_difference(result.find("grad.input"), input.grad()) == 0);
  for (const auto& [name, parameter] : files.model->named_parameters()) {
    expected.insert("grad." + name);
    CHECK_MESSAGE(max_difference(result.find("grad." + name), parameter.grad()) == 0, name);
  }
  for (const auto& [name, buffer] : files.model->named_buffers()) {
    if (!name.ends_with("num_batches_tracked")) {
      expected.insert("buffer." + name);
      CHECK_MESSAGE(max_difference(result.find("buffer." + name), buffer) == 0, name);
    }
  }
  CHECK(names_of(result) == expected);
  for (const auto& [name, tensor] : result.tensors) {
    CHECK_MESSAGE(tensor.dtype() == DType::float32, name);
  }
}

TEST_CASE("norma run: --norm-policy puts other norms in") {
  const Files files;
  test::write_file(files.folder / "p.toml", "\"layer4.*\" = \"group:8\"\n");
  const auto model = models::create_model(
      "resnet18",
      {.num_classes = 5, .seed = 1, .norm_policy = nn::parse_norm_policy("\"layer4.*\" = \"group:8\"\n", "p.toml")});
  data::save_safetensors(files.folder / "W.safetensors", model->state_dict());
  const Outcome outcome = files.run("--norm-policy p.toml");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  model->eval();
  const NoGradGuard no_grad;
  CHECK(max_difference(files.result().find("output"), (*model)(files.input)) == 0);
}

TEST_CASE("norma run: float64 and channels_last agree with float32, each in its precision") {
  const Files files;
  REQUIRE(files.run("--train --backward").code == 0);
  const data::Safetensors single = files.result();
  REQUIRE(files.run("--train --backward --precision float64").code == 0);
  const data::Safetensors wide = files.result();
  REQUIRE(files.run("--train --backward --channels-last --precision float64").code == 0);
  const data::Safetensors last = files.result();
  CHECK(names_of(single) == names_of(wide));
  for (const auto& [name, tensor] : wide.tensors) {
    CHECK_MESSAGE(tensor.dtype() == DType::float64, name);
    CHECK_MESSAGE(tensor.sizes() == single.find(name).sizes(), name);
  }
  CHECK(max_difference(single.find("output"), wide.find("output")) < 1e-3);
  CHECK(max_difference(last.find("output"), wide.find("output")) < 1e-10);
  CHECK(max_difference(last.find("grad.input"), wide.find("grad.input")) < 1e-10);
}

TEST_CASE("norma run: another device gives the same results") {
  const Files files;
  // Kernels of another device add up in another order; in float64 that is far below any mistake.
  for (const auto& [precision, relative] : {std::pair{"float64", 1e-10}, std::pair{"float32", 2e-3}}) {
    const std::string arguments = fmt::format("--train --backward --precision {}", precision);
    REQUIRE(files.run(arguments).code == 0);
    const data::Safetensors expected = files.result();
    const Outcome outcome = files.run(arguments + " --device cuda-emulated");
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const data::Safetensors result = files.result();
    CHECK(names_of(result) == names_of(expected));
    for (const auto& [name, tensor] : expected.tensors) {
      const double largest = largest_number(tensor);
      CHECK_MESSAGE(max_difference(result.find(name), tensor) <= relative * (1e-3 + largest), precision, " ", name);
    }
  }
}

TEST_CASE("norma run: wrong names in the state dict are all listed") {
  const Files files;
  data::NamedTensors dict;
  for (const auto& [name, tensor] : files.model->state_dict()) {
    if (name == "bn1.weight" || name == "layer4.1.bn2.running_var") {
      continue;
    }
    dict.emplace_back(name, name == "fc.weight" ? zeros({5, 511}) : tensor);
  }
  dict.emplace_back("fc.scale", zeros({5}));
  data::save_safetensors(files.folder / "W.safetensors", dict);
  const Outcome outcome = files.run("");
  CHECK(outcome.code == 2);
  for (const char* name : {"bn1.weight", "layer4.1.bn2.running_var", "fc.scale", "fc.weight", "[5, 512]", "[5, 511]"}) {
    CHECK_MESSAGE(outcome.err.find(name) != std::string::npos, outcome.err);
  }
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK_FALSE(std::filesystem::exists(files.folder / "Y.safetensors"));
}

TEST_CASE("norma run: num_batches_tracked may be missing") {
  const Files files;
  data::NamedTensors dict;
  for (const auto& [name, tensor] : files.model->state_dict()) {
    if (!name.ends_with("num_batches_tracked")) {
      dict.emplace_back(name, tensor);
    }
  }
  data::save_safetensors(files.folder / "W.safetensors", dict);
  CHECK(files.run("").code == 0);
}

TEST_CASE("norma run: 16-bit precisions give float32 files near to float32's results") {
  const Files files;
  REQUIRE(files.run("").code == 0);
  const Tensor expected = files.result().find("output");
  double largest = 0;
  for (const double value : expected.to_vector<double>()) {
    largest = std::max(largest, std::abs(value));
  }
  for (const std::string precision : {"bfloat16", "float16", "amp_bfloat16", "amp_float16"}) {
    INFO(precision);
    const Outcome outcome = files.run("--backward --precision " + precision);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const data::Safetensors result = files.result();
    for (const auto& [name, x] : result.tensors) {
      INFO(name);
      CHECK(x.dtype() == DType::float32);
    }
    // 18 layers of roundings by up to 2^-9 (2^-12 for float16), of which some cancel.
    CHECK(max_difference(result.find("output"), expected) <= (precision == "float16" ? 0.01 : 0.06) * largest);
    CHECK(differ(result.find("output"), expected));
  }
}

TEST_CASE("norma run: bad input gives one line each and no output") {
  const Files files;
  const auto error = [&](const std::string& options) {
    const Outcome outcome = files.run(options);
    CHECK(outcome.code == 2);
    CHECK_FALSE(std::filesystem::exists(files.folder / "Y.safetensors"));
    return outcome.err;
  };
  CHECK(error("--precision bfloat") == "norma: precision: unknown precision 'bfloat'; did you mean 'bfloat16'?\n");
  CHECK(error("--cast-policy nowhere.toml") ==
        "norma: cast policy: cannot open nowhere.toml: No such file or directory\n");
  std::ofstream(files.folder / "policy.toml") << "\"relu\" = \"float32\"\n";
  CHECK(error("--precision bfloat16 --cast-policy policy.toml") ==
        "norma: precision: cast-policy: expected precision amp_bfloat16 or amp_float16, which it is for, got bfloat16 "
        "(cast policy "
        "'policy.toml')\n");
  std::ofstream(files.folder / "policy.toml") << "\"relu\" = \"float32\"\n\"convolve\" = \"keep\"\n";
  CHECK(error("--precision amp_bfloat16 --cast-policy policy.toml")
            .starts_with("norma: cast policy: policy.toml:2:1: unknown op 'convolve'"));
  const std::string no_gpu = error("--device cuda");
  CHECK_MESSAGE((no_gpu == "norma: run: this build of Norma has no CUDA\n" ||
                 no_gpu.starts_with("norma: run: expected a GPU, got none: ")),
                no_gpu);
  CHECK(error("--device gpu") == "norma: device: expected cpu, cuda, cuda:N or cuda-emulated, got 'gpu'\n");
  CHECK(error("--norm bath").find("unknown norm 'bath'; did you mean 'batch'?") != std::string::npos);

  data::save_safetensors(files.folder / "X.safetensors", {{"image", files.input}});
  CHECK(error("") == "norma: run: input: expected a tensor 'input' in 'X.safetensors', got none\n");
  data::save_safetensors(files.folder / "X.safetensors", {{"input", zeros({3, 8, 8})}});
  CHECK(error("") == "norma: run: input: expected rank 4, got rank 3 (sizes [3, 8, 8])\n");
  data::save_safetensors(files.folder / "X.safetensors", {{"input", zeros({2, 1, 8, 8})}});
  CHECK(error("") == "norma: run: input: expected sizes [N, 3, H, W], got [2, 1, 8, 8]\n");
  data::save_safetensors(files.folder / "X.safetensors", {{"input", files.input}});
  CHECK(error("--backward") == "norma: run: input: expected a tensor 'grad_output' in 'X.safetensors', got none\n");
  data::save_safetensors(files.folder / "X.safetensors", {{"input", files.input}, {"grad_output", zeros({2, 4})}});
  CHECK(error("--backward") == "norma: run: grad_output: expected sizes [2, 5], got [2, 4]\n");
}

TEST_CASE("norma run: an output that cannot be written") {
  const Files files;
  const Outcome outcome =
      run_norma(files.folder.path(),
                "run --model resnet18 --num-classes 5 --weights W.safetensors --input X.safetensors --output none/Y");
  CHECK(outcome.code == 2);
  CHECK(outcome.err == "norma: safetensors: cannot write none/Y: No such file or directory\n");
}
