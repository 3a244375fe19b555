#include "lab/audit/norms.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/factory.h"
#include "core/nearest_name.h"
#include "ops/norm/norm.h"

#include <algorithm>

namespace norma::lab::audit {

namespace {

/// All axes but the first.
Axes behind_first(int64_t rank) {
  Axes axes;
  for (int64_t axis = 1; axis < rank; ++axis) {
    axes.push_back(axis);
  }
  return axes;
}

Sizes behind_first(const Sizes& sizes) {
  Sizes rest = sizes;
  rest.erase(0);
  return rest;
}

constexpr int64_t kGroups = 4;

// Sizes are odd: sets above and below the blocks that the kernels sum in, and no multiples of a vector's width.
std::vector<Norm> make_norms() {
  return {
      {.name = "batch",
       .sizes = {16, 12, 18, 17},
       .spec =
           [](int64_t) {
             return NormSpec{.reduce = {0, 2, 3}, .affine = {1}};
           },
       .apply = [](const Tensor& x, const Tensor& weight, const Tensor& bias, Statistics statistics,
                   double eps) { return batch_norm(x, {}, {}, weight, bias, {.eps = eps, .statistics = statistics}); }},
      {.name = "layer",
       .sizes = {13, 4400},
       .one_each = Sizes{9, 1},
       .spec = [](int64_t rank) { return NormSpec{.reduce = behind_first(rank), .affine = behind_first(rank)}; },
       .apply =
           [](const Tensor& x, const Tensor& weight, const Tensor& bias, Statistics statistics, double eps) {
             return layer_norm(x, behind_first(x.sizes()), weight, bias, {.eps = eps, .statistics = statistics});
           }},
      {.name = "layer2d",
       .sizes = {4, 75, 14, 13},
       .one_each = Sizes{2, 1, 3, 5},
       .spec = [](int64_t) { return NormSpec{.reduce = {1}, .affine = {1}}; },
       .apply = [](const Tensor& x, const Tensor& weight, const Tensor& bias, Statistics statistics,
                   double eps) { return layer_norm_2d(x, weight, bias, {.eps = eps, .statistics = statistics}); }},
      {.name = "group",
       .sizes = {6, 28, 17, 19},
       .one_each = Sizes{3, kGroups, 1, 1},
       .spec = [](int64_t rank) { return NormSpec{.reduce = behind_first(rank), .affine = {1}, .groups = kGroups}; },
       .apply =
           [](const Tensor& x, const Tensor& weight, const Tensor& bias, Statistics statistics, double eps) {
             return group_norm(x, kGroups, weight, bias, {.eps = eps, .statistics = statistics});
           }},
      {.name = "instance",
       .sizes = {6, 7, 37, 31},
       .spec =
           [](int64_t) {
             return NormSpec{.reduce = {2, 3}, .affine = {1}};
           },
       .apply = [](const Tensor& x, const Tensor& weight, const Tensor& bias, Statistics statistics,
                   double eps) { return instance_norm(x, weight, bias, {.eps = eps, .statistics = statistics}); }},
      {.name = "rms2d",
       .sizes = {4, 75, 14, 13},
       .one_each = Sizes{2, 1, 3, 5},
       .has_bias = false,
       .has_statistics = false,
       .spec = [](int64_t) { return NormSpec{.reduce = {1}, .affine = {1}, .centring = Centring::none}; },
       .apply = [](const Tensor& x, const Tensor& weight, const Tensor&, Statistics,
                   double eps) { return rms_norm_2d(x, weight, {.eps = eps}); }},
      {.name = "simple2d",
       .sizes = {4, 75, 14, 13},
       .has_bias = false,
       .spec =
           [](int64_t) {
             return NormSpec{.reduce = {1}, .affine = {1}, .centring = Centring::deviation, .correction = 1};
           },
       .apply = [](const Tensor& x, const Tensor& weight, const Tensor&, Statistics statistics,
                   double eps) { return simple_norm_2d(x, weight, {.eps = eps, .statistics = statistics}); }},
  };
}

}  // namespace

const std::vector<Norm>& all_norms() {
  static const std::vector<Norm> norms = make_norms();
  return norms;
}

std::vector<std::string> norm_names() {
  std::vector<std::string> names;
  for (const Norm& norm : all_norms()) {
    names.push_back(norm.name);
  }
  return names;
}

const Norm& norm_called(const std::string& name) {
  for (const Norm& norm : all_norms()) {
    if (norm.name == name) {
      return norm;
    }
  }
  fail("audit", "{}", unknown_name("norm", name, norm_names()));
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::channels_last: return "channels_last";
    case Layout::transposed: return "transposed";
  }
  return "?";
}

std::vector<Layout> layouts_of(int64_t rank) {
  return {Layout::contiguous, rank == 4 ? Layout::channels_last : Layout::transposed};
}

Tensor in_layout(const Tensor& x, Layout layout) {
  switch (layout) {
    case Layout::contiguous: return copy_of(x, MemoryFormat::contiguous);
    case Layout::channels_last: return copy_of(x, MemoryFormat::channels_last);
    case Layout::transposed: break;
  }
  Tensor copy = empty_strided(x.sizes(), {1, x.size(0)}, {.dtype = x.dtype(), .device = x.device()});
  copy_into(x, copy);
  return copy;
}

}  // namespace norma::lab::audit
