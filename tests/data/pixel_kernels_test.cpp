#include "data/augment/interpolate_kernels.h"
#include "data/resize_kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

using namespace norma::data;

namespace {

std::mt19937_64& chance() {
  static std::mt19937_64 engine(5);
  return engine;
}
int64_t whole(int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(chance());
}

std::vector<uint8_t> noise(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) {
    const int64_t kind = whole(0, 3);  // many black and white ones: there sums overshoot
    byte = static_cast<uint8_t>(kind == 0 ? 0 : kind == 1 ? 255 : whole(0, 255));
  }
  return bytes;
}

/// Windows anywhere in `length` pixels, with weights of both signs whose sizes sum up to 1.5 at most.
std::vector<ResizeWindow> windows_in(int64_t length) {
  std::vector<ResizeWindow> windows(static_cast<size_t>(whole(1, 9)));
  for (ResizeWindow& window : windows) {
    window.first = whole(0, length - 1);
    const int64_t count = whole(1, std::min<int64_t>(length - window.first, 14));
    const int64_t most = (int64_t{3} << (kResizeFractionBits - 1)) / count;
    for (int64_t i = 0; i < count; ++i) {
      window.weights.push_back(static_cast<int32_t>(whole(-most, most)));
    }
    if (whole(0, 3) == 0) {  // one pixel as it is
      std::fill(window.weights.begin(), window.weights.end(), 0);
      window.weights.back() = 1 << kResizeFractionBits;
    }
  }
  return windows;
}

/// floor(sum w p + 1/2) from 0 to 255, of pixels that are `step` bytes apart.
uint8_t new_pixel(const uint8_t* from, int64_t step, const std::vector<int32_t>& weights) {
  int64_t sum = int64_t{1} << (kResizeFractionBits - 1);
  for (const int32_t weight : weights) {
    sum += int64_t{weight} * *from;
    from += step;
  }
  return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kResizeFractionBits, 0, 255));
}

}  // namespace

TEST_CASE("pixel kernels: resize_rows and resize_columns are sums with weights, whatever the sizes") {
  for (int round = 0; round < 600; ++round) {
    const int64_t channels = round % 2 == 0 ? 3 : 1;
    const int64_t width = round < 100 ? whole(1, 6) : whole(1, 70);
    const PixelRows sizes{.count = whole(1, 14), .bytes = width * channels, .channels = channels};
    CAPTURE(channels);
    CAPTURE(width);

    std::vector<uint8_t> pixels = noise(sizes.count * sizes.bytes + kResizeReadsBehind);
    PixelRows rows = sizes;
    rows.pixels = pixels.data();
    const std::vector<ResizeWindow> across = windows_in(width);
    std::vector<uint8_t> expected;
    for (int64_t y = 0; y < rows.count; ++y) {
      for (const ResizeWindow& window : across) {
        for (int64_t c = 0; c < channels; ++c) {
          expected.push_back(
              new_pixel(pixels.data() + y * rows.bytes + window.first * channels + c, channels, window.weights));
        }
      }
    }
    std::vector<uint8_t> got(expected.size() + 1);
    resize_rows(rows, across, got.data());
    got.pop_back();
    CHECK(got == expected);

    pixels.resize(static_cast<size_t>(rows.count * rows.bytes));
    pixels.shrink_to_fit();
    const int64_t begin = whole(0, 5);
    rows.pixels = pixels.data();
    std::vector<ResizeWindow> down = windows_in(rows.count);
    expected.clear();
    for (ResizeWindow& window : down) {
      for (int64_t i = 0; i < rows.bytes; ++i) {
        expected.push_back(new_pixel(pixels.data() + window.first * rows.bytes + i, rows.bytes, window.weights));
      }
      window.first += begin;
    }
    got.assign(expected.size(), 0);
    resize_columns(rows, begin, down, got.data());
    CHECK(got == expected);
  }
}

namespace {

double along(const std::array<double, 2>& v, double d) {
  return v[0] + (v[1] - v[0]) * d;
}
double along(const std::array<double, 4>& v, double d) {
  const double p2 = v[2] - v[0];
  const double p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
  const double p4 = v[1] - v[0] - v[2] + v[3];
  return v[1] + d * (p2 + d * (p3 + d * p4));
}

/// What interpolate_bilinear() (2) and interpolate_bicubic() (4) write, a channel of a pixel after the other.
template <size_t kCount>
void interpolate_by_definition(const Interpolation2d& job) {
  const auto& m = job.matrix;
  const auto old = [&](int64_t y, int64_t x, int64_t c) {
    y = std::clamp<int64_t>(y, 0, job.height - 1);
    x = std::clamp<int64_t>(x, 0, job.width - 1);
    return static_cast<double>(job.from[(y * job.width + x) * job.channels + c]);
  };
  for (int64_t i = 0; i < job.height * job.width * job.channels; ++i) {
    const auto x = static_cast<double>(i / job.channels % job.width) + 0.5;
    const auto y = static_cast<double>(i / job.channels / job.width) + 0.5;
    const double place_x = m[0] * x + m[1] * y + m[2];
    const double place_y = m[3] * x + m[4] * y + m[5];
    if (place_x < 0 || place_x >= static_cast<double>(job.width) || place_y < 0 ||
        place_y >= static_cast<double>(job.height)) {
      continue;
    }
    const double left = std::floor(place_x - 0.5);
    const double top = std::floor(place_y - 0.5);
    constexpr auto before = static_cast<int64_t>(kCount / 2) - 1;
    std::array<double, kCount> of_rows{};
    for (size_t r = 0; r < kCount; ++r) {
      std::array<double, kCount> row{};
      for (size_t k = 0; k < kCount; ++k) {
        row[k] = old(static_cast<int64_t>(top) + static_cast<int64_t>(r) - before,
                     static_cast<int64_t>(left) + static_cast<int64_t>(k) - before, i % job.channels);
      }
      of_rows[r] = along(row, place_x - 0.5 - left);
    }
    job.to[i] = static_cast<uint8_t>(std::clamp(along(of_rows, place_y - 0.5 - top), 0.0, 255.0));
  }
}

}  // namespace

TEST_CASE("pixel kernels: bilinear and bicubic interpolation by their definition, whatever the sizes") {
  std::uniform_real_distribution<double> number(-1.5, 1.5);
  for (int round = 0; round < 200; ++round) {
    Interpolation2d job{.height = whole(1, 20), .width = whole(1, 20), .channels = round % 2 == 0 ? 3 : 1};
    job.matrix = {number(chance()), number(chance()), number(chance()) * 9,
                  number(chance()), number(chance()), number(chance()) * 9};
    if (round % 5 == 0) {  // along the rows only
      job.matrix = {number(chance()), number(chance()), number(chance()) * 9, 0, 1, 0};
    } else if (round % 5 == 1) {  // along the columns
      job.matrix = {1, 0, 0, number(chance()), number(chance()), number(chance()) * 9};
    }
    const int64_t count = job.height * job.width * job.channels;
    const std::vector<uint8_t> pixels = noise(count + 1);
    job.from = pixels.data();
    for (const bool bicubic : {false, true}) {
      CAPTURE(bicubic);
      std::vector<uint8_t> got(static_cast<size_t>(count), 99);
      std::vector<uint8_t> expected = got;
      job.to = expected.data();
      bicubic ? interpolate_by_definition<4>(job) : interpolate_by_definition<2>(job);
      job.to = got.data();
      bicubic ? interpolate_bicubic(job) : interpolate_bilinear(job);
      CHECK(got == expected);
    }
  }
}
