#include "cli/program.h"
#include "data/safetensors.h"
#include "data/tensor_file.h"
#include "support.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const data::ZipArchive& archive() {
  static const data::ZipArchive all("test", test::source_folder() / "tests" / "reference" / "checkpoints.zip",
                                    "the files of make_checkpoints.py");
  return all;
}

/// Writes KIND.pth into the folder.
void write_checkpoint(const TemporaryFolder& folder, const std::string& kind) {
  const auto found = std::ranges::find(archive().names(), kind + ".pth");
  REQUIRE_MESSAGE(found != archive().names().end(), kind);
  test::write_file(folder / (kind + ".pth"), archive().read(static_cast<size_t>(found - archive().names().begin())));
}

const std::string kRun = " --model convnext_atto --threads 1";
const std::string kNetwork = kRun + " --patch-size 4";
const std::string kData = " --dataset shapes --batch-size 4 --test-images 4";

/// What all commands but train write and print of the weights in a file.
struct Written {
  std::string converted;
  std::string forward;
  std::string exported;
  std::string accuracy;
};

/// Runs a command that must succeed; its output.
std::string said(const TemporaryFolder& folder, const std::string& arguments) {
  const Outcome outcome = run_norma(folder.path(), arguments);
  CHECK_MESSAGE(outcome.code == 0, arguments, ": ", outcome.err);
  return outcome.out;
}

std::string bytes_of(const std::filesystem::path& file) {
  std::string bytes = read_file(file);
  std::filesystem::remove(file);
  return bytes;
}

Written results(const TemporaryFolder& folder, const std::string& file, const std::string& options) {
  Written written;
  said(folder, "convert " + file + " --to timm --output c.safetensors" + options);
  written.converted = bytes_of(folder / "c.safetensors");
  said(folder, "run" + kRun + " --num-classes 10 --weights " + file + " --input x.npy --output y.npy" + options);
  written.forward = bytes_of(folder / "y.npy");
  said(folder, "export" + kNetwork + " --num-classes 10 --format torch --img-size 32 --checkpoint " + file +
                   " --output t" + options);
  written.exported = read_file(folder / "t" / "weights.safetensors");
  std::filesystem::remove_all(folder / "t");
  const std::string text = said(folder, "eval" + kNetwork + kData + " --checkpoint " + file + options);
  const size_t at = text.find("accuracy ");
  written.accuracy = at == std::string::npos ? text : text.substr(at, text.find(" (", at) - at);
  return written;
}

/// The line of a short run that begins with a file.
std::string initial_line(const TemporaryFolder& folder, const std::string& arguments) {
  const std::string text =
      said(folder, "train" + kData + " --images 4 --opt sgd --quiet --threads 1 --output r" + arguments);
  std::filesystem::remove_all(folder / "r");
  const size_t at = text.find("initial-checkpoint: ");
  return at == std::string::npos ? text : text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("checkpoints: each kind of file that people have gives all commands the same network") {
  const TemporaryFolder folder;
  data::write_tensor_file(folder / "x.npy", {{"input", test::random_tensor({2, 3, 32, 32}, 1, DType::float32)}});
  write_checkpoint(folder, "state_dict");
  const Written expected = results(folder, "state_dict.pth", "");
  const std::string start = "initial-checkpoint: 128 of 128 tensors are taken from ";
  CHECK(initial_line(folder, " --model convnext_atto --patch-size 4 --initial-checkpoint state_dict.pth") ==
        start + "state_dict.pth, under names of timm");
  struct Kind {
    std::string name;
    std::string options;
    std::string text;  ///< behind the file's name
  };
  const std::string args = "; left out: args (argparse.Namespace), ";
  const std::vector<Kind> kinds = {
      {"legacy", "", ""},
      {"parameters", "", ""},
      {"attribute", "", ""},
      {"first", "", ""},
      {"lightning", "", ", behind 'state_dict.model.'; left out: hyper_parameters (argparse.Namespace), "},
      {"dtypes", "", ", behind 'net.'; left out: dtype (torch.bfloat16), device (torch.device), "},
      {"torchvision", "", ", behind 'model.'; left out: "},
      {"timm", "", ", behind 'state_dict.module.'; left out: "},
      {"prefix", "",
       ", behind 'model_state_dict._orig_mod.backbone.'; left out: model_state_dict._orig_mod.projector.0.weight"},
      {"several", " --weights-prefix encoder_q",
       ", behind 'state_dict.module.encoder_q.'; left out: state_dict.module.encoder_k (128 tensors), "
       "state_dict.module.queue"},
      {"weights", "", ", behind 'weights.net.'"}};
  for (const auto& [name, options, text] : kinds) {
    CAPTURE(name);
    write_checkpoint(folder, name);
    const Written found = results(folder, name + ".pth", options);
    CHECK(found.converted == expected.converted);
    CHECK(found.forward == expected.forward);
    CHECK(found.exported == expected.exported);
    CHECK(found.accuracy == expected.accuracy);
    const std::string line =
        initial_line(folder, " --model convnext_atto --patch-size 4 --initial-checkpoint " + name + ".pth" + options);
    CHECK_MESSAGE(line.starts_with(start + name + ".pth, under names of timm" + text), line);
    std::filesystem::remove(folder / (name + ".pth"));
  }
}

TEST_CASE("checkpoints: without a head, halved, of several networks, averages") {
  const TemporaryFolder folder;
  write_checkpoint(folder, "headless");
  CHECK(initial_line(folder, " --model convnext_atto --patch-size 4 --initial-checkpoint headless.pth") ==
        "initial-checkpoint: 126 of 128 tensors are taken from headless.pth, under names of timm; start values: "
        "head.fc.weight, head.fc.bias");
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  CHECK(
      refusal("eval" + kNetwork + kData + " --checkpoint headless.pth") ==
      "norma: weights: headless.pth: expected those of this convnext_atto, got a file of another convnext_atto (by its "
      "names): load_state_dict: missing: head.fc.weight, head.fc.bias\n");

  write_checkpoint(folder, "half");
  const std::string resnet = " --model resnet18 --threads 1";
  CHECK(initial_line(folder, " --model resnet18 --initial-checkpoint half.pth") ==
        "initial-checkpoint: 122 of 122 tensors are taken from half.pth, under names of torchvision");
  CHECK(said(folder, "eval" + resnet + kData + " --checkpoint half.pth").find("accuracy ") != std::string::npos);
  said(folder, "export" + resnet + " --num-classes 10 --format torch --img-size 32 --checkpoint half.pth --output t");
  said(folder, "convert half.pth --to huggingface --output hf.safetensors");
  CHECK(data::load_safetensors(folder / "hf.safetensors")
            .find("embedder.embedder.normalization.num_batches_tracked")
            .dtype() == DType::int64);
  CHECK(initial_line(folder, " --model resnet18 --initial-checkpoint hf.safetensors") ==
        "initial-checkpoint: 122 of 122 tensors are taken from hf.safetensors, under names of huggingface");

  write_checkpoint(folder, "several");
  CHECK(refusal("eval" + kNetwork + kData + " --checkpoint several.pth") ==
        "norma: weights: several.pth: expected the weights of one network, got several, behind "
        "state_dict.module.encoder_k., state_dict.module.encoder_q.; --weights-prefix names one\n");
  CHECK(refusal("convert several.pth --to timm --weights-prefix teacher --output x.safetensors") ==
        "norma: weights: several.pth: --weights-prefix: expected one that stands before the names of a network "
        "(state_dict.module.encoder_k., state_dict.module.encoder_q.), got 'teacher'\n");

  write_checkpoint(folder, "timm");
  said(folder, "convert timm.pth --to timm --output model.safetensors");
  said(folder, "convert timm.pth --use-ema --to timm --output ema.safetensors");
  const data::Safetensors model = data::load_safetensors(folder / "model.safetensors");
  const data::Safetensors ema = data::load_safetensors(folder / "ema.safetensors");
  CHECK(ema.find("head.fc.bias").to_vector<float>()[0] ==
        doctest::Approx(model.find("head.fc.bias").to_vector<float>()[0] + 1));
  // What stands beside the network has no name in another library, and is left out; an unknown part of it is refused.
  data::NamedTensors more = model.tensors;
  more.emplace_back("projector.0.bias", ones({2}));
  data::save_safetensors(folder / "more.safetensors", more);
  const std::string more_said = said(folder, "convert more.safetensors --to facebook --output fb.safetensors");
  CHECK_MESSAGE(more_said.ends_with("; not of the network, left out: projector.0.bias\n"), more_said);
  CHECK(data::load_safetensors(folder / "fb.safetensors").tensors.size() == model.tensors.size());
  more.back().first = "stages.0.blocks.0.extra";
  data::save_safetensors(folder / "more.safetensors", more);
  CHECK(
      refusal("convert more.safetensors --to facebook --output x.safetensors") ==
      "norma: convert: tensor 'stages.0.blocks.0.extra': facebook has none of this name, or of a network like this\n");
  CHECK(refusal("convert state.pth --to timm --output x.safetensors").find("cannot open state.pth") !=
        std::string::npos);
  CHECK(refusal("eval" + kNetwork + " --dataset shapes --classes 0,1 --checkpoint timm.pth") ==
        "norma: weights: timm.pth: expected a classifier of 2 classes, got one of 10; --num-classes says how many the "
        "file has\n");
  CHECK(said(folder, "eval" + kNetwork + kData + " --classes 0,1 --num-classes 10 --checkpoint timm.pth")
            .find("accuracy ") != std::string::npos);
}
