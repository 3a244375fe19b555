#include "cli/program.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "json.h"
#include "models/registry.h"
#include "train/training_state.h"

#include <regex>
#include <string>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

// The address sanitizer takes terabytes of addresses, so that no limit can be set.
#if defined(__SANITIZE_ADDRESS__)
#define NORMA_LIMITED_TEST_CASE(name) TEST_CASE(name* doctest::skip(true))
#else
#define NORMA_LIMITED_TEST_CASE(name) TEST_CASE(name)
#endif

namespace {

const std::string kData = "--dataset shapes --test-images 4 --threads 1 -j 1 --output o ";

}  // namespace

NORMA_LIMITED_TEST_CASE(
    "norma train: where memory does not suffice it says what did not fit, and the batch that would") {
  for (const int64_t limit : {400'000, 700'000}) {
    CAPTURE(limit);
    const TemporaryFolder folder;
    const std::string run = "train --model resnet50 --opt sgd --images 256 " + kData;
    const std::string prefix = fmt::format("ulimit -v {};", limit);
    const Outcome outcome = run_norma(folder.path(), run + "--batch-size 256", prefix);
    CHECK(outcome.code == 2);
    std::smatch found;
    const std::regex text(
        "norma: train: batch-size: 256 images do not fit into memory \\(.*expected room for [0-9.]+ MB, got none: "
        "tensors hold [0-9.]+ (MB|bytes), and the process may have [0-9.]+ MB of addresses \\(ulimit -v\\)\\)"
        "(; --batch-size ([0-9]+) --grad-accum-steps [0-9]+ would fit, with as many images in an update|; (a single "
        "one|[0-9]+) did not fit either)"
        "; a step holds parameters [0-9.]+ (MB|bytes), gradients [0-9.]+ MB, optimizer [0-9.]+ (MB|bytes)"
        "(, activations of 256 images [0-9.]+ (MB|GB) \\(most in [a-z0-9.]+ [0-9.]+ (MB|GB), .*\\))?\n");
    REQUIRE_MESSAGE(std::regex_match(outcome.err, found, text), outcome.err);
    CHECK(found[7].matched == found[3].matched);  // activations are known from the batch that fits
    if (found[3].matched) {
      // On the half of it there is room for what differs between two runs.
      const int64_t fits = std::max<int64_t>(std::stoll(found[3].str()) / 2, 2);
      const Outcome smaller = run_norma(
          folder.path(),
          fmt::format("{} --images {} --batch-size {}", "train --model resnet50 --opt sgd " + kData, 2 * fits, fits),
          prefix);
      CHECK_MESSAGE(smaller.code == 0, smaller.err);
    }
  }
}

NORMA_LIMITED_TEST_CASE("norma eval, export: a small file that names a large network takes no memory for it") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments, "ulimit -v 1000000;");
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  data::save_safetensors(folder / "w.safetensors",
                         {{"stages.0.blocks.0.gamma", zeros({2})}, {"head.fc.weight", zeros({2, 0})}});
  const std::string text =
      "norma: weights: w.safetensors: expected those of this convnextv2_huge, got a file of no known network, with the "
      "tensors stages.0.blocks.0.gamma, head.fc.weight\n";
  CHECK(refusal("eval --model convnextv2_huge --dataset shapes --checkpoint w.safetensors") == text);
  CHECK(refusal("export --model convnextv2_huge --num-classes 2 --checkpoint w.safetensors --output x.onnx") == text);
  // As many classes as a network of 2 GB would have.
  data::save_safetensors(folder / "w.safetensors",
                         models::create_model("convnext_atto", {.num_classes = 3})->state_dict());
  CHECK(refusal("export --model convnext_atto --num-classes 1000000 --checkpoint w.safetensors --output x.onnx") ==
        "norma: weights: w.safetensors: expected a classifier of 1000000 classes, got one of 3; --num-classes says how "
        "many the file has\n");
}

NORMA_LIMITED_TEST_CASE(
    "norma eval, export, train --resume: a checkpoint that names another network takes no memory for it") {
  const TemporaryFolder folder;
  REQUIRE(
      run_norma(folder.path(),
                "train --model convnext_atto --patch-size 4 --dataset shapes --images 4 --batch-size 4 --test-images 4 "
                "--threads 1 --quiet --output o")
          .code == 0);
  train::Checkpoint checkpoint = train::load_checkpoint(folder / "o" / "last.safetensors");
  train::Recipe recipe = train::recipe_of(checkpoint);
  recipe.model = checkpoint.model_name = "convnextv2_huge";
  checkpoint.options[train::kRecipeKey] = train::to_json(recipe);
  train::save_checkpoint(folder / "o" / "last.safetensors", checkpoint);
  for (const std::string command :
       {"eval --checkpoint o", "export --checkpoint o --output x.onnx", "train --resume o"}) {
    const Outcome outcome = run_norma(folder.path(), command, "ulimit -v 1000000;");
    CHECK(outcome.code == 2);
    CHECK(outcome.err == "norma: checkpoint: expected the tensors of convnextv2_huge, got those of convnext_atto\n");
  }
}

NORMA_LIMITED_TEST_CASE("norma eval: where memory does not suffice it names the size of the batches") {
  const TemporaryFolder folder;
  const std::string run = "--dataset shapes --threads 1 -j 1 --quiet ";
  REQUIRE(run_norma(folder.path(), "train --model resnet18 --images 4 -b 4 --test-images 4 --output o " + run).code ==
          0);
  const Outcome outcome = run_norma(
      folder.path(), "eval --checkpoint o -b 4096 --img-size 64 --test-images 4096 " + run, "ulimit -v 600000;");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.starts_with("norma: evaluate: batch-size: 4096 images do not fit into memory ("),
                outcome.err);
  CHECK_MESSAGE(outcome.err.ends_with("): a smaller --batch-size may\n"), outcome.err);
}

NORMA_LIMITED_TEST_CASE("norma train: threads that load images and have no room for their stacks") {
  const TemporaryFolder folder;
  int of_loader = 0;
  for (const int limit : {140'000, 150'000, 160'000}) {
    CAPTURE(limit);
    const Outcome outcome = run_norma(
        folder.path(),
        "train --model convnext_atto --patch-size 4 --norm batch --dataset shapes -b 4 --images 80000 --test-images 4 "
        "--quiet --threads 1 -j 64 --output o",
        fmt::format("ulimit -v {};", limit));
    CHECK(outcome.code == 2);
    const bool no_stack = std::regex_match(
        outcome.err, std::regex("norma: loader: num_workers: no stack for thread [0-9]+ of 64: expected room for "
                                "[0-9.]+ MB, got none: tensors hold .* \\(ulimit -v\\)\n"));
    of_loader += no_stack ? 1 : 0;
    // The threads that there are may leave no room for the step instead.
    CHECK_MESSAGE((no_stack || outcome.err.starts_with("norma: train: batch-size: 4 images do not fit into memory (")),
                  outcome.err);
  }
  CHECK(of_loader > 0);
}

NORMA_LIMITED_TEST_CASE("norma bench: where memory does not suffice") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "bench --model resnet18 --img-size 64 --bench infer --num-warm-iter 0 "
                                    "--num-bench-iter 1 --quiet --threads 1 -b 1024",
                                    "ulimit -v 500000;");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.starts_with("norma: bench: batch-size: 1024 images do not fit into memory ("), outcome.err);
  CHECK_MESSAGE(outcome.err.find("; --batch-size ") != std::string::npos, outcome.err);
}

NORMA_LIMITED_TEST_CASE("norma compare: a cell that does not fit is a result, and the others go on") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "compare --models resnet50,convnext_atto --norms batch --opt sgd --images 256 "
                                    "--batch-size 256 --patch-size 4 --timing-rounds 0 --quiet " +
                                        kData,
                                    "ulimit -v 700000;");
  CHECK_MESSAGE(outcome.code == 1, outcome.err);
  const nlohmann::json json = test::parse_json(read_file(folder / "o/results.json"));
  CHECK(json["cells"][0]["state"] == "failed");
  const std::string reason = json["cells"][0]["reason"];
  CHECK_MESSAGE(reason.find("expected room for ") != std::string::npos, reason);
  CHECK_MESSAGE(json["cells"][1]["state"] == "finished", data::json_text(json["cells"][1]));
  CHECK(outcome.out.find("expected room for ") != std::string::npos);
}

NORMA_LIMITED_TEST_CASE("norma bench-norms: a shape that does not fit is said, and the others go on") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "bench-norms --norms layer2d --formats contiguous --dtypes float32 --shapes "
                                    "images,volume --batch-sizes 2 --channels 64 --img-sizes 7 --threads 1 --quiet "
                                    "--output o",
                                    "ulimit -v 600000;");
  CHECK_MESSAGE(outcome.code == 1, outcome.err);
  CHECK_MESSAGE(outcome.out.find("\nfailed: ") != std::string::npos, outcome.out);
  CHECK(outcome.out.find("expected room for ") != std::string::npos);
  CHECK(read_file(folder / "o/results.csv").find("\nlayer2d,images,2x64x7x7,float32,") != std::string::npos);
}

NORMA_LIMITED_TEST_CASE("norma: threads that the system does not give") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), "audit --quick --threads 1000 --output o", "ulimit -v 600000;");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(std::regex_match(outcome.err, std::regex("norma: threads: the system gives [0-9]+ of 1000: .*\n")),
                outcome.err);
  // The runtime's own text ("libgomp: Thread creation failed") and its exit code must not come, whatever is left.
  for (const int64_t limit : {250'000, 400'000, 700'000, 1'000'000}) {
    CAPTURE(limit);
    const Outcome trained = run_norma(folder.path(),
                                      "train --model resnet50 --img-size 64 --opt sgd --images 96 --batch-size 32 "
                                      "--dataset shapes --test-images 4 --threads 64 -j 1 --quiet --output " +
                                          std::to_string(limit),
                                      fmt::format("ulimit -v {};", limit));
    CHECK_MESSAGE((trained.code == 0 || (trained.code == 2 && trained.err.starts_with("norma: "))), trained.err);
    CHECK_MESSAGE(trained.err.find("libgomp") == std::string::npos, trained.err);
  }
  CHECK(run_norma(folder.path(), "audit --quick --output o", "OMP_NUM_THREADS=100000").err ==
        "norma: threads: OMP_NUM_THREADS: expected a whole number from 0 to 1024, got 100000\n");
}
