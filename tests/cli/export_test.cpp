#include "export/onnx.h"

#include "cli/program.h"
#include "core/version.h"
#include "data/dataset.h"
#include "data/safetensors.h"
#include "models/registry.h"
#include "train/checkpoint.h"
#include "train/recipe.h"

#include <algorithm>
#include <filesystem>
#include <string>

using namespace norma;
using test::complaint;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kNoPython = "NORMA_PYTHON=/nowhere/python";

/// A folder with the weights of a small network, and what names it on the command line.
class Weights {
 public:
  Weights() {
    data::save_safetensors(folder_ / "w.safetensors",
                           models::create_model("convnext_atto", {.num_classes = 3})->state_dict());
  }
  /// norma export of the weights; `environment` stands before the program.
  [[nodiscard]] Outcome exported(const std::string& arguments, const std::string& environment = kNoPython) const {
    return run_norma(
        folder_.path(),
        "export --checkpoint w.safetensors --model convnext_atto --patch-size 4 --num-classes 3 --threads 1 " +
            arguments,
        "env " + environment);
  }
  /// The one line of a refusal, which leaves no file.
  [[nodiscard]] std::string refusal(const std::string& arguments, const std::string& environment = kNoPython) const {
    const std::vector<std::string> before = folder_.names();
    const Outcome outcome = exported(arguments, environment);
    return outcome.code == 2 && std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1 &&
                   folder_.names() == before
               ? outcome.err
               : fmt::format("exit code {}, {} files, stderr: {}", outcome.code, folder_.names().size(), outcome.err);
  }
  /// A program that stands for Python: it is called as python -c PROGRAM FOLDER DTYPE SIZES.
  [[nodiscard]] std::string python(const std::string& script) const {
    const std::filesystem::path file = folder_ / "python";
    test::write_file(file, "#!/bin/sh\n" + script);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return "NORMA_PYTHON=" + file.string();
  }
  [[nodiscard]] std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string file(const std::string& name) const { return read_file(path(name)); }

 private:
  TemporaryFolder folder_;
};

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("norma export: a file with its origin, on any default device") {
  if (!has_onnx()) {  // then nothing else can be tested
    CHECK(Weights().refusal("--output x.onnx") ==
          "norma: export_onnx: expected a build with ONNX; install libonnx-dev and libprotobuf-dev, and build again\n");
    return;
  }
  const Weights weights;
  const Outcome outcome = weights.exported("--output x.onnx");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out == "x.onnx: 13.5 MB, opset 18; onnxruntime for Python is not installed, which would check it\n");
  const std::string bytes = weights.file("x.onnx");
  CHECK(says(bytes, "norma.recipe"));
  CHECK(says(bytes, "model = \"convnext_atto\""));
  CHECK(says(bytes, std::string(version())));
  CHECK(says(bytes, "stages.0.blocks.0.conv_dw.weight"));
  CHECK_FALSE(says(bytes, "norma.largest_error"));
  CHECK(weights.exported("--output y.onnx", kNoPython + " NORMA_DEVICE=cuda-emulated").code == 0);
  CHECK(weights.file("y.onnx") == bytes);
  CHECK(weights.refusal("--output x.onnx") ==
        "norma: export: --output: expected a name that is not taken, got 'x.onnx'\n");
}

TEST_CASE("norma export --external-data: weights in a second file") {
  if (!has_onnx()) {
    return;  // the first test case says so
  }
  const Weights weights;
  const Outcome outcome = weights.exported("--external-data -o x.onnx");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out ==
        "x.onnx: 0.1 MB, x.onnx.data: 13.6 MB, opset 18; onnxruntime for Python is not installed, which would check "
        "it\n");
  CHECK(std::filesystem::file_size(weights.path("x.onnx.data")) > 13'500'000);
  CHECK(says(weights.file("x.onnx"), "x.onnx.data"));
  // onnxruntime is given both files; it "computes" what stands in the second one.
  const Outcome run =
      weights.exported("--external-data -o y.onnx",
                       weights.python("head -c 12 \"$3/y.onnx.data\" > \"$3/output\"\necho onnxruntime 0.1\n"));
  CHECK_MESSAGE(run.code == 0, run.err);
  CHECK(says(run.out, "onnxruntime 0.1: largest error "));
  std::filesystem::remove(weights.path("x.onnx"));
  CHECK(weights.refusal("--external-data -o x.onnx") ==
        "norma: export: --output: expected a name that is not taken, got 'x.onnx.data'\n");
}

TEST_CASE("norma export: what onnxruntime says") {
  if (!has_onnx()) {
    return;  // the first test case says so
  }
  const Weights weights;
  // One that computes 0, and one that agrees: the program asks only for bytes.
  const std::string zeros = weights.python("head -c 12 /dev/zero > \"$3/output\"\necho onnxruntime 0.1\n");
  const std::string wrong = weights.refusal("--output x.onnx --check", zeros);
  CHECK_MESSAGE(wrong.starts_with("norma: export: --check: expected an error of at most "), wrong);
  CHECK(wrong.ends_with(", from float32's rounding, got 1 (root mean squares, as a share of the output's)\n"));
  const std::string wrong_in_two = weights.refusal("--output x.onnx --check --external-data", zeros);
  CHECK_MESSAGE(wrong_in_two.starts_with("norma: export: --check: expected an error of at most "), wrong_in_two);
  const Outcome unchecked = weights.exported("--output x.onnx", zeros);
  CHECK_MESSAGE(
      unchecked.out.starts_with("x.onnx: 13.5 MB, opset 18; onnxruntime 0.1: largest error 1 of the largest output, "),
      unchecked.out);
  CHECK(says(weights.file("x.onnx"), "norma.largest_error"));
  CHECK(says(weights.file("x.onnx"), "onnxruntime 0.1: largest error 1 of the largest output, "));

  CHECK(
      weights.refusal("--output z.onnx --check") ==
      "norma: export: --check: expected onnxruntime for Python, got none; install it with: pip install onnxruntime\n");
  CHECK(
      weights.refusal("--output z.onnx --check", weights.python("exit 3\n")) ==
      "norma: export: --check: expected onnxruntime for Python, got none; install it with: pip install onnxruntime\n");
  CHECK(weights.refusal("--output z.onnx", weights.python("echo no such op >&2\nexit 1\n")) ==
        "norma: export: onnxruntime refuses the model: no such op\n");
  CHECK(weights.refusal("--output z.onnx", weights.python("echo > \"$3/output\"\n")) ==
        "norma: export: expected 12 bytes of onnxruntime, got 1\n");
}

TEST_CASE("norma export --format torch: a folder with weights, an example and a program") {
  const Weights weights;
  const Outcome outcome = weights.exported("--format torch -o x -b 2");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out ==
        "x: weights.safetensors, example.safetensors, network.py; x/network.py compares PyTorch with Norma\n");
  CHECK(says(weights.file("x/network.py"), "timm.create_model(\"convnext_atto\", num_classes=3)\n"));
  const auto example = data::load_safetensors(weights.path("x/example.safetensors"));
  CHECK(example.find("input").sizes() == Sizes{2, 3, 32, 32});
  CHECK(example.find("output").sizes() == Sizes{2, 3});
  const auto saved = data::load_safetensors(weights.path("x/weights.safetensors"));
  CHECK(saved.metadata.at("format") == "pt");
  CHECK(says(saved.metadata.at("norma.recipe"), "model = \"convnext_atto\""));
  CHECK(saved.metadata.at("norma.image_size") == "32");
  CHECK_FALSE(saved.metadata.contains("norma.class_names"));  // a file of weights alone does not say them
  CHECK(weights.refusal("--format torch -o x") ==
        "norma: export: --output: expected a name that is not taken, got 'x'\n");

  const Outcome checked = weights.exported("--format torch -o z --check", weights.python("echo as \"$1\" says\n"));
  CHECK(checked.out == "z: weights.safetensors, example.safetensors, network.py; as z.partial/network.py says\n");
  CHECK_FALSE(std::filesystem::exists(weights.path("z.partial")));
  // What a killed export left is no obstacle; what somebody else has there is.
  std::filesystem::create_directory(weights.path("k.partial"));
  test::write_file(weights.path("k.partial/weights.safetensors"), "half");
  CHECK(weights.exported("--format torch -o k/").code == 0);
  CHECK(std::filesystem::exists(weights.path("k/network.py")));
  CHECK_FALSE(std::filesystem::exists(weights.path("k.partial")));
  std::filesystem::create_directory(weights.path("m.partial"));
  test::write_file(weights.path("m.partial/mine"), "mine");
  CHECK(weights.refusal("--format torch -o m") ==
        "norma: export: --output: expected a name that is not taken, got 'm.partial'\n");
  test::write_file(weights.path("n.partial"), "mine");
  std::filesystem::create_directory_symlink(".", weights.path("o.partial"));
  for (const std::string name : {"n", "o"}) {
    CHECK(weights.refusal("--format torch -o " + name) ==
          "norma: export: --output: expected a name that is not taken, got '" + name + ".partial'\n");
  }
  CHECK(weights.file("n.partial") == "mine");

  const Outcome wrong =
      weights.exported("--format torch -o w --check", weights.python("printf 'Traceback\\nit is 3\\n' >&2\nexit 1\n"));
  CHECK(wrong.err == "norma: export: --check: expected w/network.py to end without an error, got: it is 3\n");
  const Outcome nobody = weights.exported("--format torch -o v --check");
  CHECK(nobody.err ==
        "norma: export: --check: expected v/network.py to end without an error, got: there is no Python\n");

  for (const char* const option : {"--fold", "--dynamic-batch", "--external-data", "--opset 18"}) {
    CHECK(weights.refusal(fmt::format("--format torch -o u {}", option)) ==
          "norma: export: --fold, --dynamic-batch, --external-data, --opset: expected --format onnx, got torch\n");
  }
  CHECK(weights.refusal("--library torchvision -o u.onnx") ==
        "norma: export: --library: expected --format torch, got onnx\n");
  CHECK(weights.refusal("--format torch --library torchvision -o u") ==
        "norma: export_torch: model: expected a network of torchvision, got convnext_atto; timm has it\n");
  CHECK(weights.refusal("--format torch -o w.safetensors/u") ==
        "norma: export: cannot make the folder w.safetensors/u.partial: Not a directory\n");
}

TEST_CASE("norma export: mistakes") {
  CHECK(complaint("export --output x.onnx") == "norma: export: --checkpoint is required\n");
  CHECK(complaint("export --checkpoint none --output x.onnx") ==
        "norma: safetensors: cannot open none: No such file or directory\n");
  CHECK(complaint("export --checkpoint none --opset 17 --output x.onnx") ==
        "norma: export: --opset: expected a whole number from 18 to 23, got 17\n");
  CHECK(complaint("export --checkpoint none --format pt -o x") ==
        "norma: export: --format: expected onnx or torch, got pt\n");
  CHECK(complaint("export --checkpoint none --library jax -o x") ==
        "norma: export: --library: expected timm or torchvision, got jax\n");
  const Weights weights;
  CHECK(weights.refusal("--output x.pb") == "norma: export: --output: expected a name *.onnx, got 'x.pb'\n");
  CHECK(weights.refusal("--output nowhere/x.onnx") ==
        "norma: export: cannot write nowhere/x.onnx: No such file or directory\n");
}

TEST_CASE("norma export: an op of a plug-in that ONNX does not have") {
  if (!has_onnx()) {
    return;  // the first test case says so
  }
  const TemporaryFolder folder;
  const std::string plugin = " --plugin " + (test::plugin_folder() / "by_kernel.so").string();
  const std::string network = "--model convnext_atto --patch-size 4 --num-classes 3 --norm image --threads 1";
  const auto state = models::create_model("convnext_atto", {.num_classes = 3, .norm = "none"})->state_dict();
  data::save_safetensors(folder / "w.safetensors", state);
  const Outcome outcome =
      run_norma(folder.path(), "export --checkpoint w.safetensors --output x.onnx " + network + plugin);
  CHECK(outcome.code == 2);
  CHECK(outcome.err == "norma: export_onnx: expected ops that ONNX has, got image_norm\n");
  CHECK(folder.names() == std::vector<std::string>{"w.safetensors"});
}

TEST_CASE("norma export: a name that a link to nothing has, or that is given away meanwhile, is taken") {
  if (!has_onnx()) {
    return;  // the first test case says so
  }
  const Weights weights;
  for (const char* name : {"x.onnx", "y.onnx.data"}) {
    std::filesystem::create_symlink("nowhere", weights.path(name));
    CHECK(weights.refusal(std::string("--external-data -o ") + std::string(name).substr(0, 6)) ==
          fmt::format("norma: export: --output: expected a name that is not taken, got '{}'\n", name));
  }
  const Outcome late =
      weights.exported("-o z.onnx", weights.python("echo mine > '" + weights.path("z.onnx").string() + "'\nexit 3\n"));
  CHECK(late.code == 2);
  CHECK(late.err == "norma: export: cannot write z.onnx: File exists\n");
  CHECK(weights.file("z.onnx") == "mine\n");
}

TEST_CASE("norma export: a signal while Python checks ends both, and leaves nothing") {
  const Weights weights;
  std::filesystem::create_directory(weights.path("tmp"));
  const std::string python = weights.python("echo $$ > '" + weights.path("child").string() + "'\nexec sleep 300\n");
  const pid_t program = test::start_norma(
      weights.path(""),
      "export --checkpoint w.safetensors --model convnext_atto --patch-size 4 --num-classes 3 --threads 1 "
      "--format torch --check -o x",
      python + " TMPDIR=tmp");
  const Outcome cut =
      test::signal_when(program, weights.path(""), SIGTERM, [&] { return weights.file("child").ends_with('\n'); });
  CHECK_MESSAGE(cut.code == 143, cut.err);
  CHECK(cut.err == "\nnorma: SIGTERM came: ending soon, without a result\n");
  CHECK(::kill(std::stoi(weights.file("child")), 0) != 0);
  CHECK(std::filesystem::is_empty(weights.path("tmp")));
  CHECK_FALSE(std::filesystem::exists(weights.path("x")));
  CHECK_FALSE(std::filesystem::exists(weights.path("x.partial")));
}

TEST_CASE("norma export: texts of a folder for temporary files, of names on two lines, and of sizes in a checkpoint") {
  const Weights weights;
  if (has_onnx()) {
    CHECK(weights.refusal("-o x.onnx", kNoPython + " TMPDIR=/no/such/folder") ==
          "norma: export: expected a folder for temporary files in TMPDIR, got '/no/such/folder'\n");
    CHECK(weights.refusal("-o x.onnx", weights.python("exit 0\n")) ==
          "norma: export: expected 12 bytes of onnxruntime, got 0\n");
  }
  const Outcome named = weights.exported("--format torch -o 'a\nb'");
  CHECK(named.out ==
        "a?b: weights.safetensors, example.safetensors, network.py; a?b/network.py compares PyTorch with Norma\n");
  train::Recipe recipe{.model = "convnext_atto", .patch_size = 4};
  recipe.image_size = 0;
  train::save_checkpoint(
      weights.path("c.safetensors"),
      {.model = data::load_safetensors(weights.path("w.safetensors")).tensors,
       .model_name = "convnext_atto",
       .options = {{"recipe", train::to_json(recipe)}, {train::kClassNamesKey, R"(["a", "b", "c"])"}}});
  const Outcome none = run_norma(weights.path(""), "export --checkpoint c.safetensors --format torch -o c");
  CHECK(none.code == 2);
  CHECK_MESSAGE(none.err.starts_with("norma: export: img-size: expected a whole number from 1 to "), none.err);
}

TEST_CASE("norma export: class names, image size, mean and deviation of a run's images go with the network") {
  const TemporaryFolder folder;
  REQUIRE(
      run_norma(folder.path(),
                "train --model convnext_atto --patch-size 4 --dataset shapes --classes 2,0 --images 4 --batch-size 4 "
                "--test-images 4 --threads 1 --quiet --output o")
          .code == 0);
  const auto shapes = data::make_dataset("shapes", {.split = data::Split::test})->info();
  const std::string names = fmt::format(R"(["{}","{}"])", shapes.class_names[2], shapes.class_names[0]);
  const std::string normalization = R"({"mean":[0.5,0.5,0.5],"std":[)";
  REQUIRE(run_norma(folder.path(), "export --checkpoint o --threads 1 --format torch --output t").code == 0);
  const auto metadata = data::load_safetensors(folder / "t" / "weights.safetensors").metadata;
  CHECK(metadata.at("norma.class_names") == names);
  CHECK(metadata.at("norma.image_size") == "32");
  CHECK(metadata.at("norma.normalization").starts_with(normalization));
  const std::string program = test::read_file(folder / "t" / "network.py");
  CHECK_MESSAGE(says(program, "\n\n\nCLASS_NAMES = " + names + "\nIMAGE_SIZE = 32\nNORMALIZATION = " + normalization),
                program);
  if (has_onnx()) {
    REQUIRE(run_norma(folder.path(), "export --checkpoint o --threads 1 --output x.onnx", kNoPython).code == 0);
    const std::string bytes = test::read_file(folder / "x.onnx");
    CHECK(says(bytes, names));
    CHECK(says(bytes, normalization));
  }
}
