#include "train/evaluate.h"

#include "core/factory.h"
#include "core/tape.h"
#include "error_text.h"
#include "ops/shape/view.h"
#include "session/evaluation_report.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "session/interrupt.h"

using namespace norma;
using norma::test::error_of;

namespace {

/// Ten images of one pixel whose value is 10 times their number; labels 0 0 0 0 0 1 1 1 1 2.
class TenPixels : public data::Dataset {
 public:
  TenPixels() {
    info_.name = "ten pixels";
    info_.size = 10;
    info_.channels = info_.height = info_.width = 1;
    info_.class_names = {"a", "b", "c"};
    info_.mean = {0};
    info_.std = {1};
  }
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(1, 1, 1);
    image.pixels[0] = static_cast<uint8_t>(10 * index);
    return index < 5 ? 0 : index < 9 ? 1 : 2;
  }

 private:
  data::DatasetInfo info_;
};

/// Always answers with the same three logits, and notes how it was called.
class Constant : public nn::Module {
 public:
  [[nodiscard]] std::string name() const override { return "Constant"; }
  Tensor forward(const Tensor& x) override {
    CHECK_FALSE(is_training());
    CHECK_FALSE(grad_enabled());
    ++calls;
    return expand(from_vector<float>({2, 1, 0}, {1, 3}), {x.size(0), 3});
  }
  int calls = 0;
};

data::Loader loader() {
  auto dataset = std::make_shared<TenPixels>();
  return {dataset, data::Transform(dataset->info(), {.image_size = 1, .channels = 1}), {.batch_size = 4}};
}

}  // namespace

TEST_CASE("evaluate: accuracy and mean loss over all images, the smaller last batch counted by its size") {
  Constant model;
  data::Loader batches = loader();
  const train::Evaluation result = train::evaluate(model, batches);
  CHECK(model.calls == 3);
  CHECK(result.complete);
  CHECK(result.images == 10);
  CHECK(result.accuracy == doctest::Approx(0.5));
  CHECK(result.right == train::ImageBits{true, true, true, true, true, false, false, false, false, false});
  const double log_sum = std::log(std::exp(2) + std::exp(1) + 1);
  CHECK(result.loss == doctest::Approx((5 * (log_sum - 2) + 4 * (log_sum - 1) + log_sum) / 10));
  CHECK(result.seconds >= 0);
}

namespace {

/// Answers image i with seven logits of which the label, 0, has the i-th largest; two images have one that is NaN.
class Ranked : public nn::Module {
 public:
  [[nodiscard]] std::string name() const override { return "Ranked"; }
  Tensor forward(const Tensor& x) override {
    const auto nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> logits;
    for (int64_t i = 0; i < x.size(0); ++i, ++image_) {
      const float own = image_ == 9 ? nan : 6.5F - static_cast<float>(std::min<int64_t>(image_, 7));
      logits.insert(logits.end(), {own, 6, 5, 4, 3, 2, image_ == 4 ? nan : 1});
    }
    return from_vector<float>(logits, {x.size(0), 7});
  }

 private:
  int64_t image_ = 0;
};

/// Ten images of the first of seven classes, or with another label.
class FirstOfSeven : public TenPixels {
 public:
  explicit FirstOfSeven(int64_t label = 0) : label_(label) {
    info_ = TenPixels::info();
    info_.class_names = {"a", "b", "c", "d", "e", "f", "g"};
  }
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, data::Image& image) const override {
    TenPixels::load(index, image);
    return label_;
  }

 private:
  data::DatasetInfo info_;
  int64_t label_;
};

}  // namespace

TEST_CASE("evaluate: a label that is no class of the network is an error") {
  for (const int64_t label : {7, 1000, -1, -100}) {
    Ranked model;
    const auto dataset = std::make_shared<FirstOfSeven>(label);
    data::Loader batches(dataset, data::Transform(dataset->info(), {.image_size = 1, .channels = 1}), {});
    CHECK(error_of([&] { train::evaluate(model, batches); }) ==
          fmt::format("evaluate: labels: expected classes in [0, 7), as the network has, got {}", label));
  }
}

TEST_CASE("evaluate: top-5 counts labels with fewer than five larger logits") {
  Ranked model;
  const auto dataset = std::make_shared<FirstOfSeven>();
  data::Loader seven(dataset, data::Transform(dataset->info(), {.image_size = 1, .channels = 1}), {.batch_size = 4});
  // Images 0 to 3 are first to fourth; 4 would be fifth but for a NaN before it, and that of 9 is NaN itself.
  CHECK(train::evaluate(model, seven).top5.value() == doctest::Approx(0.5));
  Constant three;
  data::Loader batches = loader();
  CHECK_FALSE(train::evaluate(three, batches).top5.has_value());
}

TEST_CASE("evaluate: the model's mode and the recording of gradients are as before afterwards") {
  Constant model;
  data::Loader batches = loader();
  train::evaluate(model, batches);
  CHECK(model.is_training());
  CHECK(grad_enabled());
  model.eval();
  data::Loader again = loader();
  train::evaluate(model, again);
  CHECK_FALSE(model.is_training());
}

TEST_CASE("evaluate: a signal ends it after the batch at hand, and it says so") {
  const train::InterruptGuard guard;
  std::raise(SIGINT);
  Constant model;
  data::Loader batches = loader();
  const train::Evaluation result = train::evaluate(model, batches);
  CHECK(model.calls == 1);
  CHECK_FALSE(result.complete);
  CHECK(result.images == 4);
  CHECK(result.right.size() == 4);
}

TEST_CASE("evaluate: top-5 in the order of argmax, for more than five classes") {
  /// Answers with the same logits for every image.
  class Fixed : public nn::Module {
   public:
    explicit Fixed(std::vector<float> logits) : logits_(std::move(logits)) {}
    [[nodiscard]] std::string name() const override { return "Fixed"; }
    Tensor forward(const Tensor& x) override {
      const auto classes = static_cast<int64_t>(logits_.size());
      return expand(from_vector<float>(logits_, {1, classes}), {x.size(0), classes});
    }

   private:
    std::vector<float> logits_;
  };
  const auto top5 = [](std::vector<float> logits) {
    Fixed model(std::move(logits));
    data::Loader batches = loader();
    return train::evaluate(model, batches).top5;
  };
  // Labels 0 0 0 0 0 1 1 1 1 2.
  CHECK_FALSE(top5({1, 2, 3, 4, 5}).has_value());
  CHECK(top5({1, 2, 3, 4, 5, 6}) == doctest::Approx(0.5));
  CHECK(top5({6, 5, 1, 2, 3, 4}) == doctest::Approx(0.9));
  CHECK(top5({0, 0, 0, 0, 0, 0}) == doctest::Approx(1));
  CHECK(top5({0, 1, 0, 1, 1, 1, 1}) == doctest::Approx(0.4));
  const float nan = std::nanf("");
  CHECK(top5({0, 1, nan, 2, 3, 4, 5}) == doctest::Approx(0.1));
  // Which sign a NaN has is by chance, and not to be printed.
  Fixed broken({0, 1, std::copysign(nan, -1.0F)});
  data::Loader batches = loader();
  const double loss = train::evaluate(broken, batches).loss;
  CHECK(std::isnan(loss));
  CHECK_FALSE(std::signbit(loss));
}

TEST_CASE("evaluate: a confusion matrix has names that CSV must quote") {
  train::ConfusionMatrix matrix({"plain", "a, \"b\"", "c"});
  const std::vector<int64_t> labels = {0, 0, 1, 2, 2};
  const std::vector<int64_t> answers = {0, 1, 1, 0, 0};
  matrix.add({.labels = labels, .answers = answers});
  CHECK(matrix.csv() ==
        "label \\ answer,plain,\"a, \"\"b\"\"\",c\n"
        "plain,1,1,0\n"
        "\"a, \"\"b\"\"\",0,1,0\n"
        "c,2,0,0\n");
  CHECK(matrix.images(2) == 2);
  CHECK(matrix.images(1) == 1);
}
