#include "cli/program.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "json.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace norma;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

namespace {

/// A network of each family.
struct Family {
  std::string network;    ///< the options that make it
  std::string norm;       ///< names of some of its norms, for a policy
  std::string freezes;    ///< a part
  std::string placement;  ///< a line of a policy; "": its norms have one place
  int64_t pixels = 32;    ///< of its images
};

const Family kResNet{"--model resnet18 --small-stem", "layer2.*", "layer1.*", "", 16};
const Family kConvNeXt{"--model convnext_atto --patch-size 4 --layer-scale 0.1", "stages.1.*norm*", "stem.*",
                       "placement = \"post\"\n"};
const Family kVit{"--model vit_tiny --patch-size 8 --global-pool avg --qk-norm rms2d --layer-scale 0.1",
                  "blocks.*.norm1*", "patch_embed.*", "placement = \"peri\"\n", 16};
const Family kDeit{"--model deit_tiny_patch16_224", "norm", "pos_embed", ""};

const std::string kData = " --dataset shapes --batch-size 4 --images 8 --test-images 8 --threads 1 --quiet ";

/// What eval says before the number of images and their rate, from `start` on.
std::string figures_of(const std::string& text, const std::string& start = "") {
  const size_t from = text.find(start);
  const size_t to = text.find(" (8 images");
  return from < to && to != std::string::npos ? text.substr(from, to - from) : "none in " + text;
}

/// Every command takes a network of the family.
void check_commands(const Family& family) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "p.toml") << family.placement << "\"" << family.norm << "\" = \"group:8\"\n";
  const auto works = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments);
    CHECK_MESSAGE(outcome.code == 0, arguments, ": ", outcome.err);
    return outcome.out;
  };
  const std::string size = fmt::format("--img-size {} ", family.pixels);
  const std::string training = "train " + family.network + kData + size;
  works(training + "--output a --telemetry --layer-decay 0.8 --drop-path 0.1 --grad-checkpointing");
  works(training + "--output b --lr 0.01 --norm batch --precision amp_bfloat16 --opt muon");
  works(training + "--output c --norm-policy p.toml --model-ema --opt sgd");
  works(training +
        "--output d --opt sgd --initial-checkpoint a/last.safetensors --reset-head --head-lr 0.01 --freeze '" +
        family.freezes + "'");
  works(training +
        "--output e --opt sgd --initial-checkpoint a/last.safetensors --norm group:8 --convert-norm calibrate "
        "--convert-batches 1");
  const std::string evaluated = works("eval --checkpoint a --test-images 8 --quiet");
  works("eval --checkpoint b --test-images 8 --recalibrate 2 --quiet");
  works("eval --checkpoint c --test-images 8 --use-ema --quiet");
  works("average a/last.safetensors d/last.safetensors --output m.safetensors");
  works("convert a/last.safetensors --to timm --output timm.safetensors");
  CHECK(figures_of(works("eval --checkpoint timm.safetensors " + family.network + " --dataset shapes " + size +
                         "--test-images 8 --batch-size 4 --num-classes 10 --quiet"),
                   "accuracy") == figures_of(evaluated, "accuracy"));
  works("export --checkpoint a --format torch --output torch");
  CHECK(std::filesystem::exists(folder / "torch/network.py"));
  works("export --checkpoint a --output a.onnx --dynamic-batch");
  works("bench " + family.network + " " + size + "-b 2 --bench train --num-warm-iter 0 --num-bench-iter 1 --quiet");
  works("compare --models " + family.network.substr(8) + " --norms batch,layer2d --timing-rounds 1 --output x" + kData +
        size);

  data::save_safetensors(folder.path() / "x.safetensors",
                         {{"input", randn({2, 3, family.pixels, family.pixels}, {.device = kCpu})},
                          {"grad_output", ones({2, 10}, {.device = kCpu})}});
  works("run " + family.network +
        " --num-classes 10 --weights timm.safetensors --input x.safetensors --output y.safetensors "
        "--train --backward");
  works("train --resume a --images 16 --quiet");
}

}  // namespace

TEST_CASE("families: every command takes a resnet") {
  check_commands(kResNet);
}
TEST_CASE("families: every command takes a convnext") {
  check_commands(kConvNeXt);
}
TEST_CASE("families: every command takes a vit") {
  check_commands(kVit);
}
TEST_CASE("families: every command takes a deit") {
  check_commands(kDeit);
}

TEST_CASE("families: timm's name of a vit says the size of images, unless an option does") {
  const TemporaryFolder folder;
  const auto said = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments);
    CHECK_MESSAGE(outcome.code == 0, arguments, ": ", outcome.err);
    return outcome.out;
  };
  const auto size_in = [&](const std::string& arguments) {
    const std::string json =
        said(arguments + " --json - --dataset shapes --batch-size 4 --test-images 8 --threads 1 --quiet");
    return test::parse_json(json)["settings"]["recipe"]["image_size"].get<int64_t>();
  };
  said("train --model vit_tiny_patch32_64 --img-size 96" + kData + "--output a");
  CHECK(size_in("eval --checkpoint a") == 96);
  CHECK(size_in("eval --checkpoint a --model vit_tiny_patch32_64") == 96);
  said("train --model vit_tiny_patch32_64" + kData + "--output b");
  CHECK(size_in("eval --checkpoint b --output w.safetensors") == 64);
  CHECK(size_in("eval --checkpoint w.safetensors --model vit_tiny_patch32_64 --num-classes 10") == 64);
  CHECK(size_in("eval --checkpoint w.safetensors --model vit_tiny --patch-size 32 --img-size 32 --num-classes 10") ==
        32);
}

TEST_CASE("families: a checkpoint whose groups are given by their channels is read again") {
  const TemporaryFolder folder;
  for (const std::string& command :
       {"train --model resnet18 --small-stem --img-size 16 --norm group/8" + kData + "--output g",
        std::string("eval --checkpoint g"), std::string("train --resume g"),
        std::string("export --checkpoint g --format torch --output t")}) {
    const Outcome outcome = run_norma(folder.path(), command);
    CHECK_MESSAGE(outcome.code == 0, command, ": ", outcome.err);
  }
}

TEST_CASE("families: a vit on images of 28 pixels, under its own name and timm's") {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& arguments) { return run_norma(folder.path(), arguments); };
  const auto works = [&](const std::string& arguments) {
    const Outcome outcome = run(arguments);
    CHECK_MESSAGE(outcome.code == 0, arguments, ": ", outcome.err);
    return outcome;
  };
  const std::string training = "train --model vit_tiny --img-size 28" + kData;
  works(training + "--output a --qk-norm group:8");
  works(training + "--output b --initial-checkpoint a/last.safetensors --qk-norm rms2d");
  works("train --resume b --images 16 --quiet");
  const Outcome other = run("train --resume b --images 24 --img-size 32 --quiet");
  CHECK(other.code == 2);
  CHECK(other.err.find("resume: img-size: the run was started with 28, and cannot go on with 32") != std::string::npos);
  works("eval --checkpoint a --quiet --output weights.safetensors");  // which say what their names leave open
  CHECK(data::load_safetensors_metadata(folder.path() / "weights.safetensors").at("qk_norm") == "group:8");
  const Outcome none = works("eval --checkpoint a --qk-norm none --quiet");  // as without the option
  CHECK(figures_of(none.out) == figures_of(works("eval --checkpoint a --quiet").out));
  CHECK(none.err.empty());
  const Outcome warned = works("eval --checkpoint a --qk-norm layer2d --quiet");
  CHECK(warned.err.find("the weights were trained with qk-norm group:8, and layer2d takes them as they are") !=
        std::string::npos);

  works("train --model vit_tiny_patch14_224 --norm group:8 --global-pool avg --img-size 28" + kData + "--output c");
  const std::string figures = figures_of(works("eval --checkpoint c --quiet").out);
  CHECK(figures.starts_with("vit_tiny_patch14_224 group:8 on shapes"));
  CHECK(figures_of(works("eval --checkpoint c --model vit_tiny --quiet").out) == figures);  // with the run's settings
  const Outcome patches = run("eval --checkpoint c --model vit_tiny_patch7_224 --quiet");
  CHECK(patches.code == 2);
  CHECK(patches.err.find("expected patches of 7 pixels, as of this vit_tiny_patch7_224, got 14") != std::string::npos);
}
