#include "cli/program.h"
#include "json.h"
#include "train/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

using namespace norma;
using test::interrupt_norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

/// Steps that take a moment, with everything that draws random numbers.
const std::string kEndless =
    "--model convnext_atto --patch-size 4 --norm batch --drop-path 0.1 --dataset shapes --batch-size 4 --test-images 8 "
    "--flip --random-crop 2 --log-interval 2 ";
/// Six of them.
const std::string kTiny = kEndless + "--images 24 ";

}  // namespace

TEST_CASE("norma train: progress lines, figures, checkpoint and log, eval agrees") {
  const TemporaryFolder folder;
  const Outcome trained = run_norma(folder.path(), "train " + kTiny + "--output o --telemetry");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const nlohmann::json record = test::parse_json(read_file(folder / "o/telemetry.json"));
  CHECK(record["losses"]["step"] == std::vector<int>{1, 2, 3, 4, 5, 6});
  CHECK(record["health"][0]["layers"]["layer"][0] == "stem.0");
  CHECK(record["ledger"]["layer"].empty());
  CHECK(trained.out.find("step 2/6") != std::string::npos);
  CHECK(trained.out.find("step 6/6") != std::string::npos);
  CHECK(trained.out.find('\r') == std::string::npos);
  const size_t at = trained.out.rfind("test accuracy ");
  REQUIRE(at != std::string::npos);
  const std::string accuracy = trained.out.substr(at + 14, trained.out.find(" %", at) - at - 14);
  CHECK(read_file(folder / "o/metrics.csv").starts_with("step,epoch,"));

  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK_MESSAGE(evaluated.out.starts_with("convnext_atto batch on shapes: accuracy " + accuracy + " %, top-5 "),
                evaluated.out);
  CHECK(evaluated.out.find("(8 images, ") != std::string::npos);
  CHECK(evaluated.out.ends_with(
      "\nweights: o/last.safetensors, the newest of the run; the best are o/model_best.safetensors\n"));

  // The same file as plain weights.
  const Outcome weights = run_norma(folder.path(),
                                    "eval --checkpoint o/last.safetensors --model convnext_atto --patch-size 4 "
                                    "--norm batch --dataset shapes --test-images 8 --batch-size 4");
  CHECK_MESSAGE(weights.out.starts_with("convnext_atto batch on shapes: accuracy " + accuracy), weights.err);
  CHECK(weights.out.find("weights:") == std::string::npos);  // the file was named
}

TEST_CASE("norma train: --telemetry writes over its own records only") {
  const TemporaryFolder folder;
  test::write_file(folder / "telemetry.json", "{\"mine\": 1}");
  const Outcome refused = run_norma(folder.path(), "train " + kTiny + "--output . --telemetry");
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.find("telemetry.json") != std::string::npos, refused.err);
  CHECK(read_file(folder / "telemetry.json") == "{\"mine\": 1}");
}

TEST_CASE("norma train: --dynamics records how the network moves, and prints what each sharpness cost") {
  const TemporaryFolder folder;
  const Outcome trained = run_norma(folder.path(), "train " + kTiny + "--output o --dynamics gradients,sharpness");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const nlohmann::json health = test::parse_json(read_file(folder / "o/telemetry.json"))["health"];
  REQUIRE(health.size() == 2);
  CHECK(health[0]["step"] == 1);
  CHECK(health[1]["step"] == 6);
  for (const nlohmann::json& sample : health) {
    const nlohmann::json& dynamics = sample["dynamics"];
    CHECK(dynamics["layers"]["layer"][0] == "stem.0");
    CHECK(dynamics["layers"]["gradient_norm"][0] > 0);
    CHECK(dynamics["layers"]["weight_norm"][0].is_null());  // not asked for
    CHECK(dynamics["sharpness"]["products"] > 1);
    CHECK(dynamics["sharpness"]["problem"] == "");
  }
  CHECK_MESSAGE(trained.out.find("sharpness after 0 updates: ") != std::string::npos, trained.out);
  CHECK_MESSAGE(trained.out.find(" Hessian-vector products changed it by ") != std::string::npos, trained.out);
  CHECK(read_file(folder / "o/args.toml").find("dynamics = \"gradients,sharpness\"\n") != std::string::npos);

  const Outcome unknown = run_norma(folder.path(), "train " + kTiny + "--output p --dynamics hessian");
  CHECK(unknown.code == 2);
  CHECK(unknown.err ==
        "norma: train: dynamics: expected some of gradients, weights, saturation, sharpness, or all, got 'hessian'\n");
  CHECK(unknown.out.empty());
  CHECK(!std::filesystem::exists(folder / "p"));
}

TEST_CASE("norma train: --conv-layer is part of the run, also when it is resumed or evaluated") {
  const TemporaryFolder folder;
  const std::string network = "--model convnext_atto --patch-size 4 --norm none --conv-layer scaled_std_conv ";
  const std::string data = "--dataset shapes --batch-size 4 --test-images 4 ";
  const Outcome trained = run_norma(folder.path(), "train " + network + data + "--images 8 --quiet --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const Outcome resumed = run_norma(folder.path(), "train --resume o --images 16 --quiet");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  const std::string figures = evaluated.out.substr(0, evaluated.out.find(" images"));
  CHECK_MESSAGE(figures.starts_with("convnext_atto (scaled_std_conv) none on shapes: accuracy "), figures);

  // The same file as plain weights.
  const Outcome weights = run_norma(folder.path(), "eval --checkpoint o/last.safetensors " + network + data);
  CHECK_MESSAGE(weights.out.starts_with(figures), weights.out, weights.err);
  const Outcome other = run_norma(folder.path(), "eval --checkpoint o --conv-layer std_conv");
  CHECK(other.code == 2);
  CHECK_MESSAGE(other.err.find("stem.0.gain") != std::string::npos, other.err);
}

TEST_CASE("norma train: the length in epochs or images, one of them") {
  const TemporaryFolder folder;
  const Outcome images = run_norma(folder.path(), "train " + kEndless + "--images 8 --output a");
  CHECK(images.out.find("step 0 of 2;") != std::string::npos);
  const Outcome longer = run_norma(folder.path(), "train --resume a --images 12 --quiet");
  CHECK_MESSAGE(longer.out.find("step 2 of 3;") != std::string::npos, longer.err);
  const Outcome epochs = interrupt_norma(folder.path(), "train --resume a --epochs 1", "checkpoints go to");
  CHECK_MESSAGE(epochs.out.find("images 12 → none\n") != std::string::npos, epochs.out, epochs.err);
  CHECK(epochs.out.find("step 3 of 3;") == std::string::npos);
  CHECK(test::complaint("train --epochs 7 --images 8") == "norma: train: --epochs excludes --images\n");
}

TEST_CASE("norma train: quiet, and the default output folder") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), "train " + kTiny + "--quiet --threads 1 -j 0");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("step 2/6") == std::string::npos);
  const auto runs = std::filesystem::directory_iterator(folder / "runs");
  CHECK(runs->path().filename().string().starts_with("train-"));
}

TEST_CASE("norma train: SIGINT leaves a checkpoint, and resuming gives the bits of a whole run") {
  const TemporaryFolder folder;
  const Outcome cut =
      interrupt_norma(folder.path(), "train " + kEndless + "--images 4000000 --sched constant --output cut", "step 2/");
  CHECK_MESSAGE(cut.code == 130, cut.err);
  REQUIRE_MESSAGE(cut.out.find("; go on with: " + test::norma_program() + " train --resume cut/last.safetensors\n") !=
                      std::string::npos,
                  cut.out);
  const train::Checkpoint checkpoint = train::load_checkpoint(folder / "cut/last.safetensors");
  REQUIRE(checkpoint.step > 0);

  const std::string end = fmt::format("--images {} ", 4 * (checkpoint.step + 3));
  const Outcome resumed = run_norma(folder.path(), "train --resume cut --log-interval 2 " + end);
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(resumed.out.find("changed on resuming: images 4000000 → ") != std::string::npos);
  const Outcome whole = run_norma(folder.path(), "train " + kEndless + "--sched constant " + end + "--output whole");
  CHECK_MESSAGE(whole.code == 0, whole.err);
  CHECK(read_file(folder / "cut/last.safetensors") == read_file(folder / "whole/last.safetensors"));
}

TEST_CASE("norma train: --resume of a run that ended before its first checkpoint says how to begin again") {
  const TemporaryFolder folder;
  const Outcome cut =
      test::signal_when(test::start_norma(folder.path(), "train " + kEndless + "--images 4000000 --output r"),
                        folder.path(), SIGKILL, [&] { return std::filesystem::exists(folder / "r/args.toml"); });
  CHECK(cut.code == 128 + SIGKILL);
  REQUIRE_FALSE(std::filesystem::exists(folder / "r/last.safetensors"));
  const std::string again = "train --config r/args.toml --output r";
  const std::string text =
      "norma: train: --resume: the run in 'r' ended before it saved a checkpoint; begin it again with: " +
      test::norma_program() + " " + again + "\n";
  for (const std::string resumed : {"r", "r/last.safetensors"}) {
    const Outcome outcome = run_norma(folder.path(), "train --resume " + resumed);
    CHECK(outcome.code == 2);
    CHECK(outcome.err == text);
  }
  const Outcome begun = run_norma(folder.path(), again + " --images 8 --quiet");
  CHECK_MESSAGE(begun.code == 0, begun.err);
  std::filesystem::remove(folder / "r/last.safetensors");
  std::filesystem::remove(folder / "r/model_best.safetensors");
  CHECK(run_norma(folder.path(), "train --resume r").err ==
        "norma: train: --resume: the run in 'r' has no checkpoints any more; begin it again with: " +
            test::norma_program() + " train --config r/args.toml\n");
  std::filesystem::create_directory(folder / "my run");
  test::write_file(folder / "my run/args.toml", "# Options of a run: norma train --config args.toml\n");
  CHECK(run_norma(folder.path(), "train --resume 'my run'")
            .err.ends_with(" train --config 'my run/args.toml' --output 'my run'\n"));
  std::filesystem::create_directory(folder / "empty");
  CHECK(run_norma(folder.path(), "train --resume empty").err ==
        "norma: train: --resume: 'empty' has no checkpoint of a run\n");
}

TEST_CASE("norma train: --resume of a complete run mends its broken last checkpoint, and heeds no option in silence") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), "train " + kTiny + "--quiet --threads 1 --output o").code == 0);
  const std::string whole = read_file(folder / "o/last.safetensors");
  std::filesystem::remove(folder / "o/last.safetensors");  // model_best is another name of it
  test::write_file(folder / "o/last.safetensors", whole.substr(0, whole.size() - 1));
  const Outcome mended = run_norma(folder.path(), "train --resume o");
  CHECK_MESSAGE(mended.code == 0, mended.err);
  CHECK(mended.err.ends_with("; going on from o/model_best.safetensors\n"));
  CHECK(read_file(folder / "o/last.safetensors") == whole);
  CHECK(read_file(folder / "o/model_best.safetensors") == whole);

  const std::string options = read_file(folder / "o/args.toml");
  CHECK(run_norma(folder.path(), "train --resume o --lr 0.5 --mixup 0.2").err ==
        "norma: resume: the run is complete after 6 steps, and would not heed mixup 0 → 0.2, lr 0.002 → 0.5: --epochs "
        "or --images make it longer\n");
  CHECK(read_file(folder / "o/args.toml") == options);
  const Outcome evaluated = run_norma(folder.path(), "train --resume o --test-images 4 --quiet");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  const Outcome longer = run_norma(folder.path(), "train --resume o --lr 0.5 --images 28 --quiet");
  CHECK_MESSAGE(longer.code == 0, longer.err);
}

TEST_CASE("norma train, compare: options that have no effect are warned of") {
  const TemporaryFolder folder;
  const Outcome train = run_norma(
      folder.path(), "train " + kTiny + "--quiet --threads 1 --model-ema-decay 0.5 --skip-bad-images --output o");
  CHECK(train.code == 0);
  CHECK(train.err ==
        "norma: train: warning: skip-bad-images has no effect without dataset imagefolder\n"
        "norma: train: warning: model-ema-decay has no effect without model-ema\n");
  // An option that is typed is meant, also with the value of its default; a line of a file need not be.
  test::write_file(folder / "c.toml", "recount = 1\nmax-nonfinite = 10\n");
  const Outcome typed = run_norma(
      folder.path(), "train " + kTiny + "--quiet --threads 1 --config c.toml --max-nonfinite 10 --dry-run --output p");
  CHECK(typed.code == 0);
  CHECK(typed.err == "norma: train: warning: max-nonfinite has no effect without skip-nonfinite\n");
  const Outcome compare = run_norma(
      folder.path(),
      "compare --models convnext_atto --norms batch --dataset shapes --patch-size 4 --batch-size 4 --images 8 "
      "--test-images 4 --timing-rounds 0 --quiet --threads 1 --ratio 0.5,2 --output c");
  CHECK(compare.code == 0);
  CHECK(compare.err == "norma: compare: warning: ratio has no effect without scale\n");
}

TEST_CASE("norma train: what cannot be resumed") {
  const TemporaryFolder folder;
  CHECK(run_norma(folder.path(), "train " + kTiny + "--quiet --output o").code == 0);
  const std::string before = read_file(folder / "o/last.safetensors");
  CHECK(run_norma(folder.path(), "train --resume o --model resnet18").err ==
        "norma: resume: model: the run was started with 'convnext_atto', and cannot go on with 'resnet18'\n");
  CHECK(run_norma(folder.path(), "train --resume o --conv-layer std_conv").err ==
        "norma: resume: conv-layer: the run was started with 'conv', and cannot go on with 'std_conv'\n");
  test::write_file(folder / "p.toml", "\"stages.3.*\" = \"none\"\n");
  CHECK(run_norma(folder.path(), "train --resume o --norm-policy p.toml").err ==
        "norma: resume: norm-policy: the run was started with none, and cannot go on with that of 'p.toml'\n");
  CHECK(run_norma(folder.path(), "train --resume o --images 4").err ==
        "norma: train: the checkpoint is at step 6, but the run has only 1\n");
  CHECK(run_norma(folder.path(), "train --resume nowhere").err ==
        "norma: safetensors: cannot open nowhere: No such file or directory\n");
  const Outcome again = run_norma(folder.path(), "train " + kTiny + "--output o");
  CHECK(again.code == 2);
  CHECK(again.err ==
        "norma: train: 'o/last.safetensors' is the checkpoint of another run: resume it, or choose another output "
        "folder\n");
  CHECK(read_file(folder / "o/last.safetensors") == before);
}

TEST_CASE("norma train --cast: the policy in force is printed and saved, and a resumed run has it") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(
      folder.path(), "train " + kTiny + "--output o --precision amp_float16 --cast linear=float32,relu=lower");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK_MESSAGE(outcome.out.find("amp_float16: conv2d, matmul, relu, scaled_dot_product_attention in float16; "
                                 "cross_entropy, linear, log_softmax, softmax in float32; others in the dtype of "
                                 "their first input\n") != std::string::npos,
                outcome.out);
  const std::string policy = read_file(folder / "o/cast_policy.toml");
  CHECK(policy.find("\n\"relu\" = \"lower\"\n") != std::string::npos);
  CHECK(read_file(folder / "o/args.toml").find("cast = [\"linear=float32\", \"relu=lower\"]\n") != std::string::npos);
  CHECK(run_norma(folder.path(), "train --resume o --images 32").code == 0);
  CHECK(read_file(folder / "o/cast_policy.toml") == policy);
  CHECK(
      run_norma(folder.path(), "train --resume o --cast relu=keep").err ==
      "norma: resume: cast: the run was started with 'linear=float32,relu=lower', and cannot go on with 'relu=keep'\n");
  CHECK(run_norma(folder.path(), "train " + kTiny + "--cast relo=keep --precision amp_float16").err ==
        "norma: cast: 'relo=keep': unknown op 'relo'; did you mean 'relu'?\n");
}

TEST_CASE("norma train: an output folder that cannot be written") {
  const TemporaryFolder folder;
  test::write_file(folder / "file", "mine");
  const Outcome outcome = run_norma(folder.path(), "train " + kTiny + "--output file");
  CHECK(outcome.code == 2);
  CHECK(outcome.err == "norma: train: cannot write file: Not a directory\n");
  CHECK(read_file(folder / "file") == "mine");
}

TEST_CASE("norma train: a disk that fills during a checkpoint") {
  const TemporaryFolder folder;
  CHECK(run_norma(folder.path(), "train " + kTiny + "--quiet --output o").code == 0);
  const std::string before = read_file(folder / "o/last.safetensors");
  // No file may grow beyond half a MB: writing fails as on a full disk, which only root could make.
  const Outcome outcome = run_norma(folder.path(), "train --resume o --images 32", "ulimit -f 1000;");
  CHECK(outcome.code == 2);
  CHECK(outcome.err.ends_with("norma: safetensors: cannot write o/last.safetensors: File too large\n"));
  CHECK(read_file(folder / "o/last.safetensors") == before);
  const auto entries = std::filesystem::directory_iterator(folder / "o");
  CHECK(std::distance(begin(entries), end(entries)) == 5);  // last, best, two logs and args.toml, no temporary file
}

TEST_CASE("norma eval: files that are no checkpoint") {
  const TemporaryFolder folder;
  test::write_file(folder / "bad.safetensors", "this is no header");
  const Outcome outcome = run_norma(folder.path(), "eval --checkpoint bad.safetensors");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.find("bad.safetensors") != std::string::npos, outcome.err);
  CHECK(run_norma(folder.path(), "eval --checkpoint none.safetensors").err ==
        "norma: safetensors: cannot open none.safetensors: No such file or directory\n");
}

TEST_CASE("norma train: what is kept, and from where a folder goes on") {
  const TemporaryFolder folder;
  const std::string keep = "--recovery-interval 2 --checkpoint-hist 2 --quiet ";
  const Outcome trained = run_norma(folder.path(), "train " + kTiny + keep + "--log-json --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK(trained.out.find("best: test accuracy ") != std::string::npos);
  CHECK(trained.out.find(" %, after step 6 in epoch 1: o/model_best.safetensors\n") != std::string::npos);
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "o")) {
      found.insert(entry.path().filename().string());
    }
    return found;
  };
  CHECK(names() == std::set<std::string>{"args.toml", "checkpoint-1.safetensors", "last.safetensors", "log.jsonl",
                                         "metrics.csv", "model_best.safetensors", "recovery-0-2.safetensors",
                                         "recovery-0-4.safetensors", "summary.csv"});
  const std::string whole = read_file(folder / "o/last.safetensors");
  CHECK(read_file(folder / "o/model_best.safetensors") == whole);

  // An earlier one would write over what there is.
  const Outcome back = run_norma(folder.path(), "train --resume o/recovery-0-2.safetensors");
  CHECK(back.code == 2);
  CHECK(
      back.err ==
      "norma: train: 'o/recovery-0-2.safetensors' is at step 2, and 'o/last.safetensors', at step 6, would be written "
      "over: resume that, or choose another output folder\n");
  CHECK(read_file(folder / "o/last.safetensors") == whole);
  const Outcome elsewhere = run_norma(folder.path(), "train --resume o/recovery-0-2.safetensors --quiet --output p");
  CHECK_MESSAGE(elsewhere.code == 0, elsewhere.err);
  CHECK(read_file(folder / "p/last.safetensors") == whole);
  // What is written beside it goes on, too, and how it runs, unless the command line says something else.
  CHECK(std::filesystem::exists(folder / "p/log.jsonl"));
  CHECK(read_file(folder / "p/args.toml") == read_file(folder / "o/args.toml"));
  const Outcome less = run_norma(
      folder.path(), "train --resume o/recovery-0-2.safetensors --no-tensorboard --checkpoint-hist 1 --output q");
  CHECK_MESSAGE(less.code == 0, less.err);
  const std::string fewer = read_file(folder / "q/args.toml");
  CHECK_MESSAGE(fewer.find("\nlog-json = true\nrecovery-interval = 2\n") != std::string::npos, fewer);
  CHECK(fewer.ends_with("\nlog-interval = 2\n"));
  test::write_file(folder / "q/args.toml",
                   "# Options of a run: norma train --config args.toml\nrecovery-interval = -1\n");
  CHECK(run_norma(folder.path(), "train --resume q").err ==
        "norma: train: --recovery-interval: expected a whole number from 0 to 1000000, got -1\n");
  test::write_file(folder / "q/args.toml", "# Options of a run: norma train --config args.toml\nlog-json = 1\n");
  CHECK(run_norma(folder.path(), "train --resume q").err ==
        "norma: train: q/args.toml:2:1: log-json: expected true or false, got 1\n");

  // A file that was cut is passed over; the steps since the whole one before it are done again.
  for (const char* cut : {"last", "model_best", "checkpoint-1"}) {
    const std::filesystem::path file = folder / (std::string("o/") + cut + ".safetensors");
    std::filesystem::remove(file);  // they are names of one file
    test::write_file(file, whole.substr(0, whole.size() / 2));
  }
  const Outcome resumed = run_norma(folder.path(), "train --resume o " + keep);
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(std::count(resumed.err.begin(), resumed.err.end(), '\n') == 3);
  CHECK_MESSAGE(resumed.err.starts_with("norma: train: warning: safetensors: o/checkpoint-1.safetensors: tensor '"),
                resumed.err);
  CHECK(resumed.err.ends_with("; going on from o/recovery-0-4.safetensors\n"));
  CHECK(resumed.out.find("; step 4 of 6; ") != std::string::npos);
  CHECK(read_file(folder / "o/last.safetensors") == whole);
  CHECK(read_file(folder / "o/model_best.safetensors") == whole);

  // Named as such it is one clear line, and nothing changes.
  std::filesystem::remove(folder / "o/last.safetensors");
  test::write_file(folder / "o/last.safetensors", whole.substr(0, whole.size() / 2));
  const Outcome half = run_norma(folder.path(), "train --resume o/last.safetensors");
  CHECK(half.code == 2);
  CHECK_MESSAGE(half.err.starts_with("norma: safetensors: o/last.safetensors: tensor '"), half.err);
  CHECK_MESSAGE(half.err.ends_with("; 'o/checkpoint-1.safetensors' is whole: --resume o/checkpoint-1.safetensors\n"),
                half.err);
  CHECK(std::count(half.err.begin(), half.err.end(), '\n') == 1);
  CHECK(read_file(folder / "o/model_best.safetensors") == whole);
}
