#include "data/idx.h"

#include "base/error.h"
#include "base/input_file.h"
#include "base/not_copied.h"
#include "data/atomic_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

namespace norma::data {

namespace {

constexpr uint8_t kUnsignedByte = 0x08;  // the type code of IDX files that hold uint8
constexpr size_t kChunk = size_t{1} << 24;
constexpr size_t kMaxBytes = size_t{8} << 30;  // a small file can unpack to a thousand times its size

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

/// A file that is unpacked if gzip has packed it.
class Unpacked : NotCopied {
 public:
  explicit Unpacked(const std::filesystem::path& file) {
    const InputFile readable("idx", file, kMaxBytes);  // has texts for what is no file
    file_ = ::gzopen(file.c_str(), "rbe");
    check(file_ != nullptr, "idx", "no memory to unpack {}", file.string());
  }
  ~Unpacked() { ::gzclose(file_); }

  /// Fills `bytes` and returns how many there were: fewer only at the end of the file.
  size_t read(std::span<uint8_t> bytes) {
    const int count = ::gzread(file_, bytes.data(), static_cast<unsigned>(bytes.size()));
    int code = Z_OK;
    const char* const text = ::gzerror(file_, &code);  // begins with the file's name
    check(count >= 0 && code == Z_OK, "idx", "{}", text);
    return static_cast<size_t>(count);
  }

 private:
  gzFile file_ = nullptr;
};

std::string_view prefix(Split split) {
  return split == Split::train ? "train" : "t10k";
}

/// Sets mean and standard deviation to those of all bytes, scaled to [0, 1]: of the training images, or of the split's
/// if there are none. The sums are exact, since bytes are small integers.
void set_statistics(DatasetInfo& info, const IdxFiles& train, const IdxFiles& files) {
  const std::vector<uint8_t> bytes = read_idx(train.images.empty() ? files.images : train.images, /* rank= */ 3).values;
  uint64_t sum = 0;
  uint64_t squares = 0;
  for (const uint64_t byte : bytes) {
    sum += byte;
    squares += byte * byte;
  }
  const auto count = static_cast<double>(bytes.size());
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  // If all images have a single color, any scale will do.
  const double std = variance > 0 ? std::sqrt(variance) : 255;
  info.mean = {static_cast<float>(mean / 255)};
  info.std = {static_cast<float>(std / 255)};
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& file, int64_t rank) {
  Unpacked reader(file);
  const std::string name = file.string();
  const auto header_bytes = static_cast<size_t>(4 + 4 * rank);
  std::vector<uint8_t> header(header_bytes);
  const size_t header_read = reader.read(header);
  check(header_read >= 4, "idx", "{}: expected a header of {} bytes, got {} bytes", name, header_bytes, header_read);
  const uint32_t expected_magic = uint32_t{kUnsignedByte} << 8 | static_cast<uint32_t>(rank);
  const uint32_t magic = big_endian(header.data());
  check(magic == expected_magic, "idx", "{}: expected the magic number {:#010x} (bytes with {} {}), got {:#010x}", name,
        expected_magic, rank, rank == 1 ? "axis" : "axes", magic);
  check(header_read == header_bytes, "idx", "{}: expected a header of {} bytes, got {} bytes", name, header_bytes,
        header_read);

  IdxArray array;
  size_t count = 1;
  for (int64_t axis = 0; axis < rank; ++axis) {
    const uint32_t size = big_endian(header.data() + 4 + 4 * axis);
    check(size > 0, "idx", "{}: expected sizes of at least 1, got 0 on axis {}", name, axis);
    check(!__builtin_mul_overflow(count, size_t{size}, &count) && count <= kMaxBytes, "idx",
          "{}: the sizes in the header are too large", name);
    array.sizes.push_back(size);
  }

  // Memory grows with the file's content, not with its header's claims.
  while (array.values.size() < count) {
    const size_t before = array.values.size();
    const size_t wanted = std::min(kChunk, count - before);
    array.values.resize(before + wanted);
    const size_t got = reader.read(std::span(array.values).subspan(before));
    check(got == wanted, "idx", "{}: expected {} bytes of data for sizes [{}], got {}", name, count,
          fmt::join(array.sizes, ", "), before + got);
  }
  uint8_t extra = 0;
  check(reader.read({&extra, 1}) == 0, "idx", "{}: expected the file to end after {} bytes of data, but it goes on",
        name, count);
  return array;
}

namespace {

/// The file in `folder` whose name begins with `prefix` and ends in one of `stems` followed by -idxN-ubyte, plain or
/// packed.
std::filesystem::path find_idx_file(const std::filesystem::path& folder, std::string_view prefix,
                                    const std::vector<std::string>& stems, int64_t rank) {
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) {
      continue;
    }
    for (const std::string& stem : stems) {
      for (const char separator : {'-', '.'}) {
        for (const std::string_view packed : {"", ".gz"}) {
          if (name.ends_with(fmt::format("{}{}idx{}-ubyte{}", stem, separator, rank, packed))) {
            found.push_back(name);
          }
        }
      }
    }
  }
  check(!error || error == std::errc::no_such_file_or_directory, "idx", "cannot read {}: {}", folder.string(),
        error.message());
  std::ranges::sort(found);
  if (found.size() == 2 && found[1] == found[0] + ".gz") {
    found.pop_back();  // the same file, packed and unpacked
  }
  check(found.size() <= 1, "idx", "{}: expected one file like {}{}-idx{}-ubyte, got {}", folder.string(), prefix,
        stems[0], rank, fmt::join(found, ", "));
  return found.empty() ? std::filesystem::path() : folder / found[0];
}

/// Exchanges rows and columns of each image.
void transpose(IdxArray& images) {
  const int64_t height = images.sizes[1];
  const int64_t width = images.sizes[2];
  std::vector<uint8_t> image(static_cast<size_t>(height * width));
  for (auto first = images.values.begin(); first != images.values.end(); first += height * width) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        image[static_cast<size_t>(x * height + y)] = first[y * width + x];
      }
    }
    std::ranges::copy(image, first);
  }
  std::swap(images.sizes[1], images.sizes[2]);
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(DatasetInfo info, IdxArray images, IdxArray labels)
      : Dataset(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {}

  int64_t load(int64_t index, Image& image) const override {
    check(index >= 0 && index < info_.size, info_.name, "index: expected a value in [0, {}), got {}", info_.size,
          index);
    const int64_t bytes = info_.image_bytes();
    image.set_size(info_.height, info_.width, info_.channels);
    std::memcpy(image.pixels.data(), images_.values.data() + index * bytes, static_cast<size_t>(bytes));
    return labels_.values[static_cast<size_t>(index)];
  }

 private:
  IdxArray images_;
  IdxArray labels_;
};

}  // namespace

IdxFiles find_idx_files(const std::filesystem::path& folder, Split split, std::string_view prefix) {
  if (split == Split::train) {
    return {find_idx_file(folder, prefix, {"train-images"}, 3), find_idx_file(folder, prefix, {"train-labels"}, 1)};
  }
  return {find_idx_file(folder, prefix, {"t10k-images", "test-images"}, 3),
          find_idx_file(folder, prefix, {"t10k-labels", "test-labels"}, 1)};
}

std::shared_ptr<const Dataset> load_idx_dataset(const IdxFiles& files, DatasetInfo info, const IdxLayout& layout) {
  IdxArray images = read_idx(files.images, /* rank= */ 3);
  IdxArray labels = read_idx(files.labels, /* rank= */ 1);
  check(labels.sizes[0] == images.sizes[0], "idx", "{}: expected {} labels, one for each image of {}, got {}",
        files.labels.string(), images.sizes[0], files.images.filename().string(), labels.sizes[0]);
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const int64_t label = labels.values[i];
    check(label >= layout.first_label, info.name, "{}: expected labels of at least {}, got {} for image {}",
          files.labels.string(), layout.first_label, label, i);
    check(label < layout.first_label + info.num_classes(), info.name,
          "{}: expected labels below {}, got {} for image {}", files.labels.string(),
          layout.first_label + info.num_classes(), label, i);
    labels.values[i] = static_cast<uint8_t>(label - layout.first_label);
  }
  if (layout.transposed) {
    transpose(images);
  }
  info.size = images.sizes[0];
  info.channels = 1;
  info.height = images.sizes[1];
  info.width = images.sizes[2];
  return std::make_shared<IdxDataset>(std::move(info), std::move(images), std::move(labels));
}

std::shared_ptr<const Dataset> make_idx_folder(const DatasetOptions& options) {
  check(!options.folder.empty(), "idx", "expected a folder with IDX files (option --data-dir), got none");
  check_folder("idx", options.folder);
  const IdxFiles files = find_idx_files(options.folder, options.split);
  const IdxFiles train = find_idx_files(options.folder, Split::train);
  const IdxFiles test = find_idx_files(options.folder, Split::test);
  for (const auto& [file, kind] : {std::pair(files.images, "images-idx3"), {files.labels, "labels-idx1"}}) {
    check(!file.empty(), "idx", "{0}: expected a file {1}-{2}-ubyte or {1}-{2}-ubyte.gz, found none",
          options.folder.string(), prefix(options.split), kind);
  }

  DatasetInfo info;
  info.name = "idx";
  int64_t largest = 0;
  for (const auto& labels : {train.labels, test.labels}) {
    if (!labels.empty()) {
      const IdxArray array = read_idx(labels, /* rank= */ 1);
      largest = std::max<int64_t>(largest, *std::ranges::max_element(array.values));
    }
  }
  for (int64_t label = 0; label <= largest; ++label) {
    info.class_names.push_back(std::to_string(label));
  }
  set_statistics(info, train, files);
  return load_idx_dataset(files, std::move(info));
}

std::shared_ptr<const Dataset> make_emnist_letters(const DatasetOptions& options) {
  constexpr const char* kName = "emnist_letters";
  constexpr std::string_view kPrefix = "emnist-letters-";
  const std::filesystem::path& folder = options.folder;
  check(!folder.empty(), kName, "expected the folder with EMNIST's files (option --data-dir), got none");
  check_folder(kName, folder);
  const IdxFiles files = find_idx_files(folder, options.split, kPrefix);
  const IdxFiles train = find_idx_files(folder, Split::train, kPrefix);
  check(!files.images.empty() && !files.labels.empty(), kName,
        "{0}: expected a file {1}{2}-{3}-ubyte or {1}{2}-{3}-ubyte.gz, found none", folder.string(), kPrefix,
        to_string(options.split), files.images.empty() ? "images-idx3" : "labels-idx1");
  DatasetInfo info;
  info.name = kName;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    info.class_names.emplace_back(1, letter);
  }
  set_statistics(info, train, files);
  return load_idx_dataset(files, std::move(info), {.transposed = true, .first_label = 1});
}

std::shared_ptr<const Dataset> make_fashion_mnist(const DatasetOptions& options) {
  // Debian's package puts the files here.
  const std::filesystem::path folder = options.folder.empty() ? "/usr/share/datasets/fashion-mnist" : options.folder;
  const IdxFiles files = find_idx_files(folder, options.split);
  check(!files.images.empty() && !files.labels.empty(), "fashion_mnist",
        "{}: expected a file {}-{}-ubyte.gz, found none; install Debian's package dataset-fashion-mnist "
        "(apt-get install dataset-fashion-mnist) or give the folder with the files (option --data-dir)",
        folder.string(), prefix(options.split), files.images.empty() ? "images-idx3" : "labels-idx1");
  DatasetInfo info;
  info.name = "fashion_mnist";
  info.class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  // Statistics of all 60000 * 28 * 28 training pixels; a test computes them again.
  info.mean = {0.28604F};
  info.std = {0.35302F};
  return load_idx_dataset(files, std::move(info));
}

}  // namespace norma::data
