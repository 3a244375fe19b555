#include "cli/program.h"

#include <algorithm>
#include <string>

using namespace norma;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;
using test::write_file;

namespace {

const std::string kData = "--dataset shapes --batch-size 4 --images 8 --test-images 4 --quiet ";
const std::string kTiny = "train --model convnext_atto --patch-size 4 " + kData;

}  // namespace

TEST_CASE("norma train: a norm policy is part of the run, also when it is evaluated or resumed") {
  const TemporaryFolder folder;
  write_file(folder / "p.toml", "\"stages.3.*\" = \"group:8\"\n\"stem.1\" = \"layer2d\"\n");
  const Outcome trained = run_norma(folder.path(), kTiny + "--norm batch --norm-policy p.toml --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const Outcome weights = run_norma(
      folder.path(),
      "eval --checkpoint o/last.safetensors --model convnext_atto --patch-size 4 --norm batch --dataset shapes "
      "--test-images 4 --norm-policy p.toml");
  CHECK_MESSAGE(weights.code == 0, weights.err);
  CHECK(weights.out.starts_with("convnext_atto batch + p.toml on shapes: accuracy "));
  std::filesystem::remove(folder / "p.toml");
  // Group norm and layer norm have no running statistics: the checkpoint fits only the same policy.
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  const Outcome resumed = run_norma(folder.path(), "train --resume o --images 16 --quiet");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
}

TEST_CASE("norma train: options that leave out weights and add statistics, from the command line and from a policy") {
  const TemporaryFolder folder;
  write_file(folder / "p.toml", "\"stages.3.*\" = \"group:8[affine=false]\"\n\"stem.1\" = \"batch[bias=false]\"\n");
  const Outcome trained =
      run_norma(folder.path(),
                kTiny + "--norm 'instance[track_running_stats=true,momentum=0.01]' --norm-policy p.toml --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(
      evaluated.out.starts_with("convnext_atto instance[track_running_stats=true,momentum=0.01] + p.toml on shapes: "));
  // Without the options other tensors are asked for.
  const Outcome other = run_norma(folder.path(), "eval --checkpoint o --norm instance");
  CHECK(other.code == 2);
  CHECK(other.err.find("stages.0.blocks.0.norm.running_mean") != std::string::npos);
}

TEST_CASE("norma: the placement of a convnext's norms is part of the run, and weights of another one are refused") {
  const TemporaryFolder folder;
  for (const char* placement : {"pre", "post", "peri"}) {
    write_file(folder / fmt::format("{}.toml", placement), fmt::format("placement = \"{}\"\n", placement));
  }
  const Outcome trained = run_norma(folder.path(), kTiny + "--norm-policy pre.toml --drop-path 0.1 --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const Outcome again = run_norma(folder.path(), "train --config o/args.toml --quiet --output p");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK(test::read_file(folder / "p/args.toml").find("norm-policy = \"pre.toml\"") != std::string::npos);
  std::filesystem::remove(folder / "pre.toml");  // the checkpoint has its text
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.out.starts_with("convnext_atto layer2d + pre.toml on shapes: accuracy "));
  const std::string figures = evaluated.out.substr(0, evaluated.out.find("(4 images"));
  CHECK(run_norma(folder.path(), "eval --checkpoint p").out.starts_with(figures));
  const Outcome resumed = run_norma(folder.path(), "train --resume o --images 16 --quiet");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);

  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  const std::string of_pre = "norma: weights: o/last.safetensors: expected weights for the norm placement ";
  CHECK(refusal("eval --checkpoint o --norm-policy post.toml") == of_pre + "post, as of this convnext_atto, got pre\n");
  CHECK(refusal(kTiny + "--output q --initial-checkpoint o/last.safetensors --norm-policy peri.toml") ==
        of_pre + "peri, as of this convnext_atto, got pre\n");
  CHECK(refusal(kTiny + "--output q --initial-checkpoint o/last.safetensors") ==
        of_pre + "inside, as of this convnext_atto, got pre\n");
  CHECK(refusal("eval --checkpoint o --norm rms2d --convert-norm calibrate --norm-policy peri.toml") ==
        of_pre + "peri, as of this convnext_atto, got pre\n");
  CHECK(refusal("train --resume o --norm-policy post.toml") ==
        "norma: resume: norm-policy: the run was started with that of 'pre.toml', and cannot go on with that of "
        "'post.toml'\n");
  CHECK(refusal("convert o/last.safetensors --from timm --to torchvision --output q.safetensors") ==
        "norma: convert: tensor 'stages.0.blocks.0.norm_pre.weight': torchvision has none of this name, or of a "
        "network like this\n");
  CHECK(
      refusal("export --checkpoint o --format torch --output q") ==
      "norma: export_torch: norm_policy: placement: expected inside, as timm and torchvision have no other, got pre\n");
  CHECK(refusal("compare --models convnext_atto,resnet18 --norms group --dataset shapes --norm-policy post.toml "
                "--output q") ==
        "norma: norm policy: post.toml:1: placement: expected a network that can place its norms, such as "
        "convnext_tiny, got resnet18\n");
  CHECK(!std::filesystem::exists(folder / "q"));
}

TEST_CASE("norma: norm policies that are wrong give one line with the place") {
  const TemporaryFolder folder;
  write_file(folder / "syntax.toml", "\"bn1\" = \"none\"\n\"layer1 = \"none\"\n");
  write_file(folder / "unmatched.toml", "\"bn1\" = \"none\"\n\"stages.*\" = \"none\"\n");
  const auto complaint = [&](const std::string& file) {
    const Outcome outcome =
        run_norma(folder.path(), "train --model resnet18 " + kData + "--output o --norm-policy " + file);
    CHECK(outcome.code == 2);
    CHECK(!std::filesystem::exists(folder / "o/last.safetensors"));
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    return outcome.err;
  };
  CHECK(complaint("syntax.toml").find("norm policy: syntax.toml:2:") != std::string::npos);
  CHECK(complaint("unmatched.toml")
            .find("norm policy: unmatched.toml:2: 'stages.*': expected the name of a norm layer, got none of bn1, ") !=
        std::string::npos);
  CHECK(complaint("absent.toml").find("norm policy: cannot open absent.toml: No such file or directory") !=
        std::string::npos);
  const Outcome outcome = run_norma(
      folder.path(), "run --model resnet18 --num-classes 3 --weights w --input x --output y --norm-policy syntax.toml");
  CHECK(outcome.code == 2);
  CHECK(outcome.err.find("norm policy: syntax.toml:2:") != std::string::npos);
}

TEST_CASE("norma eval: recalibrated and folded") {
  const TemporaryFolder folder;
  CHECK(run_norma(folder.path(), "train --model resnet18 --img-size 16 " + kData + "--output o").code == 0);
  const Outcome plain = run_norma(folder.path(), "eval --checkpoint o");
  const Outcome folded = run_norma(folder.path(), "eval --checkpoint o --fold");
  CHECK_MESSAGE(folded.code == 0, folded.err);
  CHECK(folded.out.starts_with("20 batch norms are folded into the convolutions before them\n"));
  const auto figures = [](const std::string& text) {
    const size_t at = text.find("accuracy");
    return at == std::string::npos ? text : text.substr(at, text.find("loss") + 9 - at);
  };
  CHECK(figures(folded.out) == figures(plain.out));
  const Outcome both = run_norma(folder.path(), "eval --checkpoint o --recalibrate 2 --fold");
  CHECK_MESSAGE(both.code == 0, both.err);
  CHECK(both.out.starts_with("running statistics are the average over 2 training batches\n20 batch norms"));
  CHECK(figures(both.out) != figures(plain.out));
  const Outcome there = run_norma(folder.path(), "eval --checkpoint o --recalibrate 2 --fold --device cuda-emulated");
  CHECK_MESSAGE(there.code == 0, there.err);
  CHECK(figures(there.out) == figures(both.out));
  CHECK(run_norma(folder.path(), "eval --checkpoint o --recalibrate -1").err ==
        "norma: eval: --recalibrate: expected a whole number from 0 to 1000000, got -1\n");
}
