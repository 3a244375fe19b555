#include "cli/program.h"

#include <regex>
#include <string>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTiny =
    "train --model convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --test-images 4 --threads 1 "
    "--sched cosine --lr 0.004 ";
const std::string kEight = kTiny + "--images 32 ";

}  // namespace

TEST_CASE("norma train: --dry-run says what the run will do and take, and writes nothing") {
  const TemporaryFolder folder;
  const Outcome plan = run_norma(folder.path(), kEight + "--dry-run --model-ema");
  CHECK_MESSAGE(plan.code == 0, plan.err);
  CHECK(folder.names().empty());
  const std::regex text(
      "recipe\n(  [a-z0-9-]+ = [^\n]+\n)+"
      "network         convnext_atto, layer2d: [0-9]+ parameters\n"
      "steps           8 of 4 images, [0-9]+ an epoch\n"
      "learning rate   first 0\\.004, highest 0\\.004 in step 1, last [0-9.e-]+\n"
      "memory          parameters [0-9.]+ MB, gradients [0-9.]+ MB, optimizer [0-9.]+ MB, averaged weights [0-9.]+ MB, "
      "activations of 4 images [0-9.]+ MB \\(most in [^\n]+\\); counted in a step\n"
      "                at most [0-9.]+ MB of tensors at once; measured over 5 steps\n"
      "time            [0-9.e-]+ s a step, [0-9.]+ img/s; the median of 3 steps after 2\n"
      "                [0-9:]+ for 8 steps, [0-9:]+ for 1 evaluation: about [0-9:]+ in all\n"
      "nothing was written\n");
  CHECK_MESSAGE(std::regex_match(plan.out, text), plan.out);
  CHECK(plan.out.find("\n  lr = 0.004\n") != std::string::npos);
}

TEST_CASE("norma train: --dry-run of a run that goes on leaves its folder as it is") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kEight + "--output o").code == 0);
  const std::string checkpoint = read_file(folder / "o/last.safetensors");
  const Outcome longer = run_norma(folder.path(), "train --resume o --images 64 --dry-run --threads 1");
  CHECK_MESSAGE(longer.code == 0, longer.err);
  CHECK_MESSAGE(longer.out.find("steps           from step 9 on, 16 of 4 images, ") != std::string::npos, longer.out);
  CHECK(longer.out.find(" for 8 steps, ") != std::string::npos);
  CHECK(run_norma(folder.path(), "train --resume o --dry-run").out.ends_with("the run is complete\n"));
  CHECK(read_file(folder / "o/last.safetensors") == checkpoint);
  CHECK(read_file(folder / "o/args.toml").find("images = 32\n") != std::string::npos);
}

TEST_CASE("norma train: --dry-run tells how fast images come, where the run has enough of them") {
  const TemporaryFolder folder;
  const auto time_of = [&](const std::string& workers) {
    const Outcome plan = run_norma(folder.path(), kTiny + "--images 200 --dry-run -j " + workers);
    CHECK_MESSAGE(plan.code == 0, plan.err);
    return plan.out.substr(plan.out.find("\ntime "));
  };
  const std::regex one(
      "\ntime [^\n]+\n +loading gives [0-9.]+ img/s with 1 worker(, which is what the steps wait for)?\n");
  CHECK(std::regex_search(time_of("1"), one));
  const std::regex none("\ntime [^\n]+\n +loading gives [0-9.]+ img/s with 0 workers, which each step waits for\n");
  CHECK(std::regex_search(time_of("0"), none));
}
