// Lesson 1: one block of memory, and several tensors that read it. Prints and draws what the page shows.

#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

std::string folder;  // for pictures

/// The place of element (i, j) in the block of memory that x reads.
int64_t place(const Tensor& x, int64_t i, int64_t j) {
  return x.offset() + i * x.stride(0) + j * x.stride(1);
}

/// All that the storage holds, in the order of memory: a tensor of one axis with stride 1 is the block itself.
std::vector<float> memory_of(const Tensor& x) {
  const int64_t count = static_cast<int64_t>(x.storage()->bytes() / sizeof(float));
  return alias(x, {count}, {1}, 0).to_vector<float>();
}

/// Above: the tensor's elements, each with its place. Below: the block of memory. A row of the tensor has one color.
void draw(const std::string& name, const Tensor& x) {
  using lessons::Color;
  constexpr std::array<Color, 3> kRows = {Color::one, Color::two, Color::three};
  const std::vector<float> memory = memory_of(x);
  const auto rows = static_cast<double>(x.size(0));
  lessons::Picture picture(rows * 40 + 110, "A tensor and its memory: " + name,
                           fmt::format("A tensor of sizes {} with strides {} over a block of {} numbers",
                                       to_string(x.sizes()), to_string(x.strides()), memory.size()));
  picture.text(4, 16,
               fmt::format("{}: sizes {}, strides {}, offset {}", name, to_string(x.sizes()), to_string(x.strides()),
                           x.offset()));
  std::vector<Color> colors(memory.size(), Color::faint);
  for (int64_t i = 0; i < x.size(0); ++i) {
    for (int64_t j = 0; j < x.size(1); ++j) {
      const int64_t at = place(x, i, j);
      const double left = 4 + 58 * static_cast<double>(j);
      const double top = 28 + 40 * static_cast<double>(i);
      const Color color = kRows[static_cast<size_t>(i % 3)];
      picture.box(left, top, 54, 34, color, true, fmt::format("{:g} at {}", memory[static_cast<size_t>(at)], at));
      colors[static_cast<size_t>(at)] = color;
    }
  }
  const double top = 28 + rows * 40 + 22;
  picture.text(4, top - 6, "memory", {.color = Color::faint});
  for (size_t at = 0; at < memory.size(); ++at) {
    const double left = 4 + 58 * static_cast<double>(at);
    picture.box(left, top, 54, 34, colors[at], colors[at] != Color::faint, fmt::format("{:g}", memory[at]));
    picture.text(left + 27, top + 49, fmt::format("{}", at), {.color = Color::faint, .anchor = "middle"});
  }
  picture.save(folder, name);
}

void show(const std::string& name, const Tensor& x) {
  fmt::print("{}: sizes {}, strides {}, offset {}\n", name, to_string(x.sizes()), to_string(x.strides()), x.offset());
  for (int64_t i = 0; i < x.size(0); ++i) {
    for (int64_t j = 0; j < x.size(1); ++j) {
      const Tensor element = select(select(x, 0, i), 0, j);
      fmt::print("  ({}, {}) is {:g}, at place {}\n", i, j, element.item<float>(), place(x, i, j));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  folder = lessons::picture_folder(argc, argv);

  const Tensor x = from_vector<float>({10, 11, 12, 13, 14, 15}, {2, 3});
  show("x", x);
  draw("x", x);

  const Tensor t = transpose(x, 0, 1);
  fmt::print("\n");
  show("transposed", t);
  draw("transposed", t);

  // A view shares the memory: what is written through one is seen through the other.
  fmt::print("\nx and its transpose share one block: {}\n", t.storage() == x.storage());
  t.data<float>()[t.stride(0) * 2 + t.stride(1) * 1] = 99;
  t.bump_version();
  fmt::print("99 is written to (2, 1) of the transpose; (1, 2) of x is now {:g}\n",
             select(select(x, 0, 1), 0, 2).item<float>());
  t.data<float>()[5] = 15;
  t.bump_version();

  const Tensor columns = slice(x, /* axis= */ 1, /* start= */ 0, /* end= */ 3, /* step= */ 2);
  fmt::print("\n");
  show("sliced", columns);
  draw("sliced", columns);

  const Tensor row = slice(x, /* axis= */ 0, /* start= */ 1, /* end= */ 2);
  const Tensor expanded = expand(row, {3, 3});
  fmt::print("\n");
  show("expanded", expanded);
  draw("expanded", expanded);
  fmt::print("it has {} elements, and its memory holds {}\n", expanded.numel(), memory_of(expanded).size());

  // What strides cannot say needs a copy.
  fmt::print("\nview of x with sizes [6]: strides {}\n", to_string(view(x, {6}).strides()));
  try {
    view(t, {6});
  } catch (const Error& error) {
    fmt::print("view of its transpose: {}\n", error.what());
  }
  const Tensor copied = reshape(t, {6});
  fmt::print("reshape copies: {}\nthe copy shares the block: {}\n", to_string(copied), copied.storage() == x.storage());
}
