#include "data/survey.h"

#include "base/error.h"
#include "base/lists.h"
#include "core/allocator.h"
#include "core/parallel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

namespace norma::data {

namespace {

/// Sums over bytes. They are whole numbers, so that the order of the images changes nothing.
struct ByteSums {
  int64_t pixels = 0;
  std::vector<int64_t> sums;
  std::vector<int64_t> squares;

  explicit ByteSums(int64_t channels) : sums(static_cast<size_t>(channels)), squares(static_cast<size_t>(channels)) {}

  void add(const Image& image) {
    const size_t channels = sums.size();
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      const int64_t value = image.pixels[i];
      sums[i % channels] += value;
      squares[i % channels] += value * value;
    }
    pixels += image.height * image.width;
  }
  void add(const ByteSums& other) {
    pixels += other.pixels;
    for (size_t c = 0; c < sums.size(); ++c) {
      sums[c] += other.sums[c];
      squares[c] += other.squares[c];
    }
  }
};

constexpr const char* kOp = "contact_sheet";

}  // namespace

Survey survey(const Dataset& dataset, int64_t most) {
  const DatasetInfo& info = dataset.info();
  Survey result;
  result.looked_at = std::min(info.size, most);
  ByteSums all(info.channels);
  std::map<int64_t, std::string> faults;
  std::mutex mutex;
  parallel_for(0, result.looked_at, /* grain= */ 1, [&](int64_t first, int64_t last) {
    ByteSums part(info.channels);
    std::map<int64_t, std::string> bad;
    int64_t turned = 0;
    Image image;
    for (int64_t i = first; i < last; ++i) {
      try {
        dataset.load(i * info.size / result.looked_at, image);
        part.add(image);
        turned += image.orientation == 1 ? 0 : 1;
      } catch (const OutOfMemory&) {
        throw;
      } catch (const Error& error) {
        bad.emplace(i, error.what());
      }
    }
    const std::lock_guard lock(mutex);
    all.add(part);
    faults.merge(bad);
    result.turned += turned;
  });
  result.faults = mapped(faults, [](const auto& fault) { return fault.second; });
  for (size_t c = 0; c < all.sums.size() && all.pixels > 0; ++c) {
    const auto count = static_cast<double>(all.pixels);
    const double mean = static_cast<double>(all.sums[c]) / count;
    const double variance = std::max(static_cast<double>(all.squares[c]) / count - mean * mean, 0.0);
    result.mean.push_back(mean / 255);
    result.std.push_back(std::sqrt(variance) / 255);
  }
  return result;
}

Image contact_sheet(std::span<const Image> images, const ContactSheetOptions& options) {
  check(!images.empty(), kOp, "images: expected at least 1, got none");
  check(options.columns >= 0 && options.gap >= 0 && options.least_side >= 0 && options.gap <= kMaxImagePixels &&
            options.least_side <= kMaxImagePixels,
        kOp, "options: expected numbers from 0 to {}, got columns {}, gap {}, least_side {}", kMaxImagePixels,
        options.columns, options.gap, options.least_side);
  const int64_t height = images[0].height;
  const int64_t width = images[0].width;
  for (const Image& image : images) {
    check_image(kOp, image);
    check(image.height == height && image.width == width, kOp, "images: expected all of {} x {} pixels, got {} x {}",
          height, width, image.height, image.width);
  }
  const auto count = static_cast<int64_t>(images.size());
  const int64_t square = std::llround(std::ceil(std::sqrt(static_cast<double>(count))));
  const int64_t columns = std::min(count, options.columns > 0 ? options.columns : square);
  const int64_t rows = (count + columns - 1) / columns;
  const int64_t shorter = std::min(height, width);
  const int64_t factor = std::max<int64_t>(1, (options.least_side + shorter - 1) / shorter);
  const int64_t cell_height = height * factor + options.gap;
  const int64_t cell_width = width * factor + options.gap;
  // Floating point cannot overflow here.
  check(
      static_cast<double>(rows * cell_height + options.gap) * static_cast<double>(columns * cell_width + options.gap) <=
          static_cast<double>(kMaxImagePixels),
      kOp, "images: expected at most {} pixels together, got {} rows and {} columns of {} x {}", kMaxImagePixels, rows,
      columns, cell_height, cell_width);
  Image sheet;
  sheet.set_size(rows * cell_height + options.gap, columns * cell_width + options.gap, 3);
  std::ranges::fill(sheet.pixels, uint8_t{255});
  for (int64_t i = 0; i < count; ++i) {
    const Image& image = images[static_cast<size_t>(i)];
    const int64_t top = i / columns * cell_height + options.gap;
    const int64_t left = i % columns * cell_width + options.gap;
    for (int64_t y = 0; y < height * factor; ++y) {
      uint8_t* to = sheet.pixels.data() + ((top + y) * sheet.width + left) * 3;
      for (int64_t x = 0; x < width * factor; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          *to++ = image.at(y / factor, x / factor, image.channels == 3 ? c : 0);
        }
      }
    }
  }
  return sheet;
}

}  // namespace norma::data
