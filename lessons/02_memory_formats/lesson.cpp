// Lesson 2: the two orders in which images lie in memory, and what it costs to change from one to the other.

#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

std::string folder;  // for pictures

/// The memory of one small picture of 3 channels, 2 rows and 2 columns: a box for each place, a color for each
/// channel.
void draw(const std::string& name, const Tensor& x) {
  using lessons::Color;
  constexpr std::array<Color, 3> kColors = {Color::two, Color::three, Color::one};
  lessons::Picture picture(
      84, "The memory of an image in the format " + name,
      fmt::format("Twelve places in a row: sizes {}, strides {}", to_string(x.sizes()), to_string(x.strides())));
  picture.text(4, 16, fmt::format("{}: strides {}", name, to_string(x.strides())));
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t w = 0; w < 2; ++w) {
        const int64_t place = c * x.stride(1) + h * x.stride(2) + w * x.stride(3);
        const double left = 2 + 29.5 * static_cast<double>(place);
        picture.box(left, 26, 28, 30, kColors[static_cast<size_t>(c)], true, fmt::format("{}{}", "RGB"[c], 2 * h + w));
        picture.text(left + 14, 74, fmt::format("{}", place), {.color = Color::faint, .anchor = "middle"});
      }
    }
  }
  picture.save(folder, name);
}

/// The plain way from NCHW to NHWC: reads in the order of memory, and writes all over the place.
void plain_copy(const Tensor& from, const Tensor& to) {
  const float* in = from.data<float>();
  float* out = to.data<float>();
  const int64_t count_c = from.size(1);
  const int64_t count_hw = from.size(2) * from.size(3);
  for (int64_t n = 0; n < from.size(0); ++n) {
    for (int64_t c = 0; c < count_c; ++c) {
      for (int64_t p = 0; p < count_hw; ++p) {
        out[(n * count_hw + p) * count_c + c] = in[(n * count_c + c) * count_hw + p];
      }
    }
  }
}

/// The shortest of 20 runs, in microseconds: what disturbs a run makes it longer.
double microseconds(const std::function<void()>& f) {
  double shortest = 1e9;
  for (int run = 0; run < 20; ++run) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    shortest = std::min(shortest, time.count());
  }
  return shortest;
}

void measure(const Tensor& x) {
  const Tensor target = empty(x.sizes(), {.format = MemoryFormat::channels_last});
  struct Row {
    std::string name;
    double time;
  };
  const std::vector<Row> rows = {
      {"permute", microseconds([&] {
         permute(x, {0, 2, 3, 1});
       })},
      {"copy in the same format", microseconds([&] { clone(x); })},
      {"copy to channels_last", microseconds([&] { to(x, MemoryFormat::channels_last); })},
      {"the same, plain loops", microseconds([&] { plain_copy(x, target); })},
  };
  std::vector<lessons::Bar> bars;
  for (const Row& row : rows) {
    fmt::print("{:<24} measured {:>9.1f} us\n", row.name, row.time);
    bars.push_back({.name = row.name, .value = row.time, .text = fmt::format("{:.1f} us", row.time)});
  }
  lessons::bar_chart("What it takes to change the memory format", "A bar for each way", "measured on this machine",
                     bars)
      .save(folder, "times");
}

}  // namespace

int main(int argc, char** argv) {
  folder = lessons::picture_folder(argc, argv);
  set_num_threads(1);  // so that Norma's copies and our loops are compared as they are

  // One image: 3 channels, 2 rows, 2 columns, in both formats.
  const Tensor nchw = zeros({1, 3, 2, 2});
  const Tensor nhwc = to(nchw, MemoryFormat::channels_last);
  fmt::print("NCHW: {}, strides {}\nNHWC: {}, strides {}\n", describe(nchw), to_string(nchw.strides()), describe(nhwc),
             to_string(nhwc.strides()));
  draw("nchw", nchw);
  draw("nhwc", nhwc);

  // A permute changes the order of the sizes, and moves nothing.
  const Tensor permuted = permute(nchw, {0, 2, 3, 1});
  fmt::print("\npermute(nchw, {{0, 2, 3, 1}}): sizes {}, strides {}, shares memory: {}\n", to_string(permuted.sizes()),
             to_string(permuted.strides()), permuted.storage() == nchw.storage());

  // What a real feature map weighs, and what moving it takes.
  manual_seed(1);
  const Tensor x = randn({8, 64, 56, 56});
  const int64_t bytes = x.numel() * int64_t{sizeof(float)};
  fmt::print("\nx: {}, {} elements of 4 bytes: {} bytes\na copy reads and writes each byte: {} bytes move\n",
             describe(x), x.numel(), bytes, 2 * bytes);
  measure(x);

  // The permute that comes back: a norm over channels, written for tensors whose last axis is the channels.
  const Tensor last = contiguous(permute(x, {0, 2, 3, 1}));
  const Tensor back = permute(layer_norm(last, {64}), {0, 3, 1, 2});
  fmt::print("\nx:                  {}\n", describe(x));
  fmt::print("norm and back:      {}\n", describe(back));
  fmt::print("relu after it:      {}\n", describe(relu(back)));
  fmt::print("layer_norm_2d(x):   {}\n", describe(layer_norm_2d(x)));
  fmt::print("x + norm and back:  {}\n", describe(x + back));
  fmt::print("norm and back + x:  {}\n", describe(back + x));
}
