// Where Winograd's transforms pay: 3x3 convolutions with padding 1 of many shapes by oneDNN and by both tile sizes, by
// turns, and what Norma chooses. ops/conv/conv_winograd.cpp has a model of it. `norma audit --convolutions` shows
// errors.

#include "cli/spin_briefly.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "lab/report/table.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <vector>

namespace {

using namespace norma;

struct Shape {
  int64_t n, channels, size;
};

/// They are those of ResNet-50 at batch 8 and 1, of ResNet-18 on images of 32x32, and others around them.
constexpr Shape kShapes[] = {{8, 64, 56},  {8, 128, 28}, {8, 256, 14},  {8, 512, 7},   {1, 64, 56},  {1, 128, 28},
                             {1, 256, 14}, {1, 512, 7},  {32, 64, 32},  {32, 128, 16}, {32, 256, 8}, {32, 512, 4},
                             {32, 16, 32}, {32, 32, 32}, {128, 32, 14}, {64, 128, 7},  {64, 512, 7}, {8, 192, 28},
                             {8, 384, 14}, {8, 1024, 7}, {8, 64, 112},  {256, 512, 2}};
constexpr std::array<const char*, 3> kPasses = {"forward", "input gradient", "weight gradient"};

/// Seconds of the three passes.
std::array<double, 3> run(const std::string& implementation, const Tensor& x, const Tensor& weight, const Tensor& dy) {
  set_conv2d_implementation(implementation);
  std::array<double, 3> seconds;
  const auto time = [&](size_t pass, auto&& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    seconds[pass] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto gradient_of = [&](bool of_x) {
    const Tensor x_in = of_x ? x.detach().set_requires_grad() : x;
    const Tensor weight_in = of_x ? weight : weight.detach().set_requires_grad();
    const Tensor y = conv2d(x_in, weight_in, {}, {.padding = 1});
    return [=] { y.backward(dy); };
  };
  time(0, [&] {
    const NoGradGuard no_grad;
    (void)conv2d(x, weight, {}, {.padding = 1});
  });
  const auto dx = gradient_of(true);
  time(1, dx);
  const auto dweight = gradient_of(false);
  time(2, dweight);
  return seconds;
}

void compare(const Shape& shape, bool channels_last, int rounds, lab::Table& table) {
  const MemoryFormat format = channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  manual_seed(0);
  const auto random = [&](const Sizes& sizes) { return copy_of(randn(sizes, {.dtype = DType::float32}), format); };
  const Tensor x = random({shape.n, shape.channels, shape.size, shape.size});
  const Tensor weight = random({shape.channels, shape.channels, 3, 3});
  const Tensor dy = random({shape.n, shape.channels, shape.size, shape.size});
  const std::array<std::string, 3> ways = {conv2d_implementations()[1], "winograd_2x2", "winograd_4x4"};
  std::array<std::array<double, 3>, 3> best;
  for (auto& seconds : best) {
    seconds.fill(std::numeric_limits<double>::infinity());
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t way = 0; way < ways.size(); ++way) {
      const std::array<double, 3> done = run(ways[way], x, weight, dy);
      for (size_t pass = 0; pass < 3; ++pass) {
        best[way][pass] = std::min(best[way][pass], done[pass]);
      }
    }
  }
  set_conv2d_implementation("fast");
  const kernels::Conv2dCase conv{.channels_last = channels_last,
                                 .weight_channels_last = channels_last,
                                 .n = shape.n,
                                 .c = shape.channels,
                                 .h = shape.size,
                                 .w = shape.size,
                                 .o = shape.channels,
                                 .kh = 3,
                                 .kw = 3,
                                 .oh = shape.size,
                                 .ow = shape.size,
                                 .padding_h = 1,
                                 .padding_w = 1};
  for (size_t pass = 0; pass < 3; ++pass) {
    const std::string taken(
        kernels::conv_kernels.at("conv2d", kCpu)->choose(conv, static_cast<kernels::Conv2dPass>(pass)).name);
    const auto at = static_cast<size_t>(std::find(ways.begin(), ways.end(), taken) - ways.begin());
    const auto ms = [&](size_t way) { return fmt::format("{:.2f}", 1e3 * best[way][pass]); };
    table.add(fmt::format("{}x{}, {}x{}", shape.n, shape.channels, shape.size, shape.size), kPasses[pass], ms(0), ms(1),
              ms(2), taken, at < ways.size() ? fmt::format("{:.2f}", best[0][pass] / best[at][pass]) : "–");
  }
}

}  // namespace

int main(int argc, char** argv) {
  norma::spin_briefly(argv);
  bool channels_last = false;
  int rounds = 10;
  CLI::App app("Compares Winograd's transforms with direct convolution, shape by shape.");
  app.add_flag("--channels-last", channels_last);
  app.add_option("--rounds", rounds)->capture_default_str()->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    lab::Table table{.heads = {"shape", "pass", "direct ms", "2x2 ms", "4x4 ms", "chosen", "times"}, .words = 2};
    for (const Shape& shape : kShapes) {
      compare(shape, channels_last, rounds, table);
    }
    fmt::print("{}\n", lab::to_text(table));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
