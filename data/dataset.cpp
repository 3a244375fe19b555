#include "data/dataset.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/random.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace norma::data {

namespace {

struct Entry {
  std::string description;
  DatasetFactory factory;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Entry, std::less<>> entries = {
      {"cifar10", {"60,000 color images of 10 classes, 32 x 32, binary version (--data-dir)", make_cifar10}},
      {"cifar100", {"60,000 color images of 100 classes, 32 x 32, binary version (--data-dir)", make_cifar100}},
      {"emnist_letters",
       {"grey images of handwritten letters, 28 x 28, from EMNIST (--data-dir)", make_emnist_letters}},
      {"fashion_mnist", {"70,000 grey images of clothes, 28 x 28 (Debian: dataset-fashion-mnist)", make_fashion_mnist}},
      {"idx", {"a folder with IDX files like MNIST's (--data-dir)", make_idx_folder}},
      {"imagefolder", {"JPEG, PNG, … files in train/CLASS and val/CLASS (--data-dir)", make_image_folder}},
      {"shapes", {"generated images of ten shapes, endless, needs no files", make_shapes}},
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

Entry find_entry(std::string_view name) {
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.entries.find(name); found != all.entries.end()) {
      return found->second;
    }
  }
  throw Error(unknown_name("dataset", name, dataset_names()));
}

class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices)
      : Dataset(whole->info()), whole_(std::move(whole)), indices_(std::move(indices)) {
    info_.size = static_cast<int64_t>(indices_.size());
    info_.endless = false;
  }

  int64_t load(int64_t index, Image& image) const override { return whole_->load(place(index), image); }
  int64_t load_window(int64_t index, const ChooseWindow& choose, Image& image, Rectangle& window) const override {
    return whole_->load_window(place(index), choose, image, window);
  }
  [[nodiscard]] int64_t label(int64_t index) const override { return whole_->label(place(index)); }
  [[nodiscard]] std::vector<std::string> skipped() const override { return whole_->skipped(); }
  [[nodiscard]] std::vector<std::string> left_out() const override { return whole_->left_out(); }

 private:
  [[nodiscard]] int64_t place(int64_t index) const {
    check(index >= 0 && index < info_.size, info_.name, "index: expected one from 0 to {}, got {}", info_.size - 1,
          index);
    return indices_[static_cast<size_t>(index)];
  }

  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> indices_;
};

class ClassSubset final : public Subset {
 public:
  /// `numbers`: the new number of each class, by its old one.
  ClassSubset(const std::shared_ptr<const Dataset>& whole, std::vector<int64_t> indices,
              std::map<int64_t, int64_t> numbers)
      : Subset(whole, std::move(indices)), numbers_(std::move(numbers)) {
    std::vector<std::string> names(numbers_.size());
    for (const auto& [before, now] : numbers_) {
      names[static_cast<size_t>(now)] = info_.class_names[static_cast<size_t>(before)];
    }
    info_.class_names = std::move(names);
    std::erase_if(info_.empty_classes, [&](const std::string& name) { return !is_in(info_.class_names, name); });
  }

  int64_t load(int64_t index, Image& image) const override {
    return numbered(index, [&](int64_t at) { return Subset::load(at, image); });
  }
  int64_t load_window(int64_t index, const ChooseWindow& choose, Image& image, Rectangle& window) const override {
    return numbered(index, [&](int64_t at) { return Subset::load_window(at, choose, image, window); });
  }
  [[nodiscard]] int64_t label(int64_t index) const override { return numbers_.at(Subset::label(index)); }

 private:
  /// The new number of the class that `load_at` returns for an image. Where an image cannot be decoded, the next one
  /// may come in its place (DatasetOptions::skip_bad_images), of any class.
  template <class LoadAt>
  int64_t numbered(int64_t index, LoadAt&& load_at) const {
    auto number = numbers_.find(load_at(index));
    for (int64_t other = index + 1; number == numbers_.end() && other < index + info_.size; ++other) {
      number = numbers_.find(load_at(other % info_.size));
    }
    check(number != numbers_.end(), info_.name, "classes: none of the {} images can be decoded", info_.size);
    return number->second;
  }

  std::map<int64_t, int64_t> numbers_;
};

}  // namespace

std::string_view to_string(Split split) {
  return split == Split::train ? "train" : "test";
}

std::shared_ptr<const Dataset> make_dataset(std::string_view name, const DatasetOptions& options) {
  return find_entry(name).factory(options);
}

void register_dataset(const std::string& name, const std::string& description, DatasetFactory factory) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  check(all.entries.emplace(name, Entry{description, std::move(factory)}).second, "register_dataset",
        "name: '{}' is taken", name);
}

std::vector<std::string> dataset_names() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return mapped(all.entries, [](const auto& entry) { return entry.first; });
}

std::string dataset_description(std::string_view name) {
  return find_entry(name).description;
}

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
  std::ranges::sort(indices);
  return std::make_shared<Subset>(std::move(dataset), std::move(indices));
}

std::shared_ptr<const Dataset> class_subset(const std::shared_ptr<const Dataset>& dataset,
                                            const std::vector<int64_t>& classes) {
  const DatasetInfo& info = dataset->info();
  check(classes.size() > 1, "train", "classes: expected two or more, got {}", classes.size());
  std::map<int64_t, int64_t> numbers;
  for (const int64_t before : classes) {
    check(before >= 0 && before < info.num_classes(), "train",
          "classes: expected numbers from 0 to {}, as {} has, got {}", info.num_classes() - 1, info.name, before);
    const bool is_new = numbers.emplace(before, static_cast<int64_t>(numbers.size())).second;
    check(is_new, "train", "classes: expected each once, got {} twice", before);
  }
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < info.size; ++i) {
    if (numbers.contains(dataset->label(i))) {
      indices.push_back(i);
    }
  }
  check(!indices.empty(), "train", "classes: {} has no images of them", info.name);
  return std::make_shared<ClassSubset>(dataset, std::move(indices), std::move(numbers));
}

}  // namespace norma::data
