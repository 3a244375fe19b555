#include "train/evaluate.h"

#include "core/factory.h"
#include "data/dataset.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/sequential.h"
#include "ops/shape/copy.h"
#include "support.h"
#include "train/recipe.h"

using namespace norma;
using namespace norma::train;
using norma::test::error_of;

namespace {

Recipe recipe_of_shapes() {
  Recipe recipe;
  recipe.dataset = "shapes";
  recipe.image_size = 16;
  recipe.batch_size = 8;
  recipe.images = 32;
  recipe.test_images = 32;
  recipe.seed = 3;
  return recipe;
}

data::Loader batches_of(const Recipe& recipe) {
  return make_test_loader(recipe, make_dataset(recipe, data::Split::test), 0);
}

}  // namespace

TEST_CASE("recalibrate: running statistics are those of the population, whatever the size of the batches") {
  const Recipe recipe = recipe_of_shapes();
  data::Loader first = batches_of(recipe);
  const auto probe = first.next();
  REQUIRE(probe.has_value());
  const int64_t channels = probe->images.size(1);
  auto norm = std::make_shared<nn::BatchNorm2d>(channels);
  auto ghost = std::make_shared<nn::GhostBatchNorm2d>(channels, 4);
  nn::Sequential net{norm, std::make_shared<nn::Dropout>(0.5), ghost};
  net.children()[1].second->train();
  net.children()[0].second->eval();

  // Mean and unbiased variance of all images together.
  std::vector<double> mean(static_cast<size_t>(channels));
  std::vector<double> var(mean.size());
  data::Loader batches = batches_of(recipe);
  std::vector<std::vector<double>> values(mean.size());
  for (int64_t count = 0; count < 3; ++count) {
    const Tensor x = batches.next()->images;
    const std::vector<double> of_batch = to(x, DType::float64).to_vector<double>();
    const auto per_map = static_cast<size_t>(x.size(2) * x.size(3));
    for (size_t i = 0; i < of_batch.size(); ++i) {
      values[i / per_map % mean.size()].push_back(of_batch[i]);
    }
  }
  for (size_t c = 0; c < mean.size(); ++c) {
    const auto n = static_cast<double>(values[c].size());
    for (const double value : values[c]) {
      mean[c] += value / n;
    }
    for (const double value : values[c]) {
      var[c] += (value - mean[c]) * (value - mean[c]) / (n - 1);
    }
  }
  data::Loader again = batches_of(recipe);
  CHECK(recalibrate(net, again, 3) == 3);
  for (size_t c = 0; c < mean.size(); ++c) {
    CHECK(std::abs(norm->running_mean().to_vector<float>()[c] - mean[c]) <= 1e-5);
    CHECK(std::abs(norm->running_var().to_vector<float>()[c] - var[c]) <= 1e-5);
  }
  Recipe in_pairs = recipe;
  in_pairs.batch_size = 2;
  data::Loader pairs = batches_of(in_pairs);
  CHECK(recalibrate(net, pairs, 12) == 12);
  for (size_t c = 0; c < mean.size(); ++c) {
    CHECK(std::abs(norm->running_var().to_vector<float>()[c] - var[c]) <= 1e-5);
  }
  data::Loader all = batches_of(recipe);
  CHECK(recalibrate(net, all) == 4);  // 32 images
  // Modes and momentum are as before.
  CHECK(!norm->is_training());
  CHECK(net.children()[1].second->is_training());
  CHECK(norm->options().momentum == 0.1);
  CHECK(ghost->running_mean().to_vector<float>()[0] == doctest::Approx(0).epsilon(0.1));
}

TEST_CASE("recalibrate: the images get the dtype of the network") {
  const Recipe recipe = recipe_of_shapes();
  for (const DType dtype : {DType::float64, DType::bfloat16}) {
    CAPTURE(to_string(dtype));
    const auto norm = std::make_shared<nn::BatchNorm2d>(4);
    nn::Sequential net{std::make_shared<nn::Conv2d>(3, 4, 3), norm};
    dtype == DType::float64 ? net.to(dtype) : net.parameters_to(dtype);
    data::Loader batches = batches_of(recipe);
    CHECK(recalibrate(net, batches, 2) == 2);
    CHECK(norm->running_mean().dtype() == (dtype == DType::float64 ? DType::float64 : DType::float32));
    CHECK(test::largest_number(norm->running_mean()) > 0);
  }
}

TEST_CASE("recalibrate: nothing is left of the old statistics, and dropout drops nothing") {
  const Recipe recipe = recipe_of_shapes();
  const auto recalibrated = [&](const std::shared_ptr<nn::Module>& between, bool trained_before) {
    auto first = std::make_shared<nn::BatchNorm2d>(3);
    auto last = std::make_shared<nn::BatchNorm2d>(3);
    nn::Sequential net{first, between, last};
    if (trained_before) {
      data::Loader batches = batches_of(recipe);
      net(batches.next()->images);
    }
    data::Loader batches = batches_of(recipe);
    CHECK(recalibrate(net, batches, 2) == 2);
    return net.state_dict();
  };
  const nn::NamedTensors plain = recalibrated(std::make_shared<nn::Identity>(), false);
  const nn::NamedTensors other = recalibrated(std::make_shared<nn::Dropout>(0.5), true);
  REQUIRE(plain.size() == other.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    if (plain[i].first.ends_with("num_batches_tracked")) {
      continue;  // stays as it was
    }
    CAPTURE(plain[i].first);
    CHECK(test::max_difference(plain[i].second, other[i].second) == 0);
  }
}

TEST_CASE("recalibrate: batch renorm gives later layers what batch norm would, and has its bounds again afterwards") {
  const Recipe recipe = recipe_of_shapes();
  const auto recalibrated = [&](const std::shared_ptr<nn::BatchNorm>& first,
                                const std::shared_ptr<nn::BatchNorm>& last) {
    const auto conv = std::make_shared<nn::Conv2d>(3, 8, 3);
    const auto next = std::make_shared<nn::Conv2d>(8, 8, 3);
    conv->set_parameters(test::random_tensor({8, 3, 3, 3}, 1, DType::float32), full({8}, 2));
    next->set_parameters(test::random_tensor({8, 8, 3, 3}, 2, DType::float32), full({8}, -1));
    nn::Sequential net{conv, first, next, last};
    data::Loader batches = batches_of(recipe);
    CHECK(recalibrate(net, batches, 2) == 2);
  };
  const auto batch = std::make_shared<nn::BatchNorm2d>(8);
  const auto renorm = std::make_shared<nn::BatchRenorm2d>(8, 2.5, 4);
  const std::string name = renorm->name();
  recalibrated(std::make_shared<nn::BatchNorm2d>(8), batch);
  recalibrated(std::make_shared<nn::BatchRenorm2d>(8), renorm);
  CHECK(test::max_difference(renorm->running_mean(), batch->running_mean()) <= 1e-4);
  CHECK(test::max_difference(renorm->running_var(), batch->running_var()) <= 1e-3);
  CHECK(renorm->name() == name);

  nn::Sequential broken{std::make_shared<nn::Conv2d>(3, 8, 3), renorm, std::make_shared<nn::Conv2d>(5, 8, 3)};
  data::Loader batches = batches_of(recipe);
  CHECK(error_of([&] { recalibrate(broken, batches, 1); }).starts_with("conv2d: "));
  CHECK(renorm->name() == name);
}

TEST_CASE("recalibrate: the number of batches stays, and an exception midway leaves the statistics as they were") {
  const Recipe recipe = recipe_of_shapes();
  const auto first = std::make_shared<nn::BatchNorm2d>(3);
  nn::Sequential net{first};
  data::Loader training = batches_of(recipe);
  for (int i = 0; i < 3; ++i) {
    net(training.next()->images);
  }
  REQUIRE(first->num_batches_tracked() == 3);
  const Tensor mean = copy_of(first->running_mean());
  const Tensor var = copy_of(first->running_var());

  nn::Sequential broken{first, std::make_shared<nn::Conv2d>(5, 8, 3)};
  data::Loader batches = batches_of(recipe);
  CHECK(error_of([&] { recalibrate(broken, batches, 2); }).starts_with("conv2d: "));
  CHECK(test::max_difference(first->running_mean(), mean) == 0);
  CHECK(test::max_difference(first->running_var(), var) == 0);
  CHECK(first->num_batches_tracked() == 3);

  data::Loader again = batches_of(recipe);
  CHECK(recalibrate(net, again, 2) == 2);
  CHECK(test::differ(first->running_mean(), mean));
  CHECK(first->num_batches_tracked() == 3);
}

TEST_CASE("recalibrate: error texts") {
  const Recipe recipe = recipe_of_shapes();
  nn::Sequential none{std::make_shared<nn::Identity>()};
  data::Loader batches = batches_of(recipe);
  CHECK(error_of([&] { recalibrate(none, batches, 1); }) ==
        "recalibrate: model: expected batch norms with running statistics, got none");
  CHECK(error_of([&] { recalibrate(none, batches, 0); }) == "recalibrate: max_batches: expected at least 1, got 0");
}
