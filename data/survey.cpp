#include "data/survey.h"

#include "core/allocator.h"
#include "core/error.h"
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
    Image image;
    for (int64_t i = first; i < last; ++i) {
      try {
        dataset.load(i * info.size / result.looked_at, image);
        part.add(image);
      } catch (const OutOfMemory&) {
        throw;
      } catch (const Error& error) {
        bad.emplace(i, error.what());
      }
    }
    const std::lock_guard lock(mutex);
    all.add(part);
    faults.merge(bad);
  });
  for (auto& [index, text] : faults) {
    result.faults.push_back(std::move(text));
  }
  for (size_t c = 0; c < all.sums.size() && all.pixels > 0; ++c) {
    const auto count = static_cast<double>(all.pixels);
    const double mean = static_cast<double>(all.sums[c]) / count;
    const double variance = std::max(static_cast<double>(all.squares[c]) / count - mean * mean, 0.0);
    result.mean.push_back(mean / 255);
    result.std.push_back(std::sqrt(variance) / 255);
  }
  return result;
}

}  // namespace norma::data
