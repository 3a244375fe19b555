#pragma once

#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <vector>

namespace norma::test {

// What every norm promises, checked for any of them. A norm is a function of {x, parameters…}.

/// The output has x's strides, and so has the gradient of x, also where sizes of 1 leave the format to the strides.
inline void check_formats(const std::string& name, const TensorFunction& norm,
                          const std::function<Tensors(int64_t channels)>& parameters) {
  for (const Sizes& sizes :
       {Sizes{2, 4, 3, 5}, Sizes{3, 1, 2, 4}, Sizes{3, 4, 1, 1}, Sizes{1, 4, 3, 2}, Sizes{4, 1, 1, 1}}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      CAPTURE(name);
      CAPTURE(to_string(sizes));
      CAPTURE(to_string(format));
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor values = copy_of(random_tensor(sizes, 1, DType::float32), format);
        Tensors inputs{to(values, dtype)};
        inputs[0] = alias(inputs[0], sizes, values.strides(), 0);
        inputs[0].set_requires_grad();
        for (const Tensor& parameter : parameters(sizes[1])) {
          inputs.push_back(to(parameter, DType::float32));
        }
        const Tensor y = norm(inputs)[0];
        CHECK(y.dtype() == dtype);
        CHECK(to_string(y.strides()) == to_string(values.strides()));
        const Tensor dx = grad({y}, {inputs[0]}, {to(random_tensor(sizes, 2), dtype)})[0];
        CHECK(to_string(dx.strides()) == to_string(values.strides()));
      }
    }
  }
}

/// float32 in every layout against float64 of the same numbers: output and gradients within a few roundings of the
/// largest value among them.
inline void check_float32(const std::string& name, const TensorFunction& norm, const Tensors& inputs) {
  for (const Layout layout : kLayouts) {
    CAPTURE(name);
    CAPTURE(to_string(layout));
    Tensors single;
    Tensors wide;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor values = to(inputs[i], DType::float32);
      single.push_back(i == 0 ? in_layout(values, layout) : copy_of(values, MemoryFormat::preserve));
      wide.push_back(copy_of(to(values, DType::float64), MemoryFormat::preserve));
      single[i].set_requires_grad();
      wide[i].set_requires_grad();
    }
    const Tensor dy = to(random_tensor(inputs[0].sizes(), 3), DType::float32);
    Tensors results{norm(single)[0]};
    Tensors expected{norm(wide)[0]};
    for (const Tensor& gradient : grad({results[0]}, single, {dy})) {
      results.push_back(gradient);
    }
    for (const Tensor& gradient : grad({expected[0]}, wide, {to(dy, DType::float64)})) {
      expected.push_back(gradient);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      CAPTURE(i);
      const double scale = std::max(largest_number(expected[i]), 1.0);
      CHECK(max_difference(to(results[i], DType::float64), expected[i]) <= 2e-6 * scale);
    }
  }
}

/// Whether 16-bit results are what float32 gave, rounded. On the CPU to the bit; CUDA's kernels add up vectors of 16
/// bits in another order than those of float32, and what rounds may round the other way.
inline bool is_rounded(const Tensor& result, const Tensor& wide) {
  const Tensor expected = to(wide, result.dtype());
  if (default_device() == kCpu) {
    return result.to_vector<double>() == expected.to_vector<double>();
  }
  const double unit = result.dtype() == DType::bfloat16 ? 0x1p-7 : result.dtype() == DType::float16 ? 0x1p-10 : 1e-5;
  return max_difference(result, expected) <= unit * largest_number(expected);
}

/// bfloat16 and float16, with parameters of either dtype: what float32 gives for the same inputs, rounded once, and
/// gradients likewise, each in the dtype of its input.
inline void check_sixteen_bits(const std::string& name, const TensorFunction& norm, const Tensors& inputs) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const bool narrow_parameters : {true, false}) {
      CAPTURE(name);
      CAPTURE(to_string(dtype));
      CAPTURE(narrow_parameters);
      Tensors narrow;
      Tensors wide;
      for (size_t i = 0; i < inputs.size(); ++i) {
        narrow.push_back(to(inputs[i], i == 0 || narrow_parameters ? dtype : DType::float32));
        wide.push_back(copy_of(to(narrow[i], DType::float32), MemoryFormat::preserve));
        narrow[i].set_requires_grad();
        wide[i].set_requires_grad();
      }
      const Tensor y = norm(narrow)[0];
      const Tensor expected = norm(wide)[0];
      CHECK(y.dtype() == dtype);
      CHECK(is_rounded(y, expected));
      const Tensor dy = to(random_tensor(y.sizes(), 3), dtype);
      const Tensors gradients = grad({y}, narrow, {dy});
      const Tensors expected_gradients = grad({expected}, wide, {to(dy, DType::float32)});
      for (size_t i = 0; i < inputs.size(); ++i) {
        CAPTURE(i);
        CHECK(gradients[i].dtype() == narrow[i].dtype());
        CHECK(is_rounded(gradients[i], expected_gradients[i]));
      }
    }
  }
}

/// Biased variance, in two passes.
inline double variance_of(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) {
    mean += value / static_cast<double>(values.size());
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return squares / static_cast<double>(values.size());
}

/// Largest |y - expected|; infinite on NaN.
inline double distance_to(const Tensor& y, const std::vector<double>& expected) {
  return max_difference(y, from_vector<double>(expected, y.sizes()));
}

}  // namespace norma::test
