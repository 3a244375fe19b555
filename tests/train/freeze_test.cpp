#include "train/freeze.h"

#include "core/copy.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "files.h"
#include "json.h"
#include "nn/norm/batch_norm.h"
#include "nn/optim/optimizers.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "session/resume.h"
#include "session/trainer.h"
#include "small_runs.h"
#include "support.h"
#include "train/evaluate.h"
#include "train/training_step.h"
#include "train/weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::train;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::read_file;
using norma::test::small_recipe;
using norma::test::TemporaryFolder;

namespace {

/// Three steps of a ResNet whose stem and first block are frozen.
Recipe frozen_recipe(const std::string& opt = "sgd") {
  Recipe recipe = small_recipe("resnet18", {.images = 12});
  recipe.opt = opt;
  recipe.sched = "constant";
  recipe.lr = 0.01;
  recipe.norm_weight_decay = 0.1;
  recipe.bias_weight_decay = 0.1;
  recipe.freeze = {"conv1.*", "bn1.*", "layer1.0"};
  return recipe;
}

bool is_frozen_name(const std::string& name) {
  return name.starts_with("conv1.") || name.starts_with("bn1.") || name.starts_with("layer1.0.");
}

std::map<std::string, Tensor> copies_of(const nn::NamedTensors& state) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, x] : state) {
    copies.emplace(name, copy_of(x.detach()));
  }
  return copies;
}

std::vector<nlohmann::json> objects_in(const std::filesystem::path& file) {
  std::vector<nlohmann::json> objects;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(test::parse_json(line));
  }
  return objects;
}

Tensor parameter_of(nn::Module& model, const std::string& wanted) {
  for (const auto& [name, x] : model.named_parameters()) {
    if (name == wanted) {
      return x;
    }
  }
  throw Error("no parameter " + wanted);
}

nn::BatchNorm& norm_of(nn::Module& model, const std::string& wanted) {
  for (const auto& [path, module] : model.named_modules()) {
    if (path == wanted) {
      return dynamic_cast<nn::BatchNorm&>(*module);
    }
  }
  throw Error("no norm " + wanted);
}

/// One batch for steps by hand.
data::Batch batch_of(const Recipe& recipe) {
  return {.images = norma::test::random_tensor({recipe.batch_size, 3, 32, 32}, 1, DType::float32),
          .labels = zeros({recipe.batch_size}, {.dtype = DType::int64}),
          .total = recipe.batch_size};
}

}  // namespace

TEST_CASE("freeze: frozen tensors and their averages keep their bits, with every optimizer, precision and format" *
          doctest::test_suite("again")) {
  struct Case {
    const char* name;
    std::function<void(Recipe&)> change;
  };
  const std::vector<Case> cases{{"adamw, averages, layer decay, head-lr",
                                 [](Recipe& r) {
                                   r.opt = "adamw";
                                   r.model_ema = true;
                                   r.model_ema_decay = 0.3;
                                   r.layer_decay = 0.8;
                                   r.head_lr = 0.1;
                                 }},
                                {"accumulation, clipping, NCHW",
                                 [](Recipe& r) {
                                   r.grad_accum_steps = 2;
                                   r.images = 24;
                                   r.clip_grad = 0.1;
                                   r.clip_mode = "agc";
                                   r.channels_last = false;
                                 }},
                                {"bfloat16, averages",
                                 [](Recipe& r) {
                                   r.precision = "bfloat16";
                                   r.model_ema = true;
                                   r.model_ema_decay = 0.3;
                                 }},
                                {"amp_bfloat16, skipping, lamb",
                                 [](Recipe& r) {
                                   r.precision = "amp_bfloat16";
                                   r.skip_nonfinite = true;
                                   r.opt = "lamb";
                                 }},
                                {"float64, rmsproptf", [](Recipe& r) {
                                   r.precision = "float64";
                                   r.opt = "rmsproptf";
                                 }}};
  for (const Case& one : cases) {
    CAPTURE(one.name);
    Recipe recipe = frozen_recipe();
    one.change(recipe);
    Trainer trainer(recipe, {.quiet = true});
    const auto before = copies_of(trainer.checkpoint().model);
    trainer.run();
    const Checkpoint after = trainer.checkpoint();
    CHECK(after.model.size() == before.size());
    for (const auto& [name, x] : after.model) {
      CHECK_MESSAGE((max_difference(x, before.at(name)) == 0) == is_frozen_name(name), name);
    }
    CHECK(after.ema.empty() != recipe.model_ema);
    for (const auto& [name, x] : after.ema) {
      if (is_frozen_name(name)) {
        CHECK_MESSAGE(max_difference(x, before.at(name)) == 0, name);
      }
    }
    for (const auto& [name, x] : after.optimizer) {  // neither averages nor master weights
      CHECK_MESSAGE(!is_frozen_name(name.substr(name.find('.') + 1)), name);
    }
  }
}

TEST_CASE("freeze: a frozen tensor that moves ends the run, whatever moves it" * doctest::test_suite("again")) {
  struct Mover {
    const char* name;
    std::string tensor;
    std::function<void(nn::Module&)> move;
  };
  // A step with a gradient of 1, whose change is undone, and one with a gradient of 0: decay and momentum alone are
  // left.
  const auto steps_of_sgd = [](nn::Module& model, const nn::SgdOptions& options, double decay) {
    Tensor x = parameter_of(model, "conv1.weight");
    const Tensor before = copy_of(x.detach());
    x.set_requires_grad();
    nn::Sgd optimizer({{.parameters = {{"conv1.weight", x}}, .weight_decay = decay}}, options);
    x.set_grad(ones_like(before));
    optimizer.step();
    copy_into(before, x.detach());
    x.set_grad(zeros_like(before));
    optimizer.step();
    x.set_grad({});
    x.set_requires_grad(false);
  };
  const std::vector<Mover> movers{
      {"decay", "conv1.weight", [&](nn::Module& model) { steps_of_sgd(model, {.lr = 0.01}, 0.1); }},
      {"momentum", "conv1.weight", [&](nn::Module& model) { steps_of_sgd(model, {.lr = 1e-3, .momentum = 0.9}, 0); }},
      {"statistics", "layer1.0.bn2.num_batches_tracked",
       [](nn::Module& model) {
         nn::BatchNorm& norm = norm_of(model, "layer1.0.bn2");
         norm.freeze_statistics(false);
         norm(norma::test::random_tensor({2, 64, 4, 4}, 1, DType::float32));
         norm.freeze_statistics();
       }},
      {"load", "bn1.bias", [](nn::Module& model) {
         nn::NamedTensors state = model.state_dict();
         for (auto& [name, x] : state) {
           x = name == "bn1.bias" ? ones_like(x) : copy_of(x);
         }
         model.load_state_dict(state);
       }}};
  for (const Mover& mover : movers) {
    CAPTURE(mover.name);
    const TemporaryFolder folder;
    std::shared_ptr<nn::Module> model;
    int steps = 0;
    const auto move = [&](std::string_view stage) {
      if (stage == "step" && ++steps == 2) {
        mover.move(*model);
      }
    };
    Trainer trainer(frozen_recipe(), {.output = folder / "o", .quiet = true, .before_stage = move});
    model = trainer.model();
    const std::string error = error_of([&] { trainer.run(); });
    CHECK_MESSAGE(error.starts_with("freeze: '" + mover.tensor + "' is frozen and has changed: its SHA-256 is "),
                  error);
    CHECK_FALSE(std::filesystem::exists(folder / "o/last.safetensors"));  // no checkpoint of it is written
  }

  // The averages are no tensors of the network.
  Recipe recipe = frozen_recipe();
  recipe.model_ema = true;
  TrainingState run(recipe);
  StepFaults faults(run);
  const data::Batch batch = batch_of(recipe);
  run.model->train();
  train_step(run, faults, 1, [&] { return batch; });
  run.frozen.check(run);
  for (const auto& [name, x] : run.ema->averages()) {
    if (name == "bn1.weight") {
      copy_into(mul(x, 0.999), x);
    }
  }
  CHECK(error_of([&] { run.frozen.check(run); }) ==
        "freeze: 'bn1.weight' is frozen, and its moving average has drifted from it");
}

TEST_CASE("freeze: the log has the hashes of both ends, the savings, and the weights of the start" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  Recipe recipe = frozen_recipe();
  Recipe whole = recipe;
  whole.freeze.clear();
  Trainer source(whole, {.quiet = true});
  data::save_safetensors(folder / "w.safetensors", source.model()->state_dict());
  recipe.initial_checkpoint = (folder / "w.safetensors").string();
  for (const bool channels_last : {true, false}) {
    recipe.channels_last = channels_last;
    const std::filesystem::path output = folder / (channels_last ? "a" : "b");
    Trainer trainer(recipe, {.output = output, .quiet = true});
    trainer.run();
    const std::vector<nlohmann::json> log = objects_in(output / "log.jsonl");
    REQUIRE(log.size() == 5);
    CHECK(log[0]["type"] == "start");
    CHECK(log[0]["initial_checkpoint"] == trainer.initial_weights());
    const nlohmann::json& start = log[1];
    CHECK(start["type"] == "frozen");
    CHECK(start["at"] == "start");
    CHECK(start["text"] ==
          "freeze: 9 of 62 parameters (83520 of 11181642 elements) and the statistics of 3 norms stay as they are");
    CHECK(start["sha256"].size() == 18);
    CHECK(start["saved"]["images"] == 4);
    CHECK(start["saved"]["kept_bytes"].get<int64_t>() < start["saved"]["kept_bytes_unfrozen"].get<int64_t>());
    CHECK(start["saved"]["gradient_bytes_unfrozen"].get<int64_t>() - start["saved"]["gradient_bytes"].get<int64_t>() ==
          4 * 83520);
    CHECK(start["saved"]["seconds"].get<double>() > 0);
    CHECK(log[4]["at"] == "end");
    CHECK(log[4]["step"] == 3);
    CHECK(log[4]["sha256"] == start["sha256"]);
    for (const auto& [name, x] : source.model()->state_dict()) {
      if (is_frozen_name(name)) {  // of the elements in row-major order, in both memory formats
        CHECK_MESSAGE(start["sha256"][name] == sha256_of(copy_of(x, MemoryFormat::contiguous)), name);
      }
    }
  }
}

TEST_CASE("freeze: measuring what it saves leaves no trace in the run") {
  const TemporaryFolder folder;
  Recipe recipe = frozen_recipe("adamw");
  recipe.freeze = {"layer[12].*"};
  recipe.precision = "amp_bfloat16";
  Trainer silent(recipe, {.quiet = true});  // nobody reads what it would measure
  Trainer told(recipe, {.output = folder / "o", .quiet = true});
  CHECK(silent.run().losses == told.run().losses);
  const Checkpoint a = silent.checkpoint();
  const Checkpoint b = told.checkpoint();
  for (size_t i = 0; i < a.model.size(); ++i) {
    CHECK_MESSAGE(max_difference(a.model[i].second, b.model[i].second) == 0, a.model[i].first);
  }
}

TEST_CASE("freeze: a resumed run goes on with the same bits and log, and refuses other patterns and moved tensors" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  for (const char* precision : {"float32", "bfloat16"}) {
    CAPTURE(precision);
    Recipe recipe = frozen_recipe();
    recipe.precision = precision;
    recipe.model_ema = true;
    const std::string whole_name = std::string("whole-") + precision;
    const std::string part_name = std::string("part-") + precision;
    Trainer whole(recipe, {.output = folder / whole_name, .log_interval = 1, .quiet = true});
    whole.run();
    int steps = 0;
    const auto stop = [&](std::string_view stage) {
      if (stage == "step" && ++steps == 2) {
        throw Error("enough");
      }
    };
    CHECK(error_of([&] {
            Trainer(recipe, {.output = folder / part_name,
                             .keep = {.recovery_interval = 1},
                             .log_interval = 1,
                             .quiet = true,
                             .before_stage = stop})
                .run();
          }) == "enough");
    const std::filesystem::path recovery = folder / part_name / "recovery-0-1.safetensors";
    Checkpoint checkpoint = load_checkpoint(recovery);
    Trainer rest(recipe, {.output = folder / part_name, .resumed = recovery, .log_interval = 1, .quiet = true},
                 checkpoint);
    rest.run();
    const nn::NamedTensors end = load_weights(folder / part_name / "last.safetensors").tensors;
    const nn::NamedTensors expected = load_weights(folder / whole_name / "last.safetensors").tensors;
    for (size_t i = 0; i < end.size(); ++i) {
      CHECK_MESSAGE(max_difference(end[i].second, expected[i].second) == 0, end[i].first);
    }
    const std::vector<nlohmann::json> log = objects_in(folder / part_name / "log.jsonl");
    const std::vector<nlohmann::json> uninterrupted = objects_in(folder / whole_name / "log.jsonl");
    REQUIRE(log.size() == uninterrupted.size());
    for (size_t i = 0; i < log.size(); ++i) {
      CHECK(log[i]["type"] == uninterrupted[i]["type"]);
      CHECK(log[i]["step"] == uninterrupted[i]["step"]);
    }

    Recipe other = recipe;
    other.freeze = {"conv1.*"};
    const auto resume = [&](const Recipe& now) {
      TrainingState run(now);
      resume_run(run, checkpoint);
    };
    CHECK(error_of([&] { resume(other); }) ==
          "resume: freeze: the run was started with 'conv1.*,bn1.*,layer1.0', and cannot go on with 'conv1.*'");
    other.freeze.clear();
    CHECK(error_of([&] { resume(other); }) ==
          "resume: freeze: the run was started with 'conv1.*,bn1.*,layer1.0', and cannot go on with none");
    for (auto& [name, x] : checkpoint.model) {
      if (name == "conv1.weight") {
        x = mul(x, 1.5);
      }
    }
    CHECK(error_of([&] {
            resume(recipe);
          }).starts_with("freeze: 'conv1.weight' is frozen and has changed: its SHA-256 is "));
  }
}

TEST_CASE("freeze: 16-bit runs begin with the unrounded weights of a file, and give back frozen ones as they were" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  Recipe recipe = frozen_recipe();
  Trainer source(recipe, {.quiet = true});
  nn::NamedTensors weights;
  uint64_t seed = 0;
  for (const auto& [name, x] : source.model()->state_dict()) {
    const bool is_variance = name.ends_with("running_var");
    weights.emplace_back(name, is_floating(x.dtype()) && !is_variance
                                   ? mul(norma::test::random_tensor(x.sizes(), ++seed, DType::float32), 0.05)
                                   : copy_of(x));
  }
  data::save_safetensors(folder / "w.safetensors", weights);
  recipe.initial_checkpoint = (folder / "w.safetensors").string();
  const std::map<std::string, Tensor> given(weights.begin(), weights.end());
  for (const char* precision : {"bfloat16", "float16"}) {
    CAPTURE(precision);
    recipe.precision = precision;
    Trainer trainer(recipe, {.quiet = true});
    for (const auto& [name, x] : trainer.checkpoint().model) {
      CHECK_MESSAGE(max_difference(x, given.at(name)) == 0, name);
    }
    for (const auto& [name, x] : trainer.model()->named_parameters()) {
      CHECK_MESSAGE(max_difference(x, to(given.at(name), x.dtype())) == 0, name);
    }
    trainer.run();
    for (const auto& [name, x] : trainer.checkpoint().model) {
      CHECK_MESSAGE((max_difference(x, given.at(name)) == 0) == is_frozen_name(name), name);
    }
  }
}

TEST_CASE("freeze: recalibration keeps frozen statistics") {
  Recipe recipe = frozen_recipe();
  TrainingState run(recipe);
  const auto before = copies_of(run.model->named_buffers());
  data::Loader batches = make_train_loader(recipe, run.train_set, 0);
  recalibrate(*run.model, batches, 2);
  for (const auto& [name, x] : run.model->named_buffers()) {
    if (!nn::is_counter(name)) {
      CHECK_MESSAGE((max_difference(x, before.at(name)) == 0) == is_frozen_name(name), name);
    }
  }
  recipe.freeze = {"*bn?", "*.downsample.1"};
  const TrainingState all(recipe);
  data::Loader again = make_train_loader(recipe, all.train_set, 0);
  CHECK(error_of([&] { recalibrate(*all.model, again, 2); }) ==
        "recalibrate: model: expected batch norms whose statistics are not frozen, got none");
}

TEST_CASE("freeze: averages that get new statistics keep the frozen ones") {
  Recipe recipe = frozen_recipe();
  recipe.model_ema = true;
  Trainer trainer(recipe, {.quiet = true});
  const auto before = copies_of(trainer.model()->named_buffers());
  trainer.run();
  trainer.take_averages(2);
  for (const auto& [name, x] : trainer.model()->named_buffers()) {
    if (!nn::is_counter(name)) {
      CHECK_MESSAGE((max_difference(x, before.at(name)) == 0) == is_frozen_name(name), name);
    }
  }
}

TEST_CASE("freeze: options that contradict it are refused") {
  Recipe recipe = frozen_recipe();
  recipe.freeze = {"fc"};
  recipe.head_lr = 0.1;
  CHECK(error_of([&] { TrainingState run(recipe); }) ==
        "train: head-lr: expected a classifier that is trained, got the frozen fc.bias");
  recipe.head_lr.reset();
  recipe.reset_head = true;
  CHECK(error_of([&] { TrainingState run(recipe); }) ==
        "train: reset-head: expected a classifier that is trained, as it is made anew, got the frozen fc.weight");
}

TEST_CASE("head-lr: a parameter of no module is no classifier") {
  struct Scaled : nn::Module {
    Scaled() {
      first = register_parameter("first", ones({3}));
      scale = register_parameter("scale", ones({3}));
    }
    Tensor forward(const Tensor& x) override { return x; }
    [[nodiscard]] std::string name() const override { return "Scaled"; }
    Tensor first;
    Tensor scale;
  };
  Recipe recipe;
  recipe.head_lr = 0.1;
  CHECK(error_of([&] { make_optimizer(recipe, Scaled()); }) ==
        "train: head-lr: expected a classifier, the module of the last parameter, got the parameter 'scale' of no "
        "module");
}
