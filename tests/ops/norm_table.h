#pragma once

#include "norm_reference.h"
#include "ops/norm/norm.h"
#include "ops/shape/copy.h"

#include <array>
#include <string>
#include <vector>

// The cases and the operands that the tests of norms share, and the comparison of all results with the definition.

namespace norma::test {

struct SpecCase {
  std::string name;
  Sizes sizes;
  NormSpec spec;
};

/// Every choice of axes, weights, groups and centring that has loops of its own, for images of some sizes.
inline std::vector<SpecCase> image_norms(const Sizes& sizes) {
  const int64_t channels = sizes[1];
  const int64_t groups = channels % 4 == 0 ? 4 : channels % 3 == 0 ? 3 : 1;
  const int64_t halves = channels % 2 == 0 ? 2 : 1;
  const int64_t correction = sizes[2] * sizes[3] > 1 ? 1 : 0;
  return {
      {"batch", sizes, {.reduce = {0, 2, 3}, .affine = {1}}},
      {"layer2d", sizes, {.reduce = {1}, .affine = {1}, .eps = 1e-6}},
      {"group", sizes, {.reduce = {1, 2, 3}, .affine = {1}, .groups = groups}},
      {"instance", sizes, {.reduce = {2, 3}, .affine = {1}}},
      {"layer", sizes, {.reduce = {2, 3}, .affine = {2, 3}}},
      {"a weight for each pixel", sizes, {.reduce = {1, 2}, .affine = {2, 3}, .groups = halves}},
      {"layer of images", sizes, {.reduce = {1, 2, 3}, .affine = {1, 2, 3}}},
      {"rms2d", sizes, {.reduce = {1}, .affine = {1}, .centring = Centring::none}},
      {"rms of images", sizes, {.reduce = {1, 2, 3}, .affine = {1, 3}, .centring = Centring::none}},
      {"simple", sizes, {.reduce = {2, 3}, .affine = {1}, .centring = Centring::deviation, .correction = correction}}};
}

/// A set of elements in each order that the loops know: rows, columns and groups of runs, in one block and in several.
inline std::vector<SpecCase> norm_walks() {
  return {{"rows", {64, 128}, {.reduce = {1}, .affine = {1}}},
          {"long rows", {3, 20000}, {.reduce = {1}, .affine = {1}}},
          {"rows, weights by segment", {5, 6, 33}, {.reduce = {1, 2}, .affine = {1}}},
          {"columns", {128, 33}, {.reduce = {0}, .affine = {1}}},
          {"columns in blocks", {9000, 33}, {.reduce = {0}, .affine = {1}}},
          {"narrow columns", {900, 3}, {.reduce = {0}, .affine = {1}}},
          {"columns, weights by row", {4, 31, 50}, {.reduce = {1}, .affine = {1}}},
          {"groups", {40, 6, 5}, {.reduce = {0, 2}, .affine = {1}}},
          {"groups in blocks", {9000, 4, 7}, {.reduce = {0, 2}, .affine = {1}}},
          {"groups of long runs", {9, 4, 300}, {.reduce = {0, 2}, .affine = {1}}}};
}

/// Tensors of a norm and of its backward pass; those that a case lacks are undefined.
struct NormOperands {
  Tensor x, weight, bias, residual, dy;
};

/// Random operands. The parameters of norms in 16 bits are float32.
inline NormOperands operands_of(const SpecCase& c, DType dtype, bool with_residual = false) {
  const DType parameters = dtype == DType::float64 ? dtype : DType::float32;
  NormOperands of{.x = to(random_tensor(c.sizes, 1), dtype), .dy = to(random_tensor(c.sizes, 5), dtype)};
  of.weight = to(random_tensor(affine_sizes(of.x, c.spec), 2), parameters);
  of.bias = to(random_tensor(affine_sizes(of.x, c.spec), 3), parameters);
  if (with_residual) {
    of.residual = to(random_tensor(c.sizes, 4), dtype);
  }
  return of;
}

/// The same numbers with x and dy in another layout. The residual becomes channels_last, whatever the layout of x.
inline NormOperands in_layout(const NormOperands& of, Layout layout) {
  return {.x = in_layout(of.x, layout),
          .weight = of.weight,
          .bias = of.bias,
          .residual = of.residual.defined() ? in_layout(of.residual, Layout::channels_last) : Tensor(),
          .dy = in_layout(of.dy, layout)};
}

/// y and the gradients of x, weight, bias and residual; undefined for operands that the case lacks.
inline Tensors norm_results(const NormSpec& spec, const NormOperands& of, Activation activation = Activation::identity,
                            bool create_graph = false) {
  Tensors inputs;
  Tensors defined;
  for (const Tensor& operand : {of.x, of.weight, of.bias, of.residual}) {
    inputs.push_back(operand.defined() ? operand.detach().set_requires_grad() : Tensor());
    if (operand.defined()) {
      defined.push_back(inputs.back());
    }
  }
  const Tensor y = norm_act(inputs[0], spec, inputs[1], inputs[2], {.activation = activation, .residual = inputs[3]});
  const Tensors gradients = grad({y}, defined, {of.dy}, {.create_graph = create_graph});
  Tensors results{y.detach()};
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    results.push_back(inputs[i].defined() ? gradients[next++].detach() : Tensor());
  }
  return results;
}

/// The definition of norm_results(). Where relu's input is so near 0 that rounding could change its sign, dy becomes 0.
inline ReferenceNorm definition_of(const NormSpec& spec, NormOperands& of, Activation activation) {
  if (activation == Activation::relu) {
    const std::vector<double> z = reference_norm(of.x, spec, of.weight, of.bias, {.residual = of.residual}).y;
    std::vector<double> dy = of.dy.to_vector<double>();
    for (size_t i = 0; i < z.size(); ++i) {
      dy[i] = std::abs(z[i]) < 1e-3 ? 0 : dy[i];
    }
    copy_into(from_vector(dy, of.dy.sizes()), of.dy);
  }
  return reference_norm(of.x, spec, of.weight, of.bias,
                        {.dy = of.dy, .activation = activation, .residual = of.residual});
}

/// Every result is the definition's: to half a step of its own rounding and some of the arithmetic's, at the largest
/// number that enters. In float64 the gradients with create_graph are, too.
inline void check_definition(const ReferenceNorm& expected, const NormSpec& spec, const NormOperands& of,
                             Activation activation, double steps) {
  const std::array values{&expected.y, &expected.dx, &expected.dweight, &expected.dbias, &expected.dresidual};
  double scale = std::max(1.0, largest(expected.terms));
  for (const std::vector<double>* of_one : values) {
    scale = std::max(scale, largest(*of_one));
  }
  const double scale_of_y = std::max(4.0, largest(expected.y));
  const Tensors operands{of.x, of.x, of.weight, of.bias, of.residual};
  const DType arithmetic = of.x.dtype() == DType::float64 ? DType::float64 : DType::float32;
  for (const bool create_graph : {false, true}) {
    if (create_graph && arithmetic != DType::float64) {
      continue;
    }
    CAPTURE(create_graph);
    const Tensors results = norm_results(spec, of, activation, create_graph);
    for (size_t i = 0; i < results.size(); ++i) {
      if (operands[i].defined()) {
        CAPTURE(i);
        CHECK(results[i].dtype() == operands[i].dtype());
        const double at = i == 0 ? scale_of_y : scale;
        CHECK(distance(results[i], *values[i]) <=
              0.51 * rounding_step(results[i].dtype(), at) + steps * rounding_step(arithmetic, at));
      }
    }
    CHECK(results[0].strides() == preserved_strides(of.x.sizes(), of.x.strides()));
  }
}

}  // namespace norma::test
