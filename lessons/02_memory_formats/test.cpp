// What your answers must do. Norma's own formats say what is right.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace {

using norma::MemoryFormat;
using norma::Tensor;

std::vector<int64_t> numbers(const auto& list) {
  return {list.begin(), list.end()};
}

std::string name(Format format) {
  return format == Format::nchw ? "nchw" : "nhwc";
}

const std::vector<std::vector<int64_t>> kSizes = {{2, 3, 4, 5}, {1, 3, 2, 2}, {4, 1, 5, 3}, {2, 6, 1, 1}};

Tensor tensor_of(const std::vector<int64_t>& sizes, Format format) {
  return norma::zeros({sizes[0], sizes[1], sizes[2], sizes[3]},
                      {.format = format == Format::nchw ? MemoryFormat::contiguous : MemoryFormat::channels_last});
}

}  // namespace

TEST_CASE("gap 1: the strides of both formats") {
  for (const std::vector<int64_t>& sizes : kSizes) {
    for (const Format format : {Format::nchw, Format::nhwc}) {
      const std::vector<int64_t> expected = numbers(tensor_of(sizes, format).strides());
      const std::vector<int64_t> yours = strides_of(sizes, format);
      INFO("sizes [N, C, H, W] = ", fmt::format("{}", sizes), " in ", name(format), "\n  expected ",
           fmt::format("{}", expected), "\n  yours    ", fmt::format("{}", yours));
      CHECK(yours == expected);
    }
  }
}

TEST_CASE("gap 2: a copy from nchw to nhwc (needs gap 1)") {
  const int64_t n = 2;
  const int64_t c = 3;
  const int64_t h = 4;
  const int64_t w = 5;
  const std::vector<float> from = norma::arange(n * c * h * w, norma::DType::float32).to_vector<float>();
  std::vector<float> to(from.size(), -1);
  to_nhwc(from.data(), to.data(), n, c, h, w);
  for (int64_t ic = 0; ic < c; ++ic) {
    for (int64_t ih = 0; ih < h; ++ih) {
      for (int64_t iw = 0; iw < w; ++iw) {
        const int64_t in = 1;
        const auto place = static_cast<size_t>(((in * h + ih) * w + iw) * c + ic);
        const auto source = static_cast<size_t>(((in * c + ic) * h + ih) * w + iw);
        INFO("element (n, c, h, w) = ",
             fmt::format(
                 "({}, {}, {}, {}) of sizes [2, 3, 4, 5]\n  it is at place {} of nchw, and belongs to place {} of nhwc",
                 in, ic, ih, iw, source, place),
             "\n  -1 means: nothing was written there");
        CHECK(to[place] == from[source]);
      }
    }
  }
}

TEST_CASE("gap 3: the bytes that move (needs gap 1)") {
  for (const std::vector<int64_t>& sizes : kSizes) {
    for (const Format from : {Format::nchw, Format::nhwc}) {
      for (const Format to : {Format::nchw, Format::nhwc}) {
        const Tensor x = tensor_of(sizes, from);
        const bool stays = x.is_contiguous(to == Format::nchw ? MemoryFormat::contiguous : MemoryFormat::channels_last);
        const int64_t expected = stays ? 0 : 2 * 4 * x.numel();
        INFO("sizes ", fmt::format("{}, strides {}", sizes, numbers(x.strides())), ", to ", name(to),
             std::string(stays ? "\n  it lies in this format already: look at the axes of size 1"
                               : "\n  it must be copied: 4 bytes of each element are read, and 4 are written"));
        CHECK(bytes_moved(sizes, numbers(x.strides()), to) == expected);
      }
    }
  }
  INFO("\n  every second column of a wider tensor: its strides are not those of the format");
  CHECK(bytes_moved({1, 2, 2, 2}, {16, 8, 4, 2}, Format::nchw) == 64);
  INFO("\n  every second image of a batch: one axis whose stride differs is enough");
  CHECK(bytes_moved({2, 2, 2, 2}, {16, 4, 2, 1}, Format::nchw) == 128);
}
