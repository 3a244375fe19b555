#include "core/tensor.h"

#include <vector>

namespace norma {
namespace {

constexpr int64_t kShown = 6;  // entries of an axis before the middle is left out

void print_axis(const std::vector<double>& values, const Sizes& sizes, int64_t axis, int64_t first, bool integer,
                std::string& text) {
  if (axis == sizes.size()) {
    const double value = values[static_cast<size_t>(first)];
    text += integer ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
    return;
  }
  int64_t step = 1;
  for (int64_t inner = axis + 1; inner < sizes.size(); ++inner) {
    step *= sizes[inner];
  }
  const bool innermost = axis + 1 == sizes.size();
  text += "[";
  for (int64_t i = 0; i < sizes[axis]; ++i) {
    if (i > 0) {
      text += innermost ? ", " : ",\n" + std::string(static_cast<size_t>(axis) + 1, ' ');
    }
    if (sizes[axis] > kShown && i == kShown / 2) {
      text += "…";
      i = sizes[axis] - kShown / 2 - 1;
      continue;
    }
    print_axis(values, sizes, axis + 1, first + i * step, integer, text);
  }
  text += "]";
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) {
    return "none";
  }
  std::string text;
  print_axis(x.to_vector<double>(), x.sizes(), 0, 0, !is_floating(x.dtype()), text);
  return text + "\n" + describe(x);
}

}  // namespace norma
