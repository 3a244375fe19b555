#include "cli/program.h"
#include "data/safetensors.h"
#include "models/registry.h"
#include "train/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <string>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTrain =
    "train --model convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --images 8 --test-images 8 --threads 1 "
    "--quiet ";

/// Everything of a refusal but the line break; the exit code where it is none.
std::string refusal(const TemporaryFolder& folder, const std::string& arguments) {
  const Outcome outcome = run_norma(folder.path(), arguments);
  return outcome.code == 2 && std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1
             ? outcome.err.substr(0, outcome.err.size() - 1)
             : fmt::format("exit code {}, stderr: {}", outcome.code, outcome.err);
}

}  // namespace

TEST_CASE("norma average: the mean of two runs can be evaluated, and not resumed") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTrain + "--output a").code == 0);
  REQUIRE(run_norma(folder.path(), kTrain + "--output b --lr 0.01").code == 0);
  const Outcome outcome =
      run_norma(folder.path(), "average a/last.safetensors b/last.safetensors --output m.safetensors");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out == "the average of 2 checkpoints: m.safetensors\n");
  const auto value = [&](const std::string& file) {
    for (const auto& [name, x] : train::load_weights(folder / file).tensors) {
      if (name == "head.fc.bias") {
        return x.to_vector<double>()[3];
      }
    }
    return 0.0;
  };
  CHECK(value("a/last.safetensors") != value("b/last.safetensors"));
  CHECK(value("m.safetensors") ==
        doctest::Approx((value("a/last.safetensors") + value("b/last.safetensors")) / 2).epsilon(1e-6));
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint m.safetensors --threads 1");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);

  const Outcome best = run_norma(folder.path(), "average a --best 1 --output best.safetensors");
  CHECK_MESSAGE(best.out.starts_with("a/last.safetensors: accuracy "), best.out, best.err);
  CHECK(value("best.safetensors") == value("a/last.safetensors"));

  CHECK(
      refusal(folder, "train --resume m.safetensors") ==
      "norma: resume: 'm.safetensors' is an average of checkpoints, without an optimizer's state: it can be evaluated, "
      "not resumed");
  CHECK(refusal(folder, "average a/last.safetensors --output m.safetensors") ==
        "norma: average: --output: expected a name that is not taken, got 'm.safetensors'");
  CHECK(refusal(folder, "average a --output x.safetensors") ==
        "norma: average: 'a': expected a checkpoint, got a folder; --best N takes the best N of it");
  CHECK(refusal(folder, "average a b --best 1 --output x.safetensors") ==
        "norma: average: --best: expected the folder of one run");
  CHECK(refusal(folder, "average a/last.safetensors a/model_best.safetensors --output x.safetensors") ==
        "norma: average: expected each checkpoint once, got 'a/model_best.safetensors' twice");
  CHECK(refusal(folder, "average --output x.safetensors") == "norma: average: expected checkpoints, got none");
  CHECK_FALSE(std::filesystem::exists(folder / "x.safetensors"));
}

TEST_CASE("norma convert: there and back again gives the same bytes, and says what it renames") {
  const TemporaryFolder folder;
  const data::NamedTensors state = models::create_model("convnext_atto", {.num_classes = 3, .seed = 5})->state_dict();
  data::save_safetensors(folder / "timm.safetensors", state, {{"origin", "a test"}});
  for (const std::string library : {"torchvision", "facebook", "huggingface"}) {
    const std::string there = library + ".safetensors";
    const Outcome outcome =
        run_norma(folder.path(), "convert timm.safetensors --from timm --to " + library + " --output " + there);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(outcome.out.find("head.fc.bias → " +
                           std::string(library == "facebook"      ? "head"
                                       : library == "torchvision" ? "classifier.2"
                                                                  : "classifier") +
                           ".bias\n") != std::string::npos);
    CHECK(outcome.out.find(fmt::format("\n{0} tensors, {0} renamed: {1}; from timm.safetensors, under names of timm\n",
                                       state.size(), there)) != std::string::npos);
    const std::string back = "from-" + there;
    const Outcome again =
        run_norma(folder.path(), "convert " + there + " --from " + library + " --to timm --output " + back);
    CHECK_MESSAGE(again.code == 0, again.err);
    CHECK(read_file(folder / back) == read_file(folder / "timm.safetensors"));
  }
  CHECK(refusal(folder, "convert timm.safetensors --from timm --to facebook --output facebook.safetensors") ==
        "norma: convert: --output: expected a name that is not taken, got 'facebook.safetensors'");
  CHECK(refusal(folder, "convert timm.safetensors --from tim --to facebook --output x.safetensors") ==
        "norma: convert: --from: unknown library 'tim'; did you mean 'timm'?");
  // A file of PyTorch's is read as it is.
  const data::Safetensors files =
      data::load_safetensors(test::source_folder() / "tests" / "reference" / "pytorch_files.safetensors");
  const Tensor bytes = files.find("training.zip");
  test::write_file(folder / "weights.pth",
                   {reinterpret_cast<const char*>(bytes.data<uint8_t>()), static_cast<size_t>(bytes.numel())});
  const Outcome pth =
      run_norma(folder.path(), "convert weights.pth --from torchvision --to timm --output from_pth.safetensors");
  CHECK_MESSAGE(pth.out.find("module.fc.weight → fc.weight\n") != std::string::npos, pth.out, pth.err);
  CHECK(test::max_difference(data::load_safetensors(folder / "from_pth.safetensors").find("fc.weight"),
                             files.find("expected.training.state_dict.module.fc.weight")) == 0);
  const Outcome averaged = run_norma(
      folder.path(), "convert weights.pth --use-ema --from torchvision --to timm --output averaged.safetensors");
  CHECK_MESSAGE(averaged.code == 0, averaged.err);
  CHECK(test::max_difference(data::load_safetensors(folder / "averaged.safetensors").find("fc.weight"),
                             files.find("expected.training.state_dict_ema.fc.weight")) == 0);
}
