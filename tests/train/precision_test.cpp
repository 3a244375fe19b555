#include "train/precision.h"

#include "core/factory.h"
#include "error_text.h"
#include "files.h"
#include "models/registry.h"
#include "ops/half/bfloat16.h"
#include "ops/pointwise/pointwise.h"
#include "session/trainer.h"
#include "support.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::TemporaryFolder;

namespace {

Recipe small_recipe(const std::string& model, const std::string& precision) {
  Recipe recipe;
  recipe.model = model;
  recipe.norm = model == "resnet18" ? "batch" : "layer2d";
  recipe.small_stem = model == "resnet18";
  if (model != "resnet18") {
    recipe.layer_scale = 1;
  }
  recipe.dataset = "shapes";
  recipe.image_size = 16;
  recipe.batch_size = 16;
  recipe.images = 16 * 10;
  recipe.sched = "constant";
  recipe.test_images = 32;
  recipe.lr = 1e-3;
  recipe.seed = 3;
  recipe.precision = precision;
  return recipe;
}

TrainResult train_quietly(const Recipe& recipe) {
  return Trainer(recipe, {.evaluate_each_epoch = false, .quiet = true}).run();
}

double mean_of_last(const std::vector<double>& losses, size_t count) {
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

/// Trains in 16 bits what float32 trains.
void train_in_16_bits(const char* model, std::initializer_list<const char*> precisions) {
  const TrainResult wide = train_quietly(small_recipe(model, "float32"));
  const double before = wide.losses.front();
  const double expected = mean_of_last(wide.losses, 5);
  // The first steps of Adam lead uphill; it has to come down from there.
  REQUIRE(expected < *std::max_element(wide.losses.begin(), wide.losses.end()) - 0.1);
  for (const char* precision : precisions) {
    INFO(precision);
    const TrainResult low = train_quietly(small_recipe(model, precision));
    CHECK(low.losses != wide.losses);
    CHECK(std::abs(low.losses.front() - before) <= 0.05);
    CHECK(std::abs(mean_of_last(low.losses, 5) - expected) <= 0.1);
    CHECK(low.test.complete);
    CHECK(std::isfinite(low.test.loss));
  }
}

}  // namespace

// The products of float16 are slow on CPUs, so each network has one precision with it.
TEST_CASE("precision: a small ResNet trains in 16 bits to nearly the loss of float32" * doctest::test_suite("again")) {
  train_in_16_bits("resnet18", {"amp_bfloat16", "bfloat16", "amp_float16"});
}

TEST_CASE("precision: a small ConvNeXt trains in 16 bits to nearly the loss of float32" *
          doctest::test_suite("again")) {
  train_in_16_bits("convnext_atto", {"amp_bfloat16", "bfloat16", "float16"});
}

TEST_CASE("precision: float64 trains, too") {
  Recipe recipe = small_recipe("convnext_atto", "float64");
  recipe.images = 32;
  const TrainResult result = train_quietly(recipe);
  recipe.precision = "float32";
  CHECK(std::abs(result.losses.front() - train_quietly(recipe).losses.front()) < 1e-4);
}

TEST_CASE("precision: checkpoints hold float32, and a resumed run has the same bits") {
  for (const char* precision : {"bfloat16", "amp_bfloat16", "float16", "amp_float16"}) {
    INFO(precision);
    Recipe recipe = small_recipe("resnet18", precision);
    recipe.batch_size = 4;
    recipe.images = 4 * (parse_precision(precision).scales_gradients() ? 2 : 4);
    recipe.test_images = 4;
    recipe.epochs = 1;
    const TemporaryFolder whole;
    Trainer straight(recipe, {.output = whole.path(), .evaluate_each_epoch = false, .quiet = true});
    straight.run();
    const Checkpoint end = load_checkpoint(straight.checkpoint_file());
    for (const auto& [name, x] : end.model) {
      INFO(name);
      CHECK((x.dtype() == DType::float32 || name.ends_with("num_batches_tracked")));
    }
    for (const auto& [name, x] : end.optimizer) {
      INFO(name);
      CHECK((x.dtype() == DType::float32 || x.dtype() == DType::int64));
    }
    Trainer again(recipe, {.evaluate_each_epoch = false, .quiet = true}, end);
    const Checkpoint loaded = again.checkpoint();
    const std::map<std::string, Tensor> written(end.model.begin(), end.model.end());
    REQUIRE(loaded.model.size() == written.size());
    for (const auto& [name, x] : loaded.model) {
      INFO(name);
      CHECK(test::max_difference(x, written.at(name)) == 0);
    }
    const DType dtype = parse_precision(precision).dtype;
    for (const auto& [name, x] : again.model()->named_parameters()) {
      CHECK(x.dtype() == dtype);
    }
    for (const auto& [name, x] : again.model()->named_buffers()) {
      CHECK((x.dtype() == DType::float32 || !is_floating(x.dtype())));
    }
  }
}

TEST_CASE("precision: steps whose gradients overflow in float16 are left out, also across a resume") {
  for (const char* precision : {"float16", "amp_float16"}) {
    INFO(precision);
    Recipe recipe = small_recipe("convnext_atto", precision);
    recipe.images = recipe.batch_size * 6;
    recipe.sched = "constant";
    recipe.model_ema = true;
    const TrainerOptions options{.evaluate = false, .quiet = true};
    Checkpoint high = Trainer(recipe, options).checkpoint();
    high.options["grad_scaler.factor"] = "262144";  // 2^18
    Trainer whole(recipe, options, high);
    whole.run();
    const Checkpoint a = whole.checkpoint();
    const int64_t overflows = std::stoll(a.options.at("overflows"));
    CHECK(overflows > 0);
    REQUIRE(overflows < 6);
    CHECK(std::stod(a.options.at("grad_scaler.factor")) == std::ldexp(1.0, static_cast<int>(18 - overflows)));
    CHECK(std::stoll(a.options.at("grad_scaler.growth_tracker")) <= 6 - overflows);

    Recipe half = recipe;
    half.images = recipe.batch_size * 2;
    Trainer first(half, options, high);
    first.run();
    Trainer second(recipe, options, first.checkpoint());
    second.run();
    const Checkpoint b = second.checkpoint();
    CHECK(a.options.at("overflows") == b.options.at("overflows"));
    CHECK(a.options.at("grad_scaler.factor") == b.options.at("grad_scaler.factor"));
    CHECK(a.options.at("grad_scaler.growth_tracker") == b.options.at("grad_scaler.growth_tracker"));
    REQUIRE(!a.ema.empty());
    REQUIRE(a.ema.size() == b.ema.size());
    for (size_t i = 0; i < a.model.size(); ++i) {
      CHECK(test::max_difference(a.model[i].second, b.model[i].second) == 0);
      CHECK(test::max_difference(a.ema[i].second, b.ema[i].second) == 0);
    }
  }
}

TEST_CASE("precision: activations of networks have the dtype of the policy") {
  const auto model = models::create_model("resnet18", {.num_classes = 3, .seed = 1});
  model->to(MemoryFormat::channels_last);
  std::map<std::string, DType> dtypes;
  for (const auto& [path, module] : model->named_modules()) {
    module->register_forward_hook(
        [&dtypes, name = path](const nn::Module&, const Tensor&, const Tensor& y) { dtypes[name] = y.dtype(); });
  }
  const Tensor images = copy_of(test::random_tensor({2, 3, 32, 32}, 1, DType::float32), MemoryFormat::channels_last);
  const auto run = [&](const Precision& precision) {
    dtypes.clear();
    const PrecisionScope scope(precision);
    return (*model)(images);
  };
  CHECK(run(parse_precision("amp_bfloat16")).dtype() == DType::bfloat16);
  for (const auto& [name, dtype] : dtypes) {
    INFO(name);
    CHECK(dtype == DType::bfloat16);
  }
  run(parse_precision("amp_bfloat16", "\"batch_norm\" = \"float32\"\nlinear = \"float32\"", "p.toml"));
  CHECK(dtypes.at("conv1") == DType::bfloat16);
  CHECK(dtypes.at("layer2.0.downsample") == DType::float32);
  CHECK(dtypes.at("fc") == DType::float32);
  run(parse_precision("float32"));
  CHECK(dtypes.at("conv1") == DType::float32);
}

TEST_CASE("precision: tf32 is float32 whose products may go through TF32, forward and backward, and nothing else") {
  CHECK_FALSE(allow_tf32());
  for (const char* precision : {"tf32", "float32", "amp_bfloat16"}) {
    INFO(precision);
    const bool expected = std::string(precision) == "tf32";
    Recipe recipe = small_recipe("resnet18", precision);
    recipe.images = recipe.batch_size;
    Trainer trainer(recipe, {.evaluate_each_epoch = false, .quiet = true});
    std::vector<bool> forward;
    std::vector<bool> backward;
    trainer.model()->register_forward_hook(
        [&](const nn::Module&, const Tensor&, const Tensor&) { forward.push_back(allow_tf32()); });
    for (const auto& [name, x] : trainer.model()->named_parameters()) {
      CHECK(x.dtype() == DType::float32);
      x.register_hook([&](const Tensor& gradient) {
        backward.push_back(allow_tf32());
        return gradient;
      });
    }
    trainer.run();
    CHECK(forward == std::vector<bool>(3, expected));  // a step, and two batches of the evaluation
    CHECK(backward == std::vector<bool>(trainer.model()->named_parameters().size(), expected));
    CHECK_FALSE(allow_tf32());
    const Recipe saved = recipe_of(trainer.checkpoint());
    CHECK(precision_of(saved).tf32 == expected);
    CHECK_FALSE(precision_of(in_full_precision(saved)).tf32);
  }
}

TEST_CASE("precision: on a device without TF32, tf32 has the bits of float32") {
  Recipe recipe = small_recipe("convnext_atto", "float32");
  recipe.images = 2 * recipe.batch_size;
  const std::vector<double> losses = train_quietly(recipe).losses;
  recipe.precision = "tf32";
  CHECK(train_quietly(recipe).losses == losses);
}

TEST_CASE("precision: subnormal numbers are 0 where a network computes, and as before elsewhere") {
  const Tensor small = full({1}, 1e-20);
  const auto product = [&] { return mul(small, small).item<float>(); };
  const bool can = set_flush_denormal(true);
  set_flush_denormal(false);
  {
    const PrecisionScope scope(parse_precision("float32"));
    CHECK((product() == 0) == can);
  }
  CHECK(product() > 0);
}

TEST_CASE("precision: what is slow is said") {
  CHECK(precision_note(parse_precision("float32"), kCpu).empty());
  CHECK(precision_note(parse_precision("tf32"), kCpu) == "tf32 is float32 on cpu: TF32 is for CUDA");
  CHECK(precision_note(parse_precision("tf32"), kCudaEmulated) ==
        "tf32 is float32 on cuda-emulated:0: TF32 is for CUDA");
  CHECK(precision_note(parse_precision("float16"), kCpu) ==
        "float16 is slower than float32 here: its products are computed through float32");
  for (const char* name : {"bfloat16", "amp_bfloat16"}) {
    const std::string text = precision_note(parse_precision(name), kCpu);
    CHECK(text.empty() == bfloat16_is_fast());
    CHECK((bfloat16_is_fast() || text.starts_with(std::string(name) + " is slower than float32 here: ")));
  }
}

TEST_CASE("precision: error texts") {
  CHECK(error_of([] { parse_precision("bf16"); }).starts_with("precision: unknown precision 'bf16'"));
  CHECK(error_of([] { parse_precision("float32", "relu = \"keep\"", "p.toml"); }) ==
        "precision: cast-policy: expected precision amp_bfloat16 or amp_float16, which it is for, got float32 (cast "
        "policy "
        "'p.toml')");
  Recipe recipe = small_recipe("resnet18", "float16");
  recipe.cast = {"relu=keep"};
  CHECK(error_of([&] { check_recipe(recipe); }) ==
        "train: cast: expected precision amp_bfloat16 or amp_float16, which it is for, got float16");
  recipe.cast.clear();
  recipe.precision = "amp_bfloat16";
  recipe.cast_policy = "relo = \"keep\"";
  recipe.cast_policy_file = "p.toml";
  CHECK(error_of([&] { check_recipe(recipe); }) == "cast policy: p.toml:1:1: unknown op 'relo'; did you mean 'relu'?");
}
