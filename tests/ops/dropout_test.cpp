#include "ops/random/dropout.h"

#include "core/parallel.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "ops/random/batch_part.h"
#include "ops/random/kernels.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <string>

using namespace norma;
using namespace norma::test;

namespace {

/// True iff the counter-based rule of ops/random/kernels.h keeps element i.
bool is_kept(uint64_t seed, uint64_t first, double rate, uint64_t i) {
  return philox(seed, first + i / 4)[i % 4] * 0x1p-32 >= rate;
}

}  // namespace

TEST_CASE("dropout: every element follows its number in the Philox sequence, every layout and dtype") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    const double rounding = is_half(dtype) ? 0.01 : 1e-6;
    for (const Sizes& sizes : {Sizes{1}, Sizes{3}, Sizes{33}, Sizes{2, 3, 5, 7}, Sizes{40'003}}) {
      const Tensor input = to(random_tensor(sizes, 1), dtype);
      const std::vector<double> in = input.to_vector<double>();
      for (const Layout layout : kLayouts) {
        Generator generator(42);
        generator.reserve(10);
        const std::vector<double> out =
            dropout(in_layout(input, layout), 0.25, /* training= */ true, generator).to_vector<double>();
        size_t right = 0;
        for (size_t i = 0; i < in.size(); ++i) {
          const double expected = is_kept(42, 10, 0.25, i) ? in[i] / 0.75 : 0;
          right += std::abs(out[i] - expected) <= rounding * std::abs(expected) ? 1 : 0;
        }
        CHECK(right == in.size());
        CHECK(generator.offset() == 10 + (in.size() + 3) / 4);
      }
    }
  }
}

TEST_CASE("dropout: share of zeros and mean are as the rate says") {
  const int64_t count = 200'000;
  for (const double rate : {0.1, 0.5, 0.9}) {
    Generator generator(3);
    const std::vector<double> y = dropout(ones({count}), rate, true, generator).to_vector<double>();
    const auto zeros_found = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
    const double deviation = std::sqrt(rate * (1 - rate) / count);
    CHECK(std::abs(zeros_found / count - rate) <= 5 * deviation);
    for (const double v : y) {
      REQUIRE((v == 0 || v == doctest::Approx(1 / (1 - rate))));
    }
  }
}

TEST_CASE("dropout: calls in a row draw different masks, the same state the same one") {
  const Tensor x = ones({1000});
  Generator generator(1);
  const Tensor first = dropout(x, 0.5, true, generator);
  const Tensor second = dropout(x, 0.5, true, generator);
  CHECK(max_difference(first, second) == 2);
  generator.set_state(1, 0);
  CHECK(max_difference(dropout(x, 0.5, true, generator), first) == 0);
  manual_seed(5);
  const Tensor third = dropout(x, 0.5, true);
  manual_seed(5);
  CHECK(max_difference(dropout(x, 0.5, true), third) == 0);
}

TEST_CASE("dropout: the same bits for any number of threads") {
  const Tensor x = random_tensor({7, 11, 23, 57}, 1, DType::float32);
  const int threads = num_threads();
  for (const Layout layout : kLayouts) {
    const Tensor input = in_layout(x, layout);
    set_num_threads(1);
    Generator generator(9);
    const Tensor one = dropout(input, 0.3, true, generator);
    set_num_threads(3);
    generator.set_state(9, 0);
    const Tensor three = dropout(input, 0.3, true, generator);
    set_num_threads(threads);
    CHECK(max_difference(one, three) == 0);
  }
}

TEST_CASE("dropout: gradients, once and twice, every layout") {
  const auto f = [](const Tensors& in) -> Tensors {
    Generator generator(4);
    return {dropout(in[0], 0.4, true, generator)};
  };
  check_gradients("dropout", f, {random_tensor({2, 3, 4, 5}, 1)}, /* twice= */ true);
}

TEST_CASE("dropout: keeps the format and saves nothing for backward") {
  Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), MemoryFormat::channels_last).set_requires_grad();
  const Tensor y = dropout(x, 0.5, true);
  CHECK(y.strides() == x.strides());
  CHECK(y.impl().node->saved.empty());
  CHECK(grad({sum(y * 1)}, {x})[0].strides() == x.strides());
}

TEST_CASE("dropout: passes through when off, zeros everything at rate 1") {
  Generator generator(1);
  const Tensor x = random_tensor({10}, 1);
  CHECK(dropout(x, 0.5, /* training= */ false, generator).is_same(x));
  CHECK(dropout(x, 0, /* training= */ true, generator).is_same(x));
  CHECK(drop_path(x, 0.5, /* training= */ false, generator).is_same(x));
  CHECK(drop_path(x, 0, /* training= */ true, generator).is_same(x));
  CHECK(generator.offset() == 0);
  CHECK(max_difference(dropout(x, 1, true, generator), zeros_like(x)) == 0);
  CHECK(max_difference(drop_path(x, 1, true, generator), zeros_like(x)) == 0);
}

TEST_CASE("dropout: infinities that are dropped become 0") {
  Generator generator(1);
  CHECK(max_difference(dropout(full({8}, INFINITY), 1, true, generator), zeros({8})) == 0);
}

TEST_CASE("drop_path: one draw for each sample, every layout") {
  const Tensor input = random_tensor({33, 3, 2, 5}, 1);
  const std::vector<double> in = input.to_vector<double>();
  for (const Layout layout : kLayouts) {
    Generator generator(42);
    const std::vector<double> out = drop_path(in_layout(input, layout), 0.25, true, generator).to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      CHECK(out[i] == doctest::Approx(is_kept(42, 0, 0.25, i / 30) ? in[i] / 0.75 : 0));
    }
    CHECK(generator.offset() == 9);
  }
}

TEST_CASE("drop_path: gradients, once and twice, every layout, keeps the format, saves one number for each sample") {
  const auto f = [](const Tensors& in) -> Tensors {
    Generator generator(4);
    return {drop_path(in[0], 0.4, true, generator)};
  };
  check_gradients("drop_path", f, {random_tensor({6, 3, 2, 5}, 1)}, /* twice= */ true);
  Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), MemoryFormat::channels_last).set_requires_grad();
  const Tensor y = drop_path(x, 0.5, true);
  CHECK(y.strides() == x.strides());
  for (const SavedTensor& saved : y.impl().node->saved) {
    CHECK((!saved.value().defined() || saved.value().numel() == 2));
  }
}

TEST_CASE("dropout: the parts of a batch have the numbers of the whole, and so has what is drawn next") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const bool path : {false, true}) {
      CAPTURE(to_string(dtype));
      CAPTURE(path);
      const auto drop = [&](const Tensor& input, Generator& generator) {
        return path ? drop_path(input, 0.4, true, generator) : dropout(input, 0.4, true, generator);
      };
      const Tensor x = to(random_tensor({7, 3, 5}, 1), dtype);
      Generator of_whole(3);
      const Tensor whole = drop(x, of_whole);
      for (const auto& [first, images] : {std::pair<int64_t, int64_t>{0, 3}, {3, 4}, {2, 1}, {5, 0}}) {
        const BatchPartGuard guard({.first = first, .images = images, .total = 7});
        Generator generator(3);
        const Tensor part = drop(narrow(x, 0, first, images), generator);
        CHECK(part.dtype() == dtype);
        CHECK(part.to_vector<double>() == narrow(whole, 0, first, images).to_vector<double>());
        CHECK(generator.offset() == of_whole.offset());
      }
    }
  }
  CHECK(current_batch_part() == nullptr);
  {
    const BatchPartGuard guard({.first = 1, .images = 2, .total = 7});
    const Tensor infinite = full({2, 3}, INFINITY).set_requires_grad();
    Tensor none = dropout(infinite, 1, true);
    relu_(none);                                      // may be changed in place, as the whole
    CHECK(max_difference(none, zeros({2, 3})) == 0);  // infinities that are dropped become 0
    CHECK(max_difference(grad({none}, {infinite}, {infinite.detach()})[0], zeros({2, 3})) == 0);
  }
  const BatchPartGuard guard({.first = 0, .images = 2, .total = 7});
  CHECK(error_of([&] {
          drop_path(zeros({7, 3, 5}), 0.5, true);
        }) == "drop_path: x: expected the 2 images of a part of a batch, got sizes [7, 3, 5]");
}

TEST_CASE("dropout: error texts") {
  const Tensor x = zeros({2});
  CHECK(error_of([&] { dropout(x, -0.1, true); }) == "dropout: rate: expected a value in [0, 1], got -0.1");
  CHECK(error_of([&] { drop_path(x, 1.5, false); }) == "drop_path: rate: expected a value in [0, 1], got 1.5");
  CHECK(error_of([&] { dropout(x, NAN, true); }) == "dropout: rate: expected a value in [0, 1], got nan");
  CHECK(error_of([&] { dropout(zeros({2}, {.dtype = DType::int64}), 0.5, true); }) ==
        "dropout: expected dtype float32, float64, bfloat16 or float16, got int64");
  CHECK(error_of([&] { drop_path(scalar(1), 0.5, true); }) ==
        "drop_path: x: expected rank 1 or more (axis 0 counts samples), got rank 0");
  CHECK(error_of([&] { dropout(Tensor(), 0.5, true); }) == "dropout: x: expected a tensor, got none");
  const std::string refused = error_of([] { kernels::random_kernels.at("dropout", {DeviceType::cuda, 0}); });
  CHECK_MESSAGE(test::is_refusal_of_cuda(refused, "dropout"), refused);
}
