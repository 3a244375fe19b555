#include "data/dataset.h"

#include "files.h"

#include <cmath>
#include <set>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

struct Labelled {
  std::vector<uint8_t> bytes;
  int64_t label = 0;

  friend bool operator==(const Labelled&, const Labelled&) = default;
};

Labelled image_of(const Dataset& dataset, int64_t index) {
  Image image;
  Labelled result;
  result.label = dataset.load(index, image);
  CHECK(image.height == dataset.info().height);
  CHECK(image.width == dataset.info().width);
  CHECK(image.channels == 3);
  result.bytes = image.pixels;
  return result;
}

}  // namespace

TEST_CASE("shapes: an image depends on seed, split and index only") {
  const auto a = make_dataset("shapes", {.seed = 5});
  const auto b = make_dataset("shapes", {.seed = 5, .size = 17});
  const auto other_seed = make_dataset("shapes", {.seed = 6});
  const auto other_split = make_dataset("shapes", {.split = Split::test, .seed = 5});
  std::set<std::vector<uint8_t>> different;
  for (const int64_t index : {0, 1, 2, 1'000'000'000}) {
    const Labelled image = image_of(*a, index);
    CHECK(image == image_of(*b, index));
    different.insert(image.bytes);
    different.insert(image_of(*other_seed, index).bytes);
    different.insert(image_of(*other_split, index).bytes);
  }
  CHECK(different.size() == 12);
}

TEST_CASE("shapes: sizes and names") {
  const auto train = make_dataset("shapes", {.image_size = 33});
  CHECK(train->info().endless);
  CHECK(train->info().size == 60000);
  CHECK(train->info().channels == 3);
  CHECK(train->info().height == 33);
  CHECK(train->info().width == 33);
  CHECK(train->info().class_names == std::vector<std::string>{"circle", "square", "triangle", "cross", "ring", "star",
                                                              "stripes", "checkers", "frame", "moon"});
  CHECK(make_dataset("shapes", {.split = Split::test})->info().size == 10000);
  CHECK(make_dataset("shapes", {.size = 123})->info().size == 123);
}

TEST_CASE("shapes: labels are even and statistics are those stated") {
  const auto dataset = make_dataset("shapes", {.seed = 3});
  constexpr int64_t kImages = 4000;
  std::vector<int64_t> counts(10);
  std::vector<double> sum(3);
  std::vector<double> squares(3);
  for (int64_t i = 0; i < kImages; ++i) {
    const Labelled image = image_of(*dataset, i);
    ++counts.at(static_cast<size_t>(image.label));
    for (size_t j = 0; j < image.bytes.size(); ++j) {
      const double value = image.bytes[j] / 255.0;
      sum[j % 3] += value;
      squares[j % 3] += value * value;
    }
  }
  for (const int64_t count : counts) {
    CHECK(std::abs(count - kImages / 10) < 95);  // five standard deviations
  }
  for (size_t c = 0; c < 3; ++c) {
    const double mean = sum[c] / (kImages * 1024);
    const double std = std::sqrt(squares[c] / (kImages * 1024) - mean * mean);
    CHECK(std::abs(dataset->info().mean.at(c) - mean) <= 0.005);
    CHECK(std::abs(dataset->info().std.at(c) - std) <= 0.005);
  }
}

TEST_CASE("shapes: every shape shows before its ground") {
  const auto dataset = make_dataset("shapes", {.seed = 1});
  for (int64_t i = 0; i < 200; ++i) {
    const Labelled image = image_of(*dataset, i);
    // The two colors differ by 45 in each channel at least; noise adds 20 on either side at most.
    size_t bright = 0;
    for (size_t j = 0; j < 1024; ++j) {
      bright += image.bytes[3 * j] >= 128 ? 1 : 0;
    }
    CAPTURE(i);
    CAPTURE(image.label);
    CHECK(bright > 20);
    CHECK(bright < 1004);
  }
}

TEST_CASE("shapes: bad options and indices") {
  CHECK(error_of([] { make_dataset("shapes", {.image_size = 7}); }) ==
        "shapes: image_size: expected at least 8, got 7");
  CHECK(error_of([] { make_dataset("shapes", {.size = -1}); }) == "shapes: size: expected at least 0, got -1");
  const auto dataset = make_dataset("shapes");
  Image image;
  CHECK(error_of([&] { dataset->load(-1, image); }) == "shapes: index: expected a value of at least 0, got -1");
}
