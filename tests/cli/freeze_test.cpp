#include "cli/program.h"
#include "json.h"
#include "models/registry.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

using namespace norma;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTiny =
    "train --model resnet18 --small-stem --dataset shapes --img-size 16 --images 8 --batch-size 4 --test-images 4 "
    "--threads 1 --workers 0 --output o ";

}  // namespace

TEST_CASE("norma train: --freeze says what it holds and saves, and eval keeps frozen statistics") {
  const TemporaryFolder folder;
  test::write_file(folder / "p.toml", "\"layer1.*\" = \"group:8\"\nfreeze = \"layer1\"\n");
  const Outcome trained = run_norma(folder.path(), kTiny + "--norm-policy p.toml --freeze 'conv1.*,bn1.*'");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(trained.out.find("freeze: 15 of 62 parameters (") != std::string::npos, trained.out);
  CHECK(trained.out.find("and the statistics of 1 norm stay as they are\n") != std::string::npos);
  CHECK(trained.out.find("freeze: forward and backward of 4 images take ") != std::string::npos);
  CHECK(test::read_file(folder / "o/args.toml").find("freeze = [\"conv1.*\", \"bn1.*\"]\n") != std::string::npos);
  CHECK(test::read_file(folder / "o/log.jsonl").find(R"({"type": "frozen", "at": "end", "step": 2, )") !=
        std::string::npos);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o --recalibrate 2 --quiet");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  const Outcome longer = run_norma(folder.path(), "train --resume o --images 16 --threads 1 --workers 0");
  CHECK_MESSAGE(longer.code == 0, longer.err);
  const Outcome dry = run_norma(folder.path(), kTiny + "--freeze 'layer*' --dry-run");
  CHECK_MESSAGE(dry.code == 0, dry.err);
  CHECK(dry.out.find("freeze = [\"layer*\"]") != std::string::npos);
}

TEST_CASE("norma train: --freeze that cannot be is one line, and writes nothing") {
  const TemporaryFolder folder;
  const auto complaint = [&](const std::string& options) {
    const Outcome outcome = run_norma(folder.path(), kTiny + options);
    CHECK(outcome.code == 2);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_FALSE(std::filesystem::exists(folder / "o"));
    return outcome.err;
  };
  CHECK(
      complaint("--freeze 'layer9.*'") ==
      "norma: freeze: 'layer9.*': expected the name of a parameter or of a part of the network, got none of them; did "
      "you mean 'layer1.*'? There are conv1, bn1, layer1, layer2, layer3, layer4, fc\n");
  CHECK(complaint("--freeze '*'") ==
        "norma: freeze: expected patterns that leave a parameter to train, got '*', which name all 62\n");
  CHECK(complaint("--freeze fc --head-lr 0.1") ==
        "norma: train: head-lr: expected a classifier that is trained, got the frozen fc.bias\n");
  CHECK(complaint("--freeze ''") == "norma: freeze: expected patterns of names such as layer1.*,bn1.*, got ''\n");
  CHECK(complaint("--norm none --freeze bn1").starts_with("norma: freeze: 'bn1': expected the name of "));
  test::write_file(folder / "p.toml", "freeze = \"stem.*\"\n");
  CHECK(complaint("--norm-policy p.toml").starts_with("norma: freeze: p.toml:1:10: 'stem.*': expected the name of "));
}
