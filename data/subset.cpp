#include "data/subset.h"

#include "core/error.h"
#include "core/random.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices)
      : whole_(std::move(whole)), indices_(std::move(indices)), info_(whole_->info()) {
    info_.size = static_cast<int64_t>(indices_.size());
    info_.endless = false;
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, Image& image) const override {
    check(index >= 0 && index < info_.size, info_.name, "index: expected one from 0 to {}, got {}", info_.size - 1,
          index);
    return whole_->load(indices_[static_cast<size_t>(index)], image);
  }
  [[nodiscard]] std::vector<std::string> skipped() const override { return whole_->skipped(); }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> indices_;
  DatasetInfo info_;
};

}  // namespace

std::shared_ptr<const Dataset> random_subset(std::shared_ptr<const Dataset> dataset, int64_t size) {
  constexpr uint64_t kSeed = 0x5b5e7;  // any fixed number: the images are the same in every run
  const int64_t all = dataset->info().size;
  check(size > 0 && size <= all, "train", "train-images: expected 1 to {}, the training images of {}, got {}", all,
        dataset->info().name, size);
  std::vector<std::pair<uint64_t, int64_t>> keys;
  keys.reserve(static_cast<size_t>(all));
  for (int64_t i = 0; i < all; ++i) {
    const auto bits = philox(kSeed, static_cast<uint64_t>(i));
    keys.emplace_back(uint64_t{bits[0]} << 32 | bits[1], i);
  }
  std::nth_element(keys.begin(), keys.begin() + (size - 1), keys.end());
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < size; ++i) {
    indices.push_back(keys[static_cast<size_t>(i)].second);
  }
  std::sort(indices.begin(), indices.end());
  return std::make_shared<Subset>(std::move(dataset), std::move(indices));
}

}  // namespace norma::data
