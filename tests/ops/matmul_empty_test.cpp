#include "ops/conv/conv.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "tests/error_text.h"

#include <string>

// Products whose operands repeat elements (strides of 0) or have none, forward and backward.

namespace norma::test {
namespace {

/// Forces an implementation for the length of a scope.
struct Forced {
  explicit Forced(const std::string& name) { set_matmul_implementation(name); }
  ~Forced() { set_matmul_implementation(""); }
};

constexpr DType kFloating[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

/// The largest number of roundings' worth that a sum of 64 products of such numbers may be off.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::float64: return 1e-11;
    case DType::float32: return 1e-3;
    default: return 1;  // of sums up to 70, whose last place counts 1/4
  }
}

struct Operands {
  std::string name;
  Sizes a_given, b_given;   ///< in memory
  Sizes a, b;               ///< what they are expanded to
  bool transposed = false;  ///< exchange the last two axes of both
};

/// Every way in which a stride can be 0.
const std::vector<Operands>& repeated_operands() {
  static const std::vector<Operands> all = {
      {"batch of a", {1, 64, 64}, {64, 64}, {4, 64, 64}, {64, 64}},
      {"batch of b", {64, 64}, {1, 64, 64}, {64, 64}, {4, 64, 64}},
      {"batch of both", {1, 64, 64}, {1, 64, 64}, {4, 64, 64}, {4, 64, 64}},
      {"batch of both, small", {1, 3, 2}, {1, 2, 5}, {4, 3, 2}, {4, 2, 5}},
      {"inner of two batch axes", {3, 1, 40, 33}, {3, 1, 33, 40}, {3, 2, 40, 33}, {3, 2, 33, 40}},
      {"outer of two batch axes", {1, 2, 40, 33}, {1, 2, 33, 40}, {3, 2, 40, 33}, {3, 2, 33, 40}},
      {"one each", {3, 1, 40, 33}, {1, 2, 33, 40}, {3, 2, 40, 33}, {3, 2, 33, 40}},
      {"rows of a", {4, 1, 33}, {4, 33, 40}, {4, 31, 33}, {4, 33, 40}},
      {"columns of a", {4, 31, 1}, {4, 33, 40}, {4, 31, 33}, {4, 33, 40}},
      {"rows of b", {4, 31, 33}, {4, 1, 40}, {4, 31, 33}, {4, 33, 40}},
      {"columns of b", {4, 31, 33}, {4, 33, 1}, {4, 31, 33}, {4, 33, 40}},
      {"everything", {1, 1, 1}, {1, 1, 1}, {4, 31, 33}, {4, 33, 40}},
      {"both batches, transposed", {1, 33, 31}, {1, 40, 33}, {4, 33, 31}, {4, 40, 33}, true},
      {"one matrix and one row", {1, 1, 33}, {33, 1}, {4, 1, 33}, {33, 1}},
  };
  return all;
}

Tensor matrix_of(const Tensor& x, const Operands& operands) {
  return operands.transposed ? transpose(x, -2, -1) : x;
}

}  // namespace

TEST_CASE("matmul: operands with strides of 0, every implementation and dtype, results and gradients") {
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const DType dtype : kFloating) {
      for (const Operands& operands : repeated_operands()) {
        CAPTURE(name);
        CAPTURE(norma::to_string(dtype));
        CAPTURE(operands.name);
        // The same values in float64, repeated in memory, one matrix at a time.
        const auto run = [&](DType type, bool dense) {
          const Tensor a = to(to(random_tensor(operands.a_given, 1), dtype), type).set_requires_grad();
          const Tensor b = to(to(random_tensor(operands.b_given, 2), dtype), type).set_requires_grad();
          Tensor left = matrix_of(expand(a, operands.a), operands);
          Tensor right = matrix_of(expand(b, operands.b), operands);
          if (dense) {
            left = contiguous(left);
            right = contiguous(right);
          }
          const Tensor y = matmul(left, right);
          const Tensor dy = to(to(random_tensor(y.sizes(), 3), dtype), type);
          // As from sum(): every element of dy is the same one.
          const Tensor same = expand(to(scalar(0.5), type), y.sizes());
          Tensors results{y};
          for (const Tensor& gradient : {dy, same}) {
            for (const Tensor& x : grad({y}, {left, right}, {gradient}, {.retain_graph = true})) {
              results.push_back(x);
            }
          }
          return results;
        };
        std::string error = "none";
        try {
          const Tensors got = run(dtype, /* dense= */ false);
          const Tensors expected = run(DType::float64, /* dense= */ true);
          for (size_t i = 0; i < expected.size(); ++i) {
            CAPTURE(i);
            CHECK(got[i].dtype() == dtype);
            CHECK(max_difference(got[i], expected[i]) <= tolerance(dtype));
          }
        } catch (const Error& e) {
          error = e.what();
        }
        CHECK(error == "none");
      }
    }
  }
}

TEST_CASE("matmul: gradients of broadcast batches by finite differences, also twice, every implementation") {
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    CAPTURE(name);
    const TensorFunction repeated = [](const Tensors& in) -> Tensors {
      return {matmul(expand(in[0], {3, 2, 4}), expand(in[1], {3, 4, 2}))};
    };
    check_gradients("both repeated", repeated, {random_tensor({1, 2, 4}, 1), random_tensor({1, 4, 2}, 2)}, true);
    const TensorFunction one = [](const Tensors& in) -> Tensors { return {matmul(expand(in[0], {3, 2, 4}), in[1])}; };
    check_gradients("left repeated, one right matrix", one, {random_tensor({1, 2, 4}, 1), random_tensor({4, 2}, 2)},
                    true);
  }
}

TEST_CASE("matmul: without elements in any axis, results and gradients, also twice") {
  struct Case {
    Sizes a, b;
  };
  const std::vector<Case> cases = {
      {{0, 4}, {4, 3}},       {{2, 0}, {0, 3}},       {{2, 4}, {4, 0}},       {{0, 0}, {0, 0}},
      {{0, 2, 4}, {4, 3}},    {{0, 2, 4}, {0, 4, 3}}, {{2, 4}, {0, 4, 3}},    {{3, 0, 4}, {4, 3}},
      {{3, 2, 0}, {0, 3}},    {{3, 2, 4}, {4, 0}},    {{3, 2, 0}, {3, 0, 3}}, {{2, 1, 0, 4}, {3, 4, 5}},
      {{1, 2, 4}, {0, 4, 3}}, {{0, 0, 0}, {0, 0}},    {{2, 0, 2, 4}, {4, 3}},
  };
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const DType dtype : kFloating) {
      for (const Case& c : cases) {
        CAPTURE(name);
        CAPTURE(norma::to_string(c.a));
        CAPTURE(norma::to_string(c.b));
        const Tensor a = to(random_tensor(c.a, 1), dtype).set_requires_grad();
        const Tensor b = to(random_tensor(c.b, 2), dtype).set_requires_grad();
        std::string error = "none";
        try {
          const Tensor y = matmul(a, b);
          CHECK(max_difference(y, zeros(y.sizes())) == 0);
          const Tensors first = grad({y}, {a, b}, {ones_like(y)}, {.create_graph = true});
          CHECK(max_difference(first[0], zeros(c.a)) == 0);
          CHECK(max_difference(first[1], zeros(c.b)) == 0);
          CHECK(first[0].dtype() == dtype);
          const Tensors plain = grad({y}, {a, b}, {ones_like(y)}, {.retain_graph = true});
          CHECK(max_difference(plain[0], zeros(c.a)) == 0);
          CHECK(max_difference(plain[1], zeros(c.b)) == 0);
          const Tensors second = grad({sum(first[0] * first[0]) + sum(first[1] * first[1])}, {a, b});
          CHECK(max_difference(second[0], zeros(c.a)) == 0);
          CHECK(max_difference(second[1], zeros(c.b)) == 0);
        } catch (const Error& e) {
          error = e.what();
        }
        CHECK(error == "none");
      }
    }
  }
}

TEST_CASE("linear: without elements in any axis, results and gradients, also twice") {
  struct Case {
    Sizes x;
    int64_t outputs;
  };
  const std::vector<Case> cases = {{{0, 5}, 3}, {{4, 0}, 3}, {{4, 5}, 0},    {{0, 0}, 0}, {{2, 0, 5}, 3},
                                   {{0}, 3},    {{5}, 0},    {{2, 3, 0}, 4}, {{0, 5}, 0}, {{0, 2, 3, 5}, 2}};
  for (const std::string& name : matmul_implementations()) {
    const Forced forced(name);
    for (const DType dtype : kFloating) {
      for (const bool has_bias : {true, false}) {
        for (const Case& c : cases) {
          CAPTURE(name);
          CAPTURE(norma::to_string(dtype));
          CAPTURE(norma::to_string(c.x));
          CAPTURE(c.outputs);
          const Tensor x = to(random_tensor(c.x, 1), dtype).set_requires_grad();
          const Tensor weight = to(random_tensor({c.outputs, c.x.back()}, 2), dtype).set_requires_grad();
          const Tensor bias = has_bias ? to(random_tensor({c.outputs}, 3), dtype).set_requires_grad() : Tensor();
          std::string error = "none";
          try {
            const Tensor y = linear(x, weight, bias);
            // What is left without inputs is the bias.
            CHECK(max_difference(y, has_bias ? expand(bias, y.sizes()) : zeros(y.sizes())) == 0);
            const Tensors inputs = has_bias ? Tensors{x, weight, bias} : Tensors{x, weight};
            const auto rows = static_cast<double>(c.outputs == 0 ? 0 : y.numel() / c.outputs);
            for (const bool create_graph : {false, true}) {
              const Tensors first =
                  grad({y}, inputs, {ones_like(y)}, {.retain_graph = true, .create_graph = create_graph});
              CHECK(max_difference(first[0], zeros(c.x)) == 0);
              CHECK(max_difference(first[1], zeros(weight.sizes())) == 0);
              CHECK((!has_bias || max_difference(first[2], full({c.outputs}, rows)) == 0));
              if (create_graph) {
                const Tensors second = grad({sum(first[0] * first[0]) + sum(first[1] * first[1])}, {x, weight});
                CHECK(max_difference(second[0], zeros(c.x)) == 0);
                CHECK(max_difference(second[1], zeros(weight.sizes())) == 0);
              }
            }
          } catch (const Error& e) {
            error = e.what();
          }
          CHECK(error == "none");
        }
      }
    }
  }
}

TEST_CASE("conv2d: an empty batch has zero gradients, every implementation, also twice") {
  for (const std::string& name : conv2d_implementations()) {
    for (const DType dtype : kFloating) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        for (const int64_t groups : {int64_t{1}, int64_t{4}}) {
          CAPTURE(name);
          CAPTURE(groups);
          set_conv2d_implementation(name);
          const Tensor x = zeros({0, 4, 5, 6}, {.dtype = dtype, .format = format}).set_requires_grad();
          const Tensor weight = to(random_tensor({4, 4 / groups, 3, 2}, 1), dtype).set_requires_grad();
          const Tensor bias = to(random_tensor({4}, 2), dtype).set_requires_grad();
          std::string error = "none";
          try {
            const Tensor y = conv2d(x, weight, bias, {.groups = groups});
            CHECK(y.sizes() == Sizes{0, 4, 3, 5});
            for (const bool create_graph : {false, true}) {
              const Tensors first =
                  grad({y}, {x, weight, bias}, {ones_like(y)}, {.retain_graph = true, .create_graph = create_graph});
              CHECK(first[0].sizes() == x.sizes());
              CHECK(max_difference(first[1], zeros(weight.sizes())) == 0);
              CHECK(max_difference(first[2], zeros({4})) == 0);
              if (create_graph) {
                const Tensors second = grad({sum(first[0] * first[0]) + sum(first[1] * first[1])}, {x, weight});
                CHECK(max_difference(second[1], zeros(weight.sizes())) == 0);
              }
            }
          } catch (const Error& e) {
            error = e.what();
          }
          set_conv2d_implementation("");
          CHECK(error == "none");
        }
      }
    }
  }
}

}  // namespace norma::test
