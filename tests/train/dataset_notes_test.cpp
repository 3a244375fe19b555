#include "train/checkpoint.h"
#include "train/evaluate.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace norma;
using norma::test::error_of;

namespace {

data::DatasetInfo with_classes(std::vector<std::string> names) {
  data::DatasetInfo info;
  info.name = "mine";
  info.class_names = std::move(names);
  return info;
}

class Skipping final : public data::Dataset {
 public:
  explicit Skipping(std::vector<std::string> files) : files_(std::move(files)) {}
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t /*index*/, data::Image& /*image*/) const override { return 0; }
  [[nodiscard]] std::vector<std::string> skipped() const override { return files_; }

 private:
  data::DatasetInfo info_;
  std::vector<std::string> files_;
};

}  // namespace

TEST_CASE("dataset notes: names of classes in a checkpoint") {
  train::Checkpoint checkpoint;
  CHECK(train::class_names_of(checkpoint).empty());  // of an earlier version
  const std::vector<std::string> names = {"ant", "a \"bee\"", "caf\xC3\xA9"};
  checkpoint.options[train::kClassNamesKey] = train::class_names_text(with_classes(names));
  CHECK(train::class_names_of(checkpoint) == names);
  checkpoint.options[train::kClassNamesKey] = "[1]";
  CHECK(error_of([&] { train::class_names_of(checkpoint); }) == "checkpoint: class_names: expected a text, got 1");
  CHECK(error_of([] { train::class_names_text(with_classes({"caf\xE9"})); }) ==
        "checkpoint: class names of dataset 'mine' must be UTF-8");
}

TEST_CASE("dataset notes: classes without test images") {
  data::DatasetInfo info = with_classes({"a", "b", "c"});
  CHECK(train::empty_classes_text(info).empty());
  info.empty_classes = {"a", "c"};
  CHECK(train::empty_classes_text(info) == "no test images of 2 of 3 classes: a, c");
}

TEST_CASE("dataset notes: how classes differ from those of training") {
  CHECK(train::class_difference({"a", "b"}, with_classes({"a", "b"})).empty());
  CHECK(train::class_difference({}, with_classes({"a", "b"})).empty());
  CHECK(train::class_difference({"a", "b"}, with_classes({"a"})) ==
        "the network was trained on 2 classes, and dataset 'mine' has 1");
  CHECK(train::class_difference({"a", "b", "c", "d"}, with_classes({"a", "c", "b", "d"})) ==
        "2 of 4 classes have other names than in training: class 1 was 'b' and is 'c' in dataset 'mine'");
}

TEST_CASE("dataset notes: images that were replaced") {
  CHECK(train::skipped_text(Skipping({})).empty());
  CHECK(train::skipped_text(Skipping({"train/a.jpg"})) ==
        "1 image could not be decoded, and the next one took its place: train/a.jpg");
  CHECK(train::skipped_text(Skipping({"1", "2", "3", "4", "5", "6", "7", "8"})) ==
        "8 images could not be decoded, and the next one took their place: 1, 2, 3, 4, 5, 6 and 2 more");
}
