#include "data/idx.h"

#include "base/error.h"
#include "base/input_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
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
class Unpacked {
 public:
  explicit Unpacked(const std::filesystem::path& file) {
    const InputFile readable("idx", file, kMaxBytes);  // has texts for what is no file
    file_ = ::gzopen(file.c_str(), "rbe");
    check(file_ != nullptr, "idx", "no memory to unpack {}", file.string());
  }
  ~Unpacked() { ::gzclose(file_); }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;

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
  std::sort(found.begin(), found.end());
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
    std::copy(image.begin(), image.end(), first);
  }
  std::swap(images.sizes[1], images.sizes[2]);
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(DatasetInfo info, IdxArray images, IdxArray labels)
      : info_(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }

  int64_t load(int64_t index, Image& image) const override {
    check(index >= 0 && index < info_.size, info_.name, "index: expected a value in [0, {}), got {}", info_.size,
          index);
    const int64_t bytes = info_.image_bytes();
    image.set_size(info_.height, info_.width, info_.channels);
    std::memcpy(image.pixels.data(), images_.values.data() + index * bytes, static_cast<size_t>(bytes));
    return labels_.values[static_cast<size_t>(index)];
  }

 private:
  DatasetInfo info_;
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

}  // namespace norma::data
