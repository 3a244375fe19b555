#include "base/error.h"
#include "base/nearest_name.h"
#include "data/dataset.h"
#include "data/datasets.h"

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
  std::vector<std::string> names;
  for (const auto& [name, entry] : all.entries) {
    names.push_back(name);
  }
  return names;
}

std::string dataset_description(std::string_view name) {
  return find_entry(name).description;
}

}  // namespace norma::data
