#include "data/dataset.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

/// Images of one pixel that is their index, with the index as label.
class Numbered : public Dataset {
 public:
  explicit Numbered(int64_t size) {
    info_.name = "numbered";
    info_.size = size;
    info_.height = info_.width = 1;
    info_.class_names = std::vector<std::string>(static_cast<size_t>(size), "n");
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, Image&) const override { return index; }
  [[nodiscard]] std::vector<std::string> skipped() const override { return {"one"}; }

 private:
  DatasetInfo info_;
};

std::vector<int64_t> labels_of(const Dataset& dataset) {
  std::vector<int64_t> labels;
  Image image;
  for (int64_t i = 0; i < dataset.info().size; ++i) {
    labels.push_back(dataset.load(i, image));
  }
  return labels;
}

}  // namespace

TEST_CASE("random_subset: a larger one contains a smaller one, each image once, spread over the dataset") {
  const auto whole = std::make_shared<Numbered>(1000);
  std::set<int64_t> before;
  for (const int64_t size : {1, 10, 100, 500, 1000}) {
    const auto part = random_subset(whole, size);
    CHECK(part->info().size == size);
    CHECK(part->info().name == "numbered");
    CHECK(part->info().num_classes() == 1000);
    CHECK(part->skipped() == std::vector<std::string>{"one"});
    const std::vector<int64_t> labels = labels_of(*part);
    const std::set<int64_t> now(labels.begin(), labels.end());
    CHECK(now.size() == labels.size());
    CHECK(std::is_sorted(labels.begin(), labels.end()));
    CHECK(std::includes(now.begin(), now.end(), before.begin(), before.end()));
    CHECK(labels == labels_of(*random_subset(whole, size)));
    before = now;
  }
  const std::vector<int64_t> labels = labels_of(*random_subset(whole, 200));
  for (int64_t tenth = 0; tenth < 10; ++tenth) {  // about 20 of each hundred
    const auto in = std::count_if(labels.begin(), labels.end(), [&](int64_t label) { return label / 100 == tenth; });
    CHECK(in >= 8);
    CHECK(in <= 35);
  }
}

TEST_CASE("random_subset: error texts") {
  const auto whole = std::make_shared<Numbered>(5);
  CHECK(error_of([&] { random_subset(whole, 6); }) ==
        "train: train-images: expected 1 to 5, the training images of numbered, got 6");
  CHECK(error_of([&] { random_subset(whole, 0); }) ==
        "train: train-images: expected 1 to 5, the training images of numbered, got 0");
  Image image;
  CHECK(error_of([&] { random_subset(whole, 3)->load(3, image); }) ==
        "numbered: index: expected one from 0 to 2, got 3");
}

TEST_CASE("class_subset: the images of some classes in the order of the dataset, numbered anew") {
  const auto shapes = make_dataset("shapes", {.size = 60});
  const DatasetInfo& before = shapes->info();
  const std::vector<int64_t> all = labels_of(*shapes);
  const auto part = class_subset(shapes, {3, 1});
  CHECK(part->info().class_names == std::vector<std::string>{before.class_names[3], before.class_names[1]});
  CHECK(part->info().size == std::ranges::count_if(all, [](int64_t label) { return label == 3 || label == 1; }));
  CHECK(part->info().mean == before.mean);
  Image image;
  Image original;
  int64_t number = 0;
  for (int64_t i = 0; i < before.size; ++i) {
    if (all[static_cast<size_t>(i)] == 3 || all[static_cast<size_t>(i)] == 1) {
      CHECK(part->load(number, image) == (all[static_cast<size_t>(i)] == 3 ? 0 : 1));
      CHECK(part->label(number) == part->load(number, image));
      shapes->load(i, original);
      CHECK(image.pixels == original.pixels);
      Rectangle window;
      const auto choose = [](int64_t height, int64_t) { return Rectangle{1, 2, height / 2, 3}; };
      CHECK(part->load_window(number, choose, image, window) == part->label(number));
      CHECK(image.pixels == original.pixels);
      CHECK(window.height == original.height / 2);
      ++number;
    }
  }
  CHECK(number == part->info().size);
  CHECK(random_subset(part, 5)->label(4) < 2);
}

TEST_CASE("class_subset: error texts") {
  const auto shapes = make_dataset("shapes", {.size = 60});
  const auto error_with = [&](const std::vector<int64_t>& classes) {
    return error_of([&] { class_subset(shapes, classes); });
  };
  CHECK(error_with({1}) == "train: classes: expected two or more, got 1");
  CHECK(error_with({1, 10}) == "train: classes: expected numbers from 0 to 9, as shapes has, got 10");
  CHECK(error_with({1, -1}) == "train: classes: expected numbers from 0 to 9, as shapes has, got -1");
  CHECK(error_with({1, 0, 1}) == "train: classes: expected each once, got 1 twice");
  CHECK(error_of([] {
          class_subset(make_dataset("shapes", {.size = 1}), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})->label(1);
        }) == "shapes: index: expected one from 0 to 0, got 1");
}

TEST_CASE("class_subset: an image that cannot be decoded gives place to the next of these classes") {
  /// Images of one pixel whose label is their index by 3; those of class 1 are bad, and the next comes in their place.
  class Broken final : public Numbered {
   public:
    Broken() : Numbered(9) {}
    int64_t load(int64_t index, Image&) const override { return index % 3 == 1 ? 2 : index % 3; }
    [[nodiscard]] int64_t label(int64_t index) const override { return index % 3; }
  };
  CHECK(labels_of(*class_subset(std::make_shared<Broken>(), {0, 1})) == std::vector<int64_t>{0, 0, 0, 0, 0, 0});
}
