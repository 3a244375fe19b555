// A small network is trained on images whose labels are read from a list of their own.
#include "run.h"

#include <utility>
#include <vector>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

/// Images of one dataset with labels from a list.
class WithLabels : public data::Dataset {
 public:
  WithLabels(std::shared_ptr<const data::Dataset> images, std::vector<int64_t> labels)
      : images_(std::move(images)), labels_(std::move(labels)) {}

  [[nodiscard]] const data::DatasetInfo& info() const override { return images_->info(); }
  int64_t load(int64_t index, data::Image& image) const override {
    images_->load(index, image);
    return labels_[static_cast<size_t>(index) % labels_.size()];
  }

 private:
  std::shared_ptr<const data::Dataset> images_;
  std::vector<int64_t> labels_;
};

/// The labels of all images, one after the other, after a header of one number: how many there are.
std::vector<int64_t> label_file(const data::Dataset& images) {
  std::vector<int64_t> numbers{images.info().size};
  data::Image image;
  for (int64_t i = 0; i < images.info().size; ++i) {
    numbers.push_back(images.load(i, image));
  }
  return numbers;
}

}  // namespace

int main() {
  constexpr int64_t kSteps = 60;
  manual_seed(1);
  const auto stripes = std::make_shared<faults::Stripes>(faults::kBatch * kSteps);
  const std::vector<int64_t> file = label_file(*stripes);
  const auto images = std::make_shared<WithLabels>(stripes, std::vector<int64_t>(file.begin() + 2, file.end()));
  const auto model = faults::small_network(images->info().num_classes());
  nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 5e-4), {.lr = 0.1});
  faults::run_training(*model, optimizer, images);
}
