#include "core/parallel.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "tests/error_text.h"

#include <cmath>
#include <limits>

// Products, and largest values along one axis.

namespace norma::test {
namespace {

const MemoryFormat kChannelsLast = MemoryFormat::channels_last;

Tensor example() {
  return from_vector<double>({0, 2, -3, 0, 0, 5, 1.5, -2, 4}, {3, 3}).set_requires_grad();
}

/// One of three values, so that many are equal.
Tensor few_values(const Sizes& sizes, DType dtype) {
  Generator generator(3);
  return to(randint(0, 3, sizes, {}, generator), dtype);
}

}  // namespace

// x = torch.tensor([[0., 2, -3], [0, 0, 5], [1.5, -2, 4]], dtype=torch.float64, requires_grad=True)
// y = x.prod(1); w = torch.tensor([1., 2, 3], dtype=torch.float64)
// g, = torch.autograd.grad((y * w).sum(), x, create_graph=True); torch.autograd.grad((g * g).sum(), x)   (torch 2.15)
TEST_CASE("prod: values, gradients and second derivatives with zeros are those of PyTorch") {
  const Tensor x = example();
  const Tensor y = prod(x, {1});
  CHECK(y.to_vector<double>() == std::vector<double>{0, 0, -12});
  const Tensor weights = from_vector<double>({1, 2, 3}, {3});
  const std::vector<double> first{-6, 0, 0, 0, 0, 0, -24, 18, -9};
  CHECK(grad({y}, {x}, {weights}, {.retain_graph = true})[0].to_vector<double>() == first);
  const Tensor g = grad({y}, {x}, {weights}, {.create_graph = true})[0];
  CHECK(g.to_vector<double>() == first);
  CHECK(grad({sum(g * g)}, {x})[0].to_vector<double>() == std::vector<double>{0, 36, -24, 0, 0, 0, 540, -657, 450});
  CHECK(prod(x).item<double>() == 0);
  CHECK(max_difference(grad({prod(x)}, {x})[0], zeros({3, 3})) == 0);
}

// torch.tensor([1, 2, 3], dtype=torch.int32).prod() is int64; torch.tensor([2**62, 4]).prod() == 0;
// torch.empty(0).prod() == 1; torch.tensor([True, True]).prod() is an int64 1.
TEST_CASE("prod: integers are multiplied as int64 and wrap around, and the product of nothing is 1") {
  CHECK(prod(from_vector<int32_t>({1, 2, 3}, {3})).dtype() == DType::int64);
  CHECK(prod(from_vector<int32_t>({1, 2, 3}, {3})).item<int64_t>() == 6);
  CHECK(prod(from_vector<int64_t>({int64_t{1} << 62, 4}, {2})).item<int64_t>() == 0);
  CHECK(prod(from_vector<int64_t>({int64_t{1} << 62, 3}, {2})).item<int64_t>() == -(int64_t{1} << 62));
  CHECK(prod(from_vector<bool>({true, true}, {2})).item<int64_t>() == 1);
  CHECK(prod(zeros({0})).item<float>() == 1);
  CHECK(prod(zeros({2, 0, 3}), {1}).to_vector<float>() == std::vector<float>(6, 1));
  CHECK(prod(scalar(3)).item<float>() == 3);
  const Tensor none = zeros({2, 0}).set_requires_grad();
  CHECK(grad({prod(none, {1})}, {none}, {ones({2})})[0].sizes() == Sizes{2, 0});
  CHECK(error_of([] { prod(Tensor()); }) == "prod: x: expected a tensor, got none");
  CHECK(error_of([] { prod(zeros({2}), {1}); }) == "prod: axis: expected a value in [-1, 1), got 1");
}

TEST_CASE("prod: every set of axes against plain loops, every layout and dtype, around the vector width") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{1, 33, 1, 2}, Sizes{31, 1, 2, 1}}) {
    // Near 1, so that products of 66 stay tame.
    const Tensor values = add(mul(random_tensor(sizes, 1), 0.1), 1);
    for (int bits = 1; bits < 16; ++bits) {
      Axes axes;
      for (int64_t axis = 0; axis < 4; ++axis) {
        if (((bits >> axis) & 1) != 0) {
          axes.push_back(axis);
        }
      }
      const Tensor expected = exp(sum(log(values), axes, {.keepdim = true}));
      for (const Layout layout : kLayouts) {
        for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
          const Tensor in = to(in_layout(values, layout), dtype);
          const Tensor y = prod(in, axes, {.keepdim = true});
          const double tolerance = dtype == DType::float64 ? 1e-12 : dtype == DType::float32 ? 1e-5 : 0.15;
          CHECK(y.dtype() == dtype);
          CHECK(max_difference(y, expected) <= tolerance);
          CHECK(y.strides() == strides_for(y.sizes(), in.suggest_memory_format()));
          CHECK(max_difference(prod(in, axes), reshape(y, prod(in, axes).sizes())) == 0);
        }
      }
    }
  }
}

TEST_CASE("prod: float32 leaves its range on the way without harm, forward and backward") {
  const Tensor x = from_vector<float>({1e30F, 1e30F, 1e-30F, 1e-30F}, {4}).set_requires_grad();
  CHECK(prod(x).item<float>() == doctest::Approx(1).epsilon(1e-5));
  const std::vector<float> gradient = grad({prod(x)}, {x})[0].to_vector<float>();
  CHECK(gradient[0] == doctest::Approx(1e-30F).epsilon(1e-5));
  CHECK(gradient[3] == doctest::Approx(1e30F).epsilon(1e-5));
}

TEST_CASE("prod: gradients by finite differences, also twice, with zeros, and their format") {
  Tensor with_zeros = random_tensor({2, 3, 2, 3}, 1);
  fill_(select(select(with_zeros, 0, 0), 0, 1), 0);  // several zeros in some sets, one in others
  for (const Axes& axes : {Axes{}, Axes{1}, Axes{0, 2, 3}, Axes{-1}, Axes{0, 3}}) {
    const TensorFunction f = [&](const Tensors& in) -> Tensors {
      const Tensor y = prod(in[0], axes, {.keepdim = true});
      return {y * y + y};
    };
    check_gradients("prod " + norma::to_string(axes), f, {random_tensor({2, 3, 2, 3}, 1)}, true);
    check_gradients("prod with zeros " + norma::to_string(axes), f, {with_zeros}, true);
  }
  const Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), kChannelsLast).set_requires_grad();
  const Tensor y = prod(x, {2, 3}, {.keepdim = true});
  CHECK(y.strides() == channels_last_strides({2, 3, 1, 1}));
  CHECK(grad({y}, {x}, {ones_like(y)})[0].suggest_memory_format() == kChannelsLast);
}

TEST_CASE("prod: the same bits for any number of threads") {
  const int before = num_threads();
  const Tensor x = add(mul(random_tensor({7, 20011}, 1, DType::float32), 0.001), 1);
  set_num_threads(1);
  const Tensor one = prod(x, {1});
  set_num_threads(3);
  CHECK(max_difference(prod(x, {1}), one) == 0);
  set_num_threads(before);
}

// m = torch.tensor([[1., 3, 3], [math.nan, 2, math.nan], [5, 5, 1]], requires_grad=True)
// v, i = m.max(1); torch.autograd.grad(v.sum(), m); m.argmax(1)   (torch 2.15); the last ones: ONNX's select_last_index
TEST_CASE("max_along and argmax: the first or the last of equal values, as PyTorch and ONNX") {
  const Tensor m = from_vector<float>({1, 3, 3, NAN, 2, NAN, 5, 5, 1}, {3, 3}).set_requires_grad();
  const MaxAlong first = max_along(m, 1);
  CHECK(first.values.sizes() == Sizes{3});
  CHECK(first.values.to_vector<float>()[0] == 3);
  CHECK(std::isnan(first.values.to_vector<float>()[1]));
  CHECK(first.index.to_vector<int64_t>() == std::vector<int64_t>{1, 0, 0});
  CHECK(argmax(m, 1).to_vector<int64_t>() == std::vector<int64_t>{1, 0, 0});
  CHECK(grad({sum(first.values)}, {m})[0].to_vector<float>() == std::vector<float>{0, 1, 0, 1, 0, 0, 1, 0, 0});
  const MaxAlong last = max_along(m, 1, {.last = true});
  CHECK(last.index.to_vector<int64_t>() == std::vector<int64_t>{2, 2, 1});
  CHECK(argmax(m, 1, {.last = true}).to_vector<int64_t>() == std::vector<int64_t>{2, 2, 1});
  CHECK(argmax(m, -1, {.keepdim = true, .last = true}).sizes() == Sizes{3, 1});
  CHECK(std::isnan(last.values.to_vector<float>()[1]));
  CHECK(grad({sum(last.values)}, {m})[0].to_vector<float>() == std::vector<float>{0, 0, 1, 0, 0, 1, 0, 1, 0});
  CHECK_FALSE(last.index.requires_grad());
}

TEST_CASE("max_along: every axis against plain loops, every layout and dtype") {
  const Sizes sizes{3, 33, 2, 5};
  for (const DType dtype :
       {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::int32}) {
    const Tensor x = few_values(sizes, dtype);
    const std::vector<double> values = x.to_vector<double>();
    for (int64_t axis = 0; axis < 4; ++axis) {
      int64_t inner = 1;
      for (int64_t i = axis + 1; i < 4; ++i) {
        inner *= sizes[i];
      }
      const int64_t length = sizes[axis];
      for (const bool last : {false, true}) {
        std::vector<double> best;
        std::vector<int64_t> index;
        for (int64_t outer = 0; outer < sizes.numel() / (inner * length); ++outer) {
          for (int64_t i = 0; i < inner; ++i) {
            int64_t at = 0;
            const auto value = [&](int64_t j) { return values[static_cast<size_t>((outer * length + j) * inner + i)]; };
            for (int64_t j = 1; j < length; ++j) {
              at = value(j) > value(at) || (last && value(j) == value(at)) ? j : at;
            }
            best.push_back(value(at));
            index.push_back(at);
          }
        }
        for (const Layout layout : kLayouts) {
          for (const bool keepdim : {false, true}) {
            const MaxAlong found = max_along(in_layout(x, layout), axis, {.keepdim = keepdim, .last = last});
            CHECK(found.values.dtype() == dtype);
            CHECK(found.values.sizes() == found.index.sizes());
            CHECK(found.values.rank() == (keepdim ? 4 : 3));
            CHECK(found.values.to_vector<double>() == best);
            CHECK(found.index.to_vector<int64_t>() == index);
          }
        }
      }
    }
  }
}

TEST_CASE("max_along: gradients by finite differences, also twice, formats and error texts") {
  for (int64_t axis = 0; axis < 4; ++axis) {
    const TensorFunction f = [&](const Tensors& in) -> Tensors {
      const Tensor y = max_along(in[0], axis).values;
      return {y * y};
    };
    check_gradients("max_along", f, {random_tensor({2, 3, 4, 2}, 1)}, true);
  }
  const Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), kChannelsLast).set_requires_grad();
  const MaxAlong found = max_along(x, 3, {.keepdim = true});
  CHECK(found.values.suggest_memory_format() == kChannelsLast);
  CHECK(found.index.suggest_memory_format() == kChannelsLast);
  CHECK(grad({found.values}, {x}, {ones_like(found.values)})[0].suggest_memory_format() == kChannelsLast);
  CHECK(max_along(zeros({0, 3}), 1).values.sizes() == Sizes{0});
  CHECK(error_of([] { max_along(Tensor(), 0); }) == "max_along: x: expected a tensor, got none");
  CHECK(error_of([] {
          max_along(zeros({2, 0}), 1);
        }) == "max_along: x: expected at least one element along axis 1, got sizes [2, 0]");
  CHECK(error_of([] { max_along(zeros({2}), 1); }) == "max_along: axis: expected a value in [-1, 1), got 1");
}

}  // namespace norma::test
