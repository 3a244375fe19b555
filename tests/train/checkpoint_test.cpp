#include "train/checkpoint.h"

#include "file_size_limit.h"
#include "files.h"
#include "support.h"

using namespace norma;
using namespace norma::train;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::read_file;
using norma::test::TemporaryFolder;

namespace {

Checkpoint example() {
  Checkpoint checkpoint;
  checkpoint.model = {{"conv1.weight", norma::test::random_tensor({4, 3, 2, 5}, 1, DType::float32)},
                      {"bn1.running_mean", norma::test::random_tensor({4}, 2, DType::float32)},
                      {"bn1.num_batches_tracked", scalar(17, DType::int64)}};
  checkpoint.optimizer = {{"step", scalar(17, DType::int64)},
                          {"exp_avg.conv1.weight", norma::test::random_tensor({4, 3, 2, 5}, 3, DType::float32)}};
  checkpoint.ema = {{"conv1.weight", norma::test::random_tensor({4, 3, 2, 5}, 4, DType::float32)}};
  checkpoint.step = 17;
  checkpoint.epoch = 2;
  checkpoint.seed = 0xFFFFFFFFFFFFFFFF;
  checkpoint.generator_seed = 3;
  checkpoint.generator_offset = 1ULL << 63;
  checkpoint.model_name = "resnet50";
  checkpoint.norm = "group:32[eps=1e-3]";
  checkpoint.options = {{"batch_size", "128"}, {"data_dir", "/a \"folder\""}};
  return checkpoint;
}

Tensor find(const data::NamedTensors& tensors, const std::string& name) {
  for (const auto& [known, tensor] : tensors) {
    if (known == name) {
      return tensor;
    }
  }
  return {};
}

void check_same(const data::NamedTensors& actual, const data::NamedTensors& expected) {
  CHECK(actual.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    const Tensor found = find(actual, name);
    REQUIRE(found.defined());
    CHECK(found.dtype() == tensor.dtype());
    CHECK(max_difference(found, tensor) <= 0);
  }
}

}  // namespace

TEST_CASE("checkpoint: everything comes back") {
  const TemporaryFolder folder;
  const Checkpoint saved = example();
  save_checkpoint(folder / "file", saved);
  const Checkpoint loaded = load_checkpoint(folder / "file");
  check_same(loaded.model, saved.model);
  check_same(loaded.optimizer, saved.optimizer);
  check_same(loaded.ema, saved.ema);
  CHECK(loaded.step == saved.step);
  CHECK(loaded.epoch == saved.epoch);
  CHECK(loaded.seed == saved.seed);
  CHECK(loaded.generator_seed == saved.generator_seed);
  CHECK(loaded.generator_offset == saved.generator_offset);
  CHECK(loaded.model_name == saved.model_name);
  CHECK(loaded.norm == saved.norm);
  CHECK(loaded.options == saved.options);
}

TEST_CASE("checkpoint: an empty one comes back too") {
  const TemporaryFolder folder;
  save_checkpoint(folder / "file", {});
  const Checkpoint loaded = load_checkpoint(folder / "file");
  CHECK(loaded.model.empty());
  CHECK(loaded.options.empty());
}

TEST_CASE("checkpoint: weights of a checkpoint and of a plain file") {
  const TemporaryFolder folder;
  const Checkpoint saved = example();
  save_checkpoint(folder / "checkpoint", saved);
  check_same(load_weights(folder / "checkpoint").tensors, saved.model);
  // A network of another program may well have parts called optimizer.
  data::save_safetensors(folder / "weights", {{"optimizer.weight", ones({2})}});
  check_same(load_weights(folder / "weights").tensors, {{"optimizer.weight", ones({2})}});

  check_same(load_weights(folder / "checkpoint", {.use_ema = true}).tensors, saved.ema);
  const auto refused = [&](const char* name) {
    return error_of([&] { load_weights(folder / name, {.use_ema = true}); });
  };
  CHECK(refused("weights") == "weights: " + (folder / "weights").string() +
                                  ": expected averages of the weights (state_dict_ema, model_ema, …), got none");
  Checkpoint without = saved;
  without.ema.clear();
  save_checkpoint(folder / "without", without);
  CHECK(refused("without") == "checkpoint: " + (folder / "without").string() +
                                  ": expected averages of the weights (norma train --model-ema), got none");
}

TEST_CASE("checkpoint: bad files, each with its error") {
  const TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  const auto error_for = [&](const std::string& key, const std::string& value) {
    save_checkpoint(file, example());
    data::Safetensors content = data::load_safetensors(file);
    if (value == "(none)") {
      content.metadata.erase(key);
    } else {
      content.metadata[key] = value;
    }
    data::save_safetensors(file, content.tensors, content.metadata);
    return error_of([&] { load_checkpoint(file); });
  };
  CHECK(error_of([&] { load_checkpoint(file); }) == "safetensors: cannot open " + file + ": No such file or directory");
  CHECK(error_for("norma_checkpoint", "(none)") ==
        "checkpoint: " + file + ": expected a checkpoint, got a file with weights only");
  CHECK(error_for("norma_checkpoint", "2") ==
        "checkpoint: " + file + ": expected a checkpoint of version 1, got version 2");
  CHECK(error_for("step", "(none)") == "checkpoint: " + file + ": metadata 'step' is missing");
  CHECK(error_for("norm", "(none)") == "checkpoint: " + file + ": metadata 'norm' is missing");
  CHECK(error_for("epoch", "two") == "checkpoint: " + file + ": metadata 'epoch': expected a whole number, got 'two'");
  CHECK(error_for("epoch", "2x") == "checkpoint: " + file + ": metadata 'epoch': expected a whole number, got '2x'");
  CHECK(error_for("seed", "-1") == "checkpoint: " + file + ": metadata 'seed': expected a whole number, got '-1'");
  CHECK(error_for("options", "{\"a\":1}") == "checkpoint: " + file + ": metadata 'options'.a: expected a text, got 1");
  CHECK(error_for("options", "{").starts_with("checkpoint: " + file + ": metadata 'options': not JSON: "));
  CHECK(error_for("options", "[]") == "checkpoint: " + file + ": metadata 'options': expected an object, got []");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK(error_for("options", deep) == "checkpoint: " + file +
                                          ": metadata 'options': expected at most 32 objects and lists in each other, "
                                          "got more");
  CHECK(error_for("step", std::string(100000, '1')).size() < 300);
  CHECK(error_for("step", "-1") == "checkpoint: " + file + ": metadata 'step': expected at least 0, got -1");
  CHECK(error_for("epoch", "18") ==
        "checkpoint: " + file + ": metadata 'epoch': expected a number from 0 to 17, the step, got 18");
  CHECK(error_for("epoch", "-1") ==
        "checkpoint: " + file + ": metadata 'epoch': expected a number from 0 to 17, the step, got -1");
}

TEST_CASE("checkpoint: bad arguments of save, each with its error") {
  const TemporaryFolder folder;
  const std::string file = (folder / "file").string();
  Checkpoint checkpoint = example();
  checkpoint.model.emplace_back("optimizer.weight", ones({1}));
  CHECK(error_of([&] { save_checkpoint(file, checkpoint); }) ==
        "checkpoint: " + file +
            ": tensor 'optimizer.weight': the name of a model's tensor must not begin with optimizer.");
  checkpoint = example();
  checkpoint.options["name"] = std::string(1, static_cast<char>(0xFF));
  CHECK(error_of([&] { save_checkpoint(file, checkpoint); }) == "checkpoint: " + file + ": options must be UTF-8");
  CHECK(folder.names().empty());
}

TEST_CASE("checkpoint: a disk that fills leaves the checkpoint before") {
  const TemporaryFolder folder;
  const std::string file = (folder / "last.safetensors").string();
  save_checkpoint(file, example());
  const std::string before = read_file(file);
  Checkpoint next = example();
  next.step = 18;
  next.model.emplace_back("large", zeros({100000}));

  // A limit on file sizes stands for the full disk: write() then fails in the same way, in part first.
  std::string error;
  {
    const norma::test::FileSizeLimit limit(20000);
    error = error_of([&] { save_checkpoint(file, next); });
  }

  CHECK(error == "safetensors: cannot write " + file + ": File too large");
  CHECK(read_file(file) == before);
  CHECK(load_checkpoint(file).step == 17);
  CHECK(folder.names() == std::vector<std::string>{"last.safetensors"});
}

TEST_CASE("checkpoint: a folder that cannot be written") {
  const TemporaryFolder folder;
  norma::test::write_file(folder / "plain", "a file");
  const std::string file = (folder / "plain").string() + "/last.safetensors";
  CHECK(error_of([&] { save_checkpoint(file, example()); }) ==
        "safetensors: cannot write " + file + ": Not a directory");
}
