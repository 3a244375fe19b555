#include "cli/program.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "json.h"
#include "models/registry.h"
#include "session/environment.h"
#include "session/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <string>

// Files that are not what they should be, and files that must not be lost.

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;
using test::write_file;

namespace {

const std::string kTiny =
    "--model convnext_atto --patch-size 4 --norm batch --dataset shapes --batch-size 4 --images 8 --test-images 4 "
    "--quiet ";

/// A folder with the checkpoint o/last.safetensors of a small run.
struct Trained {
  TemporaryFolder folder;

  Trained() {
    const Outcome outcome = run_norma(folder.path(), "train " + kTiny + "--output o");
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
  [[nodiscard]] Outcome run(const std::string& arguments) const { return run_norma(folder.path(), arguments); }
  /// Changes the checkpoint.
  void edit(const std::function<void(data::Safetensors&)>& change) const {
    data::Safetensors content = data::load_safetensors(folder / "o/last.safetensors");
    change(content);
    data::save_safetensors(folder / "o/last.safetensors", content.tensors, content.metadata);
  }
  void edit_recipe(const std::string& field, const nlohmann::json& value) const {
    edit([&](data::Safetensors& content) {
      auto options = test::parse_json(content.metadata["options"]);
      auto recipe = test::parse_json(options["recipe"].get<std::string>());
      recipe[field] = value;
      options["recipe"] = data::json_text(recipe);
      content.metadata["options"] = data::json_text(options);
    });
  }
};

Tensor& tensor_named(data::Safetensors& content, const std::string& name) {
  for (auto& [own, x] : content.tensors) {
    if (own == name) {
      return x;
    }
  }
  FAIL(name);
  return content.tensors.front().second;
}

}  // namespace

TEST_CASE("norma: a pipe, a device or a folder in the place of a file is refused at once") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::filesystem::create_directories(folder / "c/results.json");
  std::filesystem::create_directory(folder / "d");
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}) {
    std::filesystem::create_symlink(folder / "pipe", folder / "d" / name);
  }
  const auto error = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), arguments, "timeout 20");
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  const std::string pipe = "pipe: expected a regular file, got a pipe\n";
  const std::string device = "/dev/zero: expected a regular file, got a device\n";
  CHECK(error("train " + kTiny + "--norm-policy pipe") == "norma: norm policy: cannot open " + pipe);
  CHECK(error("train " + kTiny + "--norm-policy /dev/zero") == "norma: norm policy: cannot open " + device);
  CHECK(error("eval --checkpoint x --precision amp_bfloat16 --cast-policy pipe --model resnet18") ==
        "norma: cast policy: cannot open " + pipe);
  CHECK(error("eval --checkpoint pipe") == "norma: safetensors: cannot open " + pipe);
  CHECK(error("eval --checkpoint /dev/zero") == "norma: safetensors: cannot open " + device);
  CHECK(error("train --resume pipe") == "norma: safetensors: cannot open " + pipe);
  CHECK(error("train --model resnet18 --dataset idx --data-dir d") ==
        "norma: idx: cannot open d/train-labels-idx1-ubyte: expected a regular file, got a pipe\n");
  CHECK(error("compare --resume c") ==
        "norma: resume: cannot open c/results.json: expected a regular file, got a folder\n");
}

TEST_CASE("norma train, compare: a signal ends what loads") {
  const TemporaryFolder folder;
  // Eight GB of zeros in a few MB.
  const std::string zeros = test::gzip(std::string(size_t{1} << 24, '\0'));
  const std::string header = test::gzip(test::idx_bytes({1 << 16, 1 << 8, 1 << 9}, ""));
  {
    std::ofstream images(folder / "train-images-idx3-ubyte.gz", std::ios::binary);
    images << header;
    for (int i = 0; i < 512; ++i) {
      images << zeros;
    }
  }
  write_file(folder / "train-labels-idx1-ubyte", test::idx_bytes({1}, "1"));
  for (const std::string command : {"train --model resnet18", "compare --models resnet18"}) {
    CAPTURE(command);
    const Outcome outcome = run_norma(folder.path(), command + " --dataset idx --data-dir . --output o",
                                      "timeout --preserve-status --signal TERM --kill-after 20 1");
    CHECK(outcome.code == 143);
    CHECK(outcome.err.empty());
    CHECK_FALSE(std::filesystem::exists(folder / "o"));
  }
}

TEST_CASE("norma compare: --resume of results that are deeply nested, of another format or of another type") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "c");
  const auto error = [&](const std::string& text) {
    write_file(folder / "c/results.json", text);
    const Outcome outcome = run_norma(folder.path(), "compare --resume c");
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const std::string start = "norma: resume: c/results.json: ";
  for (const char* part : {"environment", "recipe", "cells", "date"}) {
    CHECK(error(fmt::format(R"({{"format": "norma comparison 1", "{}": {}}})", part, deep)) ==
          start + "the comparison: expected at most 32 objects and lists in each other, got more\n");
  }
  CHECK(error("{}") == start + "format: missing\n");
  CHECK(error(R"({"format": "norma benchmark 2"})") ==
        start + "format: expected 'norma comparison 2', got 'norma benchmark 2'\n");
  CHECK(error(R"({"format": "norma comparison 99"})") ==
        start +
            "format: expected a version up to 2, got 99: a newer Norma has written this, and this one cannot read "
            "it\n");
  CHECK(error(R"({"format": 1})") == start + "format: expected a text, got 1\n");
  const std::string text = error("[\"" + std::string(100'000, 'x'));
  CHECK(text.starts_with(start + "the comparison: not JSON: "));
  CHECK(text.size() < 500);
}

TEST_CASE("norma run: what is read is not written over, nor what is not a result") {
  const TemporaryFolder folder;
  const auto model = models::create_model("resnet18", {.num_classes = 2});
  data::save_safetensors(folder / "W", model->state_dict());
  data::save_safetensors(folder / "X", {{"input", zeros({1, 3, 32, 32})}});
  std::filesystem::create_symlink("W", folder / "symbolic");
  std::filesystem::create_hard_link(folder / "X", folder / "hard");
  write_file(folder / "mine", "a letter");
  const std::string weights = read_file(folder / "W");
  const std::string input = read_file(folder / "X");
  const auto run = [&](const std::string& output) {
    return run_norma(folder.path(), "run --model resnet18 --num-classes 2 --weights W --input X --output " + output);
  };
  const auto same_as = [](const char* option, const char* output) {
    return fmt::format("norma: run: --output: expected another file than that of {}, got '{}'\n", option, output);
  };
  CHECK(run("W").err == same_as("--weights", "W"));
  CHECK(run("../" + folder.path().filename().string() + "/W").code == 2);
  CHECK(run("symbolic").err == same_as("--weights", "symbolic"));
  CHECK(run("X").err == same_as("--input", "X"));
  CHECK(run("hard").err == same_as("--input", "hard"));
  CHECK(run("mine").err ==
        "norma: run: --output: 'mine' is not a result of 'norma run': remove it, or choose another name\n");
  CHECK(read_file(folder / "W") == weights);
  CHECK(read_file(folder / "X") == input);
  CHECK(read_file(folder / "mine") == "a letter");
  CHECK(run("Y").code == 0);
  CHECK(run("Y").code == 0);  // its own
  CHECK(run("Y.npy").code == 0);
  CHECK(run("Y.npy").err ==
        "norma: run: --output: 'Y.npy' is there, and a .npy file does not say what wrote it: remove it, or choose "
        "another name\n");
}

TEST_CASE("norma bench: --results-file replaces results, and nothing else") {
  const TemporaryFolder folder;
  const std::string bench =
      "bench --model resnet18 --num-classes 10 --img-size 32 -b 2 --bench infer --num-warm-iter 0 --num-bench-iter 1 "
      "--quiet --results-file ";
  const auto refused = [&](const std::string& name) {
    const Outcome outcome = run_norma(folder.path(), bench + name);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  const std::string text = "' is not a result of 'norma bench': remove it, or choose another name\n";
  write_file(folder / "mine.csv", "model,year\nBeetle,1938\n");
  write_file(folder / "mine.json", "{\"model\": \"Beetle\"}");
  CHECK(refused("mine.csv") == "norma: bench: 'mine.csv" + text);
  CHECK(refused("mine.json") == "norma: bench: 'mine.json" + text);
  for (const std::string foreign :
       {"{\n    \"model\": \"Beetle\",\n    \"year\": 1938\n}\n", "[\n    {\n        \"model\": \"Beetle\"\n    }\n]\n",
        "{\n    \"model\": \"resnet50\",\n    \"infer_samples_per_sec\": 7.5\n}\n"}) {
    write_file(folder / "mine.json", foreign);
    CHECK(refused("mine.json") == "norma: bench: 'mine.json" + text);
    CHECK(read_file(folder / "mine.json") == foreign);
  }
  CHECK(refused("/dev/null") == "norma: bench: cannot open /dev/null: expected a regular file, got a device\n");
  CHECK(refused("none/r.csv") ==
        "norma: bench: results-file: expected a file in a folder that is there, got none/r.csv\n");
  CHECK(folder.names() == std::vector<std::string>{"mine.csv", "mine.json"});
  CHECK(read_file(folder / "mine.csv").starts_with("model,year"));
  for (const std::string name : {"r.csv", "r.json"}) {
    CHECK(run_norma(folder.path(), bench + name).code == 0);
    const Outcome again = run_norma(folder.path(), bench + name);
    CHECK_MESSAGE(again.code == 0, again.err);
  }
}

TEST_CASE("norma: results of other programs in an output folder stay") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "o");
  const auto refused = [&](const std::string& name, const std::string& arguments, const std::string& mine = "mine") {
    write_file(folder / "o" / name, mine);
    const Outcome outcome = run_norma(folder.path(), arguments + " --output o");
    CHECK(outcome.code == 2);
    CHECK(read_file(folder / "o" / name) == mine);
    CHECK(std::distance(std::filesystem::directory_iterator(folder / "o"), {}) == 1);
    std::filesystem::remove(folder / "o" / name);
    return outcome.err;
  };
  const std::string compare = "compare --models convnext_atto --norms batch --dataset shapes";
  const auto text = [](const std::string& command, const std::string& name) {
    return "norma: " + command + ": 'o' holds other results (" + name + "): choose another output folder\n";
  };
  CHECK(refused("results.csv", "audit --quick") == text("audit", "results.csv"));
  CHECK(refused("table.txt", "audit --quick") == text("audit", "table.txt"));
  CHECK(refused("share.gp", "bench-norms --quick") == text("bench-norms", "share.gp"));
  CHECK(refused("results.csv", compare) == text("compare", "results.csv"));
  CHECK(refused("report.html", compare) == text("compare", "report.html"));
  for (const std::string mine : {"mine", "step,epoch,loss\n1,0,2.5\n"}) {
    CHECK(refused("metrics.csv", "train " + kTiny, mine) ==
          "norma: metrics: 'o/metrics.csv' is not the log of a training run: remove it, or choose another name\n");
  }
}

TEST_CASE("norma train, compare: one at a time in a folder, a killed one leaves nothing for ever") {
  const TemporaryFolder folder;
  const auto start = [&](const std::string& arguments) {
    return fmt::format(
        "sh -c \"cd '{0}' && exec timeout 120 '{1}' {2} > log.txt 2>&1\" & i=0; "
        "while [ ! -s '{0}/o/.norma-lock' ] && [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done",
        folder.path().string(), test::norma_program(), arguments);
  };
  const auto kill = [&] {
    const int process = std::stoi(read_file(folder / "o/.norma-lock"));
    ::kill(process, SIGKILL);
    return process;
  };
  const std::string data = "--dataset shapes --patch-size 4 --batch-size 4 --test-images 4 --quiet --output o ";
  const std::string train = "train --model convnext_atto --norm batch " + data;
  const std::string compare = "compare --models convnext_atto --norms batch " + data;
  for (const std::string& command : {train, compare}) {
    CAPTURE(command);
    REQUIRE(std::system((start(command + "--images 4000000")).c_str()) == 0);
    const Outcome second = run_norma(folder.path(), train + "--images 4");
    const int process = kill();
    CHECK(second.code == 2);
    CHECK(second.err ==
          fmt::format("norma: train: 'o' is being written by another process ({}): wait for it, or choose "
                      "another output folder\n",
                      process));
    // What the dead one left is cleared away.
    write_file(folder / "o" / fmt::format("last.safetensors.{}-3.tmp", process), "half");
    // It is dead when its lock is free.
    REQUIRE(std::system(fmt::format("flock -w 60 '{}' true", (folder / "o/.norma-lock").string()).c_str()) == 0);
    const Outcome third = run_norma(folder.path(), train + "--images 4");
    CHECK_MESSAGE(third.code == 0, third.err);
    CHECK(std::filesystem::exists(folder / "o/last.safetensors"));
    CHECK_FALSE(std::filesystem::exists(folder / "o" / fmt::format("last.safetensors.{}-3.tmp", process)));
    CHECK_FALSE(std::filesystem::exists(folder / "o/.norma-lock"));
    std::filesystem::remove_all(folder / "o");
  }
}

TEST_CASE("norma train: the logs of a run that has finished an epoch are not replaced, its checkpoints gone or not") {
  const Trained trained;
  const TemporaryFolder& folder = trained.folder;
  const auto remove_checkpoints = [&](const std::string& run) {
    std::filesystem::remove(folder / run / "last.safetensors");
    std::filesystem::remove(folder / run / "model_best.safetensors");
  };
  REQUIRE(trained.run("train " + kTiny + "--log-json --output other").code == 0);
  remove_checkpoints("o");
  const std::string metrics = read_file(folder / "o/metrics.csv");
  const auto refused = [&](const std::string& arguments) {
    const Outcome outcome = trained.run("train " + arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.err ==
          "norma: train: 'o' holds the logs of another run, which has finished an epoch: choose another output "
          "folder\n");
    CHECK(read_file(folder / "o/metrics.csv") == metrics);
  };
  refused(kTiny + "--output o");
  refused("--resume other --images 12 --output o");
  std::filesystem::remove(folder / "o/summary.csv");
  refused(kTiny + "--output o");

  // Without an epoch there is nothing to lose: the run was killed in its first one.
  write_file(folder / "o/metrics.csv",
             "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy\n1,0.5000,4,0.1,2,5.0,,\n");
  write_file(folder / "o/summary.csv", "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr\n");
  const Outcome again = trained.run("train " + kTiny + "--output o");
  CHECK_MESSAGE(again.code == 0, again.err);
}

TEST_CASE("norma train, compare: a folder that is moved gets nothing more, nor does one that takes its place") {
  const TemporaryFolder folder;
  const std::string tiny =
      "--dataset shapes --patch-size 4 --batch-size 4 --test-images 4 --quiet --threads 1 --output o ";
  for (const auto& [command, file] :
       {std::pair<std::string, std::string>{
            "train --model convnext_atto --norm batch --images 4000000 --recovery-interval 20 ", "metrics.csv"},
        {"compare --models convnext_atto --norms batch,layer2d --images 40 --timing-rounds 100 ", "results.json"}}) {
    CAPTURE(command);
    const pid_t program = test::start_norma(folder.path(), command + tiny);
    const Outcome outcome = test::signal_when(program, folder.path(), 0, [&, file = file] {
      if (!std::filesystem::exists(folder / "o" / file)) {
        return false;
      }
      std::filesystem::rename(folder / "o", folder / "moved");
      std::filesystem::create_directory(folder / "o");
      return true;
    });
    CHECK(outcome.code == 2);
    // In the middle of a file it is that file's name that is gone.
    CHECK_MESSAGE((outcome.err == fmt::format("norma: {}: 'o' was moved or removed while results were written into it: "
                                              "nothing more is written\n",
                                              command.substr(0, command.find(' '))) ||
                   outcome.err.find(": cannot write o/") != std::string::npos),
                  outcome.err);
    for (const auto& entry : std::filesystem::directory_iterator(folder / "o")) {
      FAIL_CHECK(entry.path().string());
    }
    std::filesystem::remove_all(folder / "o");
    std::filesystem::remove_all(folder / "moved");
  }
}

TEST_CASE("norma train, compare: nothing is resumed that another process is writing") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "o");
  // Neither could be read: the lock comes first.
  write_file(folder / "o/last.safetensors", "half");
  write_file(folder / "o/results.json", "half");
  const train::FolderLock lock("test", folder / "o");
  for (const std::string command : {"train", "compare"}) {
    const Outcome outcome = run_norma(folder.path(), command + " --resume o");
    CHECK(outcome.code == 2);
    CHECK(outcome.err == fmt::format("norma: {}: 'o' is being written by another process ({}): wait for it, or choose "
                                     "another output folder\n",
                                     command, ::getpid()));
  }
}

TEST_CASE("norma: a file of another network is named, in a line of readable length") {
  const TemporaryFolder folder;
  data::save_safetensors(folder / "W", models::create_model("resnet50", {.num_classes = 10})->state_dict());
  data::save_safetensors(folder / "X", {{"input", zeros({1, 3, 32, 32})}});
  const Outcome run =
      run_norma(folder.path(), "run --model resnet18 --num-classes 10 --weights W --input X --output Y");
  CHECK(run.code == 2);
  CHECK_MESSAGE(
      run.err.starts_with("norma: weights: W: expected those of this resnet18, got a file of resnet50 (by its "
                          "names): load_state_dict: unexpected: layer1.0.conv3.weight, "),
      run.err);
  CHECK(run.err.find(" more") != std::string::npos);
  CHECK(run.err.size() < 2000);

  data::save_safetensors(folder / "other", {{"x", zeros({2})}});
  CHECK(
      run_norma(folder.path(), "run --model resnet18 --num-classes 10 --weights other --input X --output Y")
          .err.starts_with("norma: weights: other: expected those of this resnet18, got a file of no known network: "));
}

TEST_CASE("norma eval: the network of a checkpoint's metadata is named") {
  const Trained trained;
  const Outcome outcome = trained.run("eval --checkpoint o --model resnet18 --norm layer2d --dataset shapes");
  CHECK(outcome.code == 2);
  CHECK(
      outcome.err.starts_with("norma: weights: o/last.safetensors: expected those of this resnet18, got a file of "
                              "convnext_atto with norm batch (by its metadata), with the tensors stem."));
}

TEST_CASE("norma eval: weights that are not finite, a loss that is not, and integers") {
  const Trained trained;
  const auto set = [&](const std::string& name, const std::function<Tensor(const Tensor&)>& change) {
    trained.edit(
        [&](data::Safetensors& content) { tensor_named(content, name) = change(tensor_named(content, name)); });
  };
  set("head.fc.bias", [](const Tensor& x) {  // twice the largest number apart
    Tensor far = full(x.sizes(), -3e38);
    far.data<float>()[0] = 3e38F;
    return far;
  });
  const Outcome large = trained.run("eval --checkpoint o");
  CHECK(large.code == 1);
  CHECK(large.out.find("accuracy ") != std::string::npos);
  CHECK_MESSAGE(large.err.starts_with("norma: eval: the loss is "), large.err);
  CHECK(large.err.ends_with(", though all weights are finite (precision: float32)\n"));

  set("head.fc.bias", [](const Tensor& x) { return full(x.sizes(), std::numeric_limits<double>::quiet_NaN()); });
  const std::string text = "tensor 'head.fc.bias': expected finite numbers, got 10 of 10 that are NaN or infinite\n";
  const Outcome nan = trained.run("eval --checkpoint o");
  CHECK(nan.code == 2);
  CHECK(nan.err == "norma: eval: o/last.safetensors: " + text);
  CHECK(trained.run("train --resume o --images 12").err == "norma: train: the checkpoint: " + text);

  set("head.fc.bias", [](const Tensor& x) { return zeros(x.sizes(), {.dtype = DType::int32}); });
  const Outcome integers = trained.run("eval --checkpoint o");
  CHECK(integers.code == 2);
  CHECK(integers.err.ends_with("load_state_dict: head.fc.bias: expected a floating dtype, got int32\n"));
}

TEST_CASE("norma train: a checkpoint that contradicts itself is not resumed") {
  const Trained trained;
  const std::string whole = read_file(trained.folder / "o/last.safetensors");
  const auto error = [&](const auto& change) {
    change();
    const Outcome outcome = trained.run("train --resume o/last.safetensors --images 12");
    CHECK(outcome.code == 2);
    write_file(trained.folder / "o/last.safetensors", whole);
    return outcome.err;
  };
  const auto with_metadata = [&](const std::string& key, const std::string& value) {
    return error([&] { trained.edit([&](data::Safetensors& content) { content.metadata[key] = value; }); });
  };
  CHECK(error([&] { trained.edit_recipe("batch_size", 3.7); }) ==
        "norma: checkpoint: recipe: batch_size: expected a whole number, got 3.7\n");
  CHECK(with_metadata("model", "resnet18") ==
        "norma: checkpoint: model: 'convnext_atto' in the recipe, but 'resnet18' in the metadata\n");
  CHECK(with_metadata("norm", "group:2") ==
        "norma: checkpoint: norm: 'batch' in the recipe, but 'group:2' in the metadata\n");
  CHECK(with_metadata("seed", "5") == "norma: checkpoint: seed: '0' in the recipe, but '5' in the metadata\n");
  CHECK(with_metadata("epoch", "1") ==
        "norma: train: the checkpoint is at step 2 in epoch 1, but an epoch has 15000 "
        "steps\n");
  CHECK(with_metadata("epoch", "3") ==
        "norma: checkpoint: o/last.safetensors: metadata 'epoch': expected a number from 0 to 2, the step, got 3; "
        "'o/model_best.safetensors' is whole: --resume o/model_best.safetensors\n");
  CHECK(with_metadata("step", "1") == "norma: train: the checkpoint is at step 1, but its optimizer at step 2\n");
  CHECK(error([&] {
          trained.edit([](data::Safetensors& content) {
            tensor_named(content, "optimizer.step") = full({}, -3, {.dtype = DType::int64});
          });
        }) == "norma: optimizer.load_state_dict: step: expected at least 0, got -3\n");
}

TEST_CASE("norma train: a run that goes on with other versions says so") {
  const Trained trained;
  CHECK(trained.run("train --resume o --images 12").out.find("versions") == std::string::npos);
  trained.edit([&](data::Safetensors& content) {
    auto options = test::parse_json(content.metadata["options"]);
    CHECK(options["versions"].get<std::string>() == train::versions_json());
    CHECK(train::versions_json().starts_with("{\"norma\":\""));
    options["versions"] = R"({"norma":"0.0.1"})";
    content.metadata["options"] = data::json_text(options);
  });
  const Outcome other = trained.run("train --resume o --images 16");
  CHECK_MESSAGE(other.code == 0, other.err);
  CHECK_MESSAGE(other.out.find("changed on resuming, so that bits may differ: versions {\"norma\":\"0.0.1\"} → " +
                               train::versions_json() + "\n") != std::string::npos,
                other.out);
}

TEST_CASE("norma eval: --model of a checkpoint leaves the rest to its recipe") {
  const Trained trained;  // with another norm than the model's own
  const auto result = [&](const std::string& arguments) {
    const Outcome outcome = trained.run("eval --checkpoint o " + arguments);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out.substr(0, outcome.out.find(" images, "));
  };
  CHECK(result("--model convnext_atto") == result(""));
  CHECK(trained.run("eval --checkpoint o --model convnext_femto").code == 2);
}
