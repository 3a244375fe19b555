#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <string>

using namespace norma;
using namespace norma::test;

namespace {

struct UnaryCase {
  std::string name;
  Tensor& (*in_place)(Tensor& x);
  Tensor (*plain)(const Tensor& x);
};

const UnaryCase kUnaryCases[] = {
    {"relu_", [](Tensor& x) -> Tensor& { return relu_(x); }, [](const Tensor& x) { return relu(x); }},
    {"neg_", [](Tensor& x) -> Tensor& { return neg_(x); }, [](const Tensor& x) { return neg(x); }},
    {"exp_", [](Tensor& x) -> Tensor& { return exp_(x); }, [](const Tensor& x) { return exp(x); }},
    {"sqrt_", [](Tensor& x) -> Tensor& { return sqrt_(x); }, [](const Tensor& x) { return sqrt(x); }},
    {"clamp_", [](Tensor& x) -> Tensor& { return clamp_(x, 0.6, 1.1); },
     [](const Tensor& x) { return clamp(x, 0.6, 1.1); }},
    {"add_ a number", [](Tensor& x) -> Tensor& { return add_(x, 1.5); }, [](const Tensor& x) { return add(x, 1.5); }},
    {"mul_ by a number", [](Tensor& x) -> Tensor& { return mul_(x, -1.5); },
     [](const Tensor& x) { return mul(x, -1.5); }},
};

struct BinaryCase {
  std::string name;
  Tensor& (*in_place)(Tensor& x, const Tensor& b);
  Tensor (*plain)(const Tensor& x, const Tensor& b);
};

const BinaryCase kBinaryCases[] = {
    {"add_", [](Tensor& x, const Tensor& b) -> Tensor& { return add_(x, b); }, add},
    {"sub_", [](Tensor& x, const Tensor& b) -> Tensor& { return sub_(x, b); }, sub},
    {"mul_", [](Tensor& x, const Tensor& b) -> Tensor& { return mul_(x, b); }, mul},
    {"div_", [](Tensor& x, const Tensor& b) -> Tensor& { return div_(x, b); }, div},
};

const Sizes kSecondSizes[] = {{2, 3, 2, 5}, {1, 3, 1, 1}, {5}, {}, {2, 1, 2, 1}};

/// Away from 0 and from the kinks of the cases above.
Tensor positive(const Sizes& sizes, uint64_t seed) {
  return abs(random_tensor(sizes, seed)) + 0.3;
}

}  // namespace

TEST_CASE("in place: values, strides and version, every layout") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Layout layout : kLayouts) {
      const Tensor input = copy_of(positive({2, 3, 2, 5}, 1), MemoryFormat::contiguous, dtype);
      for (const UnaryCase& test : kUnaryCases) {
        Tensor x = in_layout(input, layout);
        const void* place = x.device_pointer();
        const Strides strides = x.strides();
        const int64_t version = x.version();
        Tensor& result = test.in_place(x);
        CAPTURE(test.name);
        CHECK(&result == &x);
        CHECK(x.device_pointer() == place);
        CHECK(x.strides() == strides);
        CHECK(x.version() == version + 1);
        CHECK(max_difference(x, test.plain(input)) == 0);
      }
      for (const BinaryCase& test : kBinaryCases) {
        for (const Sizes& sizes : kSecondSizes) {
          Tensor x = in_layout(input, layout);
          const Tensor b = copy_of(positive(sizes, 2), MemoryFormat::contiguous, dtype);
          const Strides strides = x.strides();
          test.in_place(x, b);
          CHECK(x.strides() == strides);
          CHECK_MESSAGE(max_difference(x, test.plain(input, b)) == 0, test.name << " " << to_string(sizes));
        }
      }
    }
  }
}

TEST_CASE("in place: gradients, once and twice, every layout and broadcast") {
  for (const UnaryCase& test : kUnaryCases) {
    const auto f = [&](const Tensors& in) -> Tensors {
      Tensor x = in[0] * 1;
      return {test.in_place(x) * 2};
    };
    check_gradients(test.name, f, {positive({2, 3, 2, 5}, 1)}, /* twice= */ true);
  }
  for (const BinaryCase& test : kBinaryCases) {
    for (const Sizes& sizes : kSecondSizes) {
      const auto f = [&](const Tensors& in) -> Tensors {
        Tensor x = in[0] * 1;
        return {test.in_place(x, in[1]) * 2};
      };
      check_gradients(test.name + " " + to_string(sizes), f, {positive({2, 3, 2, 5}, 1), positive(sizes, 2)},
                      /* twice= */ true);
    }
  }
}

TEST_CASE("in place: gradient when only one of the two needs one") {
  for (const BinaryCase& test : kBinaryCases) {
    const Tensor b = positive({1, 3, 1, 1}, 2);
    const auto only_x = [&](const Tensors& in) -> Tensors {
      Tensor x = in[0] * 1;
      return {test.in_place(x, b)};
    };
    check_gradients(test.name + ", x only", only_x, {positive({2, 3, 2, 5}, 1)});
    const auto only_b = [&](const Tensors& in) -> Tensors {
      Tensor x = positive({2, 3, 2, 5}, 1);
      return {test.in_place(x, in[0])};
    };
    check_gradients(test.name + ", b only", only_b, {b});
  }
}

TEST_CASE("in place: several changes in a row") {
  const auto f = [](const Tensors& in) -> Tensors {
    Tensor x = in[0] * 1;
    mul_(x, in[1]);
    add_(x, in[0]);
    sub_(x, in[1]);
    neg_(x);
    exp_(x);
    return {x};
  };
  check_gradients("mul_ add_ sub_ neg_ exp_", f, {positive({2, 3, 2, 5}, 1), positive({5}, 2)}, /* twice= */ true);
}

TEST_CASE("in place: the second operand may be the tensor itself or lie in its memory") {
  Tensor x = from_vector<double>({1, 2, 3, 4}, {2, 2});
  mul_(x, x);
  CHECK(x.to_vector<double>() == std::vector<double>{1, 4, 9, 16});
  add_(x, transpose(x, 0, 1));
  CHECK(x.to_vector<double>() == std::vector<double>{2, 13, 13, 32});
  const auto f = [](const Tensors& in) -> Tensors {
    Tensor y = in[0] * 1;
    mul_(y, y);
    return {y};
  };
  check_gradients("mul_ by itself", f, {positive({2, 3, 2, 5}, 1)}, /* twice= */ true);
}

TEST_CASE("in place: b is converted to the dtype of x") {
  Tensor x = from_vector<float>({1, 2}, {2});
  add_(x, from_vector<double>({0.5, 0.25}, {2}));
  CHECK(x.dtype() == DType::float32);
  CHECK(x.to_vector<float>() == std::vector<float>{1.5F, 2.25F});
  add_(x, from_vector<int64_t>({1, 2}, {2}));
  CHECK(x.to_vector<float>() == std::vector<float>{2.5F, 4.25F});
  Tensor whole = from_vector<int32_t>({5, 6}, {2});
  mul_(whole, from_vector<int64_t>({2, 3}, {2}));
  sub_(whole, from_vector<int32_t>({1}, {1}));
  neg_(whole);
  CHECK(whole.to_vector<int32_t>() == std::vector<int32_t>{-9, -17});
}

TEST_CASE("in place: a leaf may change while gradients are off") {
  Tensor x = from_vector<float>({1, -2}, {2}).set_requires_grad();
  {
    const NoGradGuard guard;
    relu_(x);
    add_(x, 1);
  }
  CHECK(x.to_vector<float>() == std::vector<float>{2, 1});
  CHECK(x.is_leaf());
}

TEST_CASE("in place: keeps a copy only when a gradient needs the former value") {
  const auto saved = [](const Tensor& x) {
    size_t bytes = 0;
    for (const SavedTensor& s : x.impl().node->saved) {
      bytes += s.value().defined() ? static_cast<size_t>(s.value().numel()) * sizeof(double) : 0;
    }
    return bytes;
  };
  Tensor leaf = random_tensor({10}, 1).set_requires_grad();
  Tensor weight = random_tensor({10}, 2).set_requires_grad();
  const Tensor constant = random_tensor({10}, 3);
  Tensor x = leaf * 1;
  CHECK(saved(add_(x, weight)) == 0);
  CHECK(saved(mul_(x, 2)) == 0);
  CHECK(saved(mul_(x, constant)) == 80);
  CHECK(saved(mul_(x, weight)) == 160);
  CHECK(saved(div_(x, constant)) == 80);
  CHECK(saved(neg_(x)) == 0);
}

TEST_CASE("in place: changing a tensor that an earlier op saved is found by backward, which names the op") {
  Tensor x = random_tensor({4}, 1).set_requires_grad();
  Tensor y = x * 1;
  const Tensor z = y * y;
  add_(y, 1);
  const std::string text = error_of([&] { sum(z).backward(); });
  CHECK(text == "mul: saved tensor 1 (float64 [4]) was changed in place: it is at version 1, backward needs version 0");
}

TEST_CASE("in place: error texts") {
  Tensor leaf = zeros({2, 3}).set_requires_grad();
  CHECK(error_of([&] { relu_(leaf); }) ==
        "relu_: x: a leaf that requires a gradient cannot be changed in place while gradients are on");
  CHECK(error_of([&] { add_(leaf, zeros({3})); }) ==
        "add_: x: a leaf that requires a gradient cannot be changed in place while gradients are on");
  Tensor y = leaf * 1;
  Tensor part = select(y, 0, 0);
  CHECK(error_of([&] { mul_(part, 2); }) ==
        "mul_: x: a view cannot be changed in place while gradients are on; clone() it first");
  Tensor small = zeros({3});
  const int64_t version = small.version();
  CHECK(error_of([&] { add_(small, zeros({2, 3})); }) == "add_: b: expected sizes that broadcast to [3], got [2, 3]");
  Tensor whole = zeros({3}, {.dtype = DType::int32});
  CHECK(error_of([&] { add_(whole, zeros({3})); }) == "add_: b: expected a dtype that int32 can hold, got float32");
  CHECK(error_of([&] { add_(whole, 0.5); }) == "add_: b: expected a whole number that fits into int32, got 0.5");
  CHECK(error_of([&] { div_(whole, whole); }) ==
        "div_: expected dtype float32, float64, bfloat16 or float16, got int32");
  CHECK(error_of([&] { exp_(whole); }) == "exp_: expected dtype float32, float64, bfloat16 or float16, got int32");
  Tensor flags = zeros({3}, {.dtype = DType::boolean});
  CHECK(error_of([&] { mul_(flags, 2); }) ==
        "mul_: expected dtype float32, float64, bfloat16, float16, int64 or int32, got bool");
  Tensor expanded = expand(zeros({1, 3}), {2, 3});
  CHECK(error_of([&] { add_(expanded, 1); }) ==
        "add_: x: expected a place in memory for each element, got an expanded tensor (sizes [2, 3], strides [0, 1])");
  Tensor none;
  CHECK(error_of([&] { neg_(none); }) == "neg_: x: expected a tensor, got none");
  CHECK(small.version() == version);
  CHECK(max_difference(small, zeros({3})) == 0);
}
