#include "data/subset.h"
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
