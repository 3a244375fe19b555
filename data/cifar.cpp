#include "data/dataset.h"

#include "base/error.h"
#include "base/input_file.h"
#include "data/atomic_file.h"

#include <cstddef>
#include <sstream>
#include <string>

namespace norma::data {

namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kChannels = 3;
constexpr uint64_t kMaxNamesBytes = 1 << 16;

struct CifarFile {
  const char* name;
  int64_t images;
};

struct CifarKind {
  const char* name;
  const char* unpacked;  ///< the folder's name in the archive
  std::vector<CifarFile> train;
  CifarFile test;
  const char* class_names;  ///< the file's name
  int64_t num_classes;
  int64_t label_bytes;  ///< the last of them is the label
  // Mean and standard deviation of each channel over the 50,000 training images, as published in many repositories
  // (with more digits than matter), weiaicunzai/pytorch-cifar100 among them.
  std::vector<float> mean;
  std::vector<float> std;
};

class CifarDataset final : public Dataset {
 public:
  CifarDataset(const CifarKind& kind, const DatasetOptions& options)
      : label_bytes_(kind.label_bytes), record_bytes_(kind.label_bytes + kChannels * kPlane) {
    info_.name = kind.name;
    info_.channels = kChannels;
    info_.height = info_.width = kSide;
    info_.mean = kind.mean;
    info_.std = kind.std;
    const std::filesystem::path folder = folder_of(kind, options.folder);
    read_class_names(folder / kind.class_names, kind.num_classes);
    for (const CifarFile& file : options.split == Split::train ? kind.train : std::vector{kind.test}) {
      read(folder / file.name, file.images);
    }
  }

  int64_t load(int64_t index, Image& image) const override {
    check(index >= 0 && index < info_.size, info_.name, "index: expected a value in [0, {}), got {}", info_.size,
          index);
    image.set_size(kSide, kSide, kChannels);
    const uint8_t* const planes = record(index) + label_bytes_;
    for (int64_t i = 0; i < kPlane; ++i) {
      for (int64_t c = 0; c < kChannels; ++c) {
        image.pixels[static_cast<size_t>(i * kChannels + c)] = planes[c * kPlane + i];
      }
    }
    return label(index);
  }

 private:
  [[nodiscard]] const uint8_t* record(int64_t index) const { return records_.data() + index * record_bytes_; }
  [[nodiscard]] int64_t label(int64_t index) const override { return record(index)[label_bytes_ - 1]; }

  static std::filesystem::path folder_of(const CifarKind& kind, const std::filesystem::path& given) {
    check(!given.empty(), kind.name, "expected the folder of the binary version (option --data-dir), got none");
    check_folder(kind.name, given);
    for (const std::filesystem::path& folder : {given, given / kind.unpacked}) {
      if (path_exists(kind.name, folder / kind.class_names)) {
        return folder;
      }
    }
    fail(kind.name,
         "{}: expected {} and the other files of the binary version (https://www.cs.toronto.edu/~kriz/cifar.html), "
         "found none",
         given.string(), kind.class_names);
  }

  void read_class_names(const std::filesystem::path& file, int64_t count) {
    std::istringstream lines(read_text_file(info_.name, file, kMaxNamesBytes));
    for (std::string line; std::getline(lines, line);) {
      line.erase(line.find_last_not_of(" \t\r") + 1);
      if (!line.empty()) {
        info_.class_names.push_back(line);
      }
    }
    check(info_.num_classes() == count, info_.name, "{}: expected {} names, one a line, got {}", file.string(), count,
          info_.num_classes());
  }

  void read(const std::filesystem::path& file, int64_t images) {
    constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // the length is checked below
    InputFile input(info_.name, file, kNoLimit);
    const auto bytes = static_cast<uint64_t>(images * record_bytes_);
    check(input.size() == bytes, info_.name, "{}: expected {} bytes, {} images of {}, got {}", file.string(), bytes,
          images, record_bytes_, input.size());
    const size_t before = records_.size();
    records_.resize(before + bytes);
    const size_t got = input.read(records_.data() + before, bytes);
    check(got == bytes, info_.name, "{}: expected {} bytes, got {}", file.string(), bytes, got);
    for (int64_t i = info_.size; i < info_.size + images; ++i) {
      check(label(i) < info_.num_classes(), info_.name, "{}: expected labels below {}, got {} for image {}",
            file.string(), info_.num_classes(), label(i), i - info_.size);
    }
    info_.size += images;
  }

  int64_t label_bytes_;
  int64_t record_bytes_;
  std::vector<uint8_t> records_;  ///< as in the files: labels, then the planes of red, green and blue
};

}  // namespace

std::shared_ptr<const Dataset> make_cifar10(const DatasetOptions& options) {
  constexpr int64_t kImages = 10'000;
  const CifarKind kind{.name = "cifar10",
                       .unpacked = "cifar-10-batches-bin",
                       .train = {{"data_batch_1.bin", kImages},
                                 {"data_batch_2.bin", kImages},
                                 {"data_batch_3.bin", kImages},
                                 {"data_batch_4.bin", kImages},
                                 {"data_batch_5.bin", kImages}},
                       .test = {"test_batch.bin", kImages},
                       .class_names = "batches.meta.txt",
                       .num_classes = 10,
                       .label_bytes = 1,
                       .mean = {0.491400F, 0.482158F, 0.446531F},
                       .std = {0.247032F, 0.243485F, 0.261588F}};
  return std::make_shared<CifarDataset>(kind, options);
}

std::shared_ptr<const Dataset> make_cifar100(const DatasetOptions& options) {
  const CifarKind kind{.name = "cifar100",
                       .unpacked = "cifar-100-binary",
                       .train = {{"train.bin", 50'000}},
                       .test = {"test.bin", 10'000},
                       .class_names = "fine_label_names.txt",
                       .num_classes = 100,
                       .label_bytes = 2,
                       .mean = {0.507075F, 0.486549F, 0.440918F},
                       .std = {0.267334F, 0.256438F, 0.276150F}};
  return std::make_shared<CifarDataset>(kind, options);
}

}  // namespace norma::data
