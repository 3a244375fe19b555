#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

using namespace norma;
using namespace norma::test;

namespace {

/// f(x, weight, bias) checked once, and twice if asked; also with weight or bias alone, and neither.
void check_norm(const std::string& name, const Sizes& sizes, const Sizes& affine, bool twice,
                const std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>& f) {
  const Tensor x = random_tensor(sizes, 11);
  const Tensor weight = random_tensor(affine, 12);
  const Tensor bias = random_tensor(affine, 13);
  const std::string label = name + " " + to_string(sizes);
  check_gradients(
      label, [&](const Tensors& in) { return Tensors{f(in[0], in[1], in[2])}; }, {x, weight, bias}, twice);
  check_gradients(label + " weight only", [&](const Tensors& in) { return Tensors{f(in[0], in[1], {})}; }, {x, weight});
  check_gradients(label + " bias only", [&](const Tensors& in) { return Tensors{f(in[0], {}, in[1])}; }, {x, bias});
  check_gradients(
      label + " no affine", [&](const Tensors& in) { return Tensors{f(in[0], {}, {})}; }, {x}, twice);
}

}  // namespace

TEST_CASE("batch_norm: gradients, once and twice") {
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); };
  check_norm("batch_norm", {2, 3, 2, 4}, {3}, true, f);
  check_norm("batch_norm", {5, 33}, {33}, false, f);
  check_norm("batch_norm", {3, 2, 7}, {2}, true, f);
  check_norm("batch_norm", {2, 3, 2, 1, 2}, {3}, true, f);
  check_norm("batch_norm, C = 1", {2, 1, 3, 2}, {1}, true, f);
  check_norm("batch_norm, H = W = 1", {4, 5, 1, 1}, {5}, true, f);
  check_norm("batch_norm, N = 1", {1, 3, 4, 2}, {3}, true, f);
  check_norm("batch_norm, long runs", {2, 2, 1, 131}, {2}, false, f);
}

TEST_CASE("batch_norm: gradients in evaluation, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 4}, Sizes{4, 5, 1, 1}, Sizes{1, 2, 1, 130}, Sizes{5, 7}}) {
    const Sizes channels{sizes[1]};
    const Tensor mean = random_tensor(channels, 21);
    const Tensor var = add(abs(random_tensor(channels, 22)), 0.5);
    check_norm("batch_norm eval", sizes, channels, true, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
      return batch_norm(x, mean, var, w, b, {.training = false});
    });
  }
}

TEST_CASE("layer_norm: gradients, once and twice") {
  const auto last = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {x.size(x.rank() - 1)}, w, b);
  };
  check_norm("layer_norm", {2, 3, 5}, {5}, true, last);
  check_norm("layer_norm", {3, 31}, {31}, false, last);
  check_norm("layer_norm", {7}, {7}, true, last);
  const auto last_two = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {x.size(2), x.size(3)}, w, b);
  };
  check_norm("layer_norm over two axes", {2, 3, 4, 3}, {4, 3}, true, last_two);
}

TEST_CASE("layer_norm_2d: gradients, once and twice") {
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm_2d(x, w, b); };
  check_norm("layer_norm_2d", {2, 4, 2, 3}, {4}, true, f);
  check_norm("layer_norm_2d", {2, 3, 3, 6}, {3}, false, f);  // 18 pixels: no short rows
  check_norm("layer_norm_2d, N = 1", {1, 5, 2, 2}, {5}, true, f);
  check_norm("layer_norm_2d, H = W = 1", {3, 5, 1, 1}, {5}, true, f);
}

TEST_CASE("group_norm: gradients, once and twice") {
  const auto f = [](int64_t groups) {
    return [groups](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, groups, w, b); };
  };
  check_norm("group_norm 2", {2, 4, 3, 2}, {4}, true, f(2));
  check_norm("group_norm 1", {2, 3, 2, 2}, {3}, true, f(1));
  check_norm("group_norm C", {2, 3, 2, 3}, {3}, true, f(3));
  check_norm("group_norm 3", {2, 6, 3, 6}, {6}, false, f(3));  // 18 pixels: a weight for each run
  check_norm("group_norm, rank 2", {2, 8}, {8}, true, f(2));
  check_norm("group_norm, rank 3", {2, 4, 5}, {4}, true, f(2));
}

TEST_CASE("instance_norm: gradients, once and twice") {
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, w, b); };
  check_norm("instance_norm", {2, 3, 2, 4}, {3}, true, f);
  check_norm("instance_norm, rank 3", {2, 3, 5}, {3}, true, f);
}

TEST_CASE("normalize: gradients, affine axes apart from the reduced ones, once and twice") {
  struct Case {
    Sizes sizes;
    NormSpec spec;
    Sizes affine;
  };
  const Case cases[] = {{{2, 3, 4, 2}, {.reduce = {2}, .affine = {0, 3}}, {2, 2}},
                        {{2, 4, 3, 2}, {.reduce = {1, 3}, .affine = {2}, .groups = 2}, {3}},
                        {{2, 4, 3, 2}, {.reduce = {0, 1}, .affine = {1, 3}, .groups = 2}, {4, 2}},
                        {{2, 3, 2, 3}, {.reduce = {0, 2}, .affine = {0, 1, 2, 3}}, {2, 3, 2, 3}},
                        {{2, 3, 2, 2, 2}, {.reduce = {1, 3}, .affine = {1}}, {3}}};
  for (const Case& c : cases) {
    check_norm("normalize " + to_string(c.spec.reduce), c.sizes, c.affine, true,
               [&](const Tensor& x, const Tensor& w, const Tensor& b) { return normalize(x, c.spec, w, b); });
  }
}

TEST_CASE("normalize: sum_of_squares has the same gradients") {
  check_norm("group_norm sum_of_squares", {2, 4, 3, 2}, {4}, true,
             [](const Tensor& x, const Tensor& w, const Tensor& b) {
               return group_norm(x, 2, w, b, {.statistics = Statistics::sum_of_squares});
             });
}

TEST_CASE("norms: only the gradients that are wanted") {
  for (const Layout layout : kLayouts) {
    const Tensor values = random_tensor({2, 4, 3, 2}, 1);
    for (const bool want_x : {false, true}) {
      Tensor x = in_layout(values, layout);
      Tensor weight = random_tensor({4}, 2);
      (want_x ? x : weight).set_requires_grad();
      for (const Tensor& y : {batch_norm(x, {}, {}, weight, {}), group_norm(x, 2, weight), layer_norm_2d(x, weight)}) {
        const Tensors gradients = grad({y}, {want_x ? x : weight}, {random_tensor({2, 4, 3, 2}, 3)});
        CHECK(gradients[0].defined());
        CHECK(gradients[0].sizes() == (want_x ? x : weight).sizes());
      }
    }
  }
}

TEST_CASE("norms: the gradient of the input has its memory format") {
  Tensor x = in_layout(random_tensor({2, 4, 3, 5}, 1), Layout::channels_last);
  x.set_requires_grad();
  const Tensor dy = random_tensor({2, 4, 3, 5}, 2);  // contiguous
  for (const Tensor& y : {batch_norm(x, {}, {}), group_norm(x, 2), layer_norm_2d(x), instance_norm(x)}) {
    CHECK(grad({y}, {x}, {dy})[0].strides() == x.strides());
  }
}

TEST_CASE("norms: gradients of sets that fill many tiles and blocks, kernels against composed functions") {
  // Too many elements for finite differences; the composed functions are checked by those on small inputs.
  using Apply = std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b)>;
  const Apply norms[] = {[](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); },
                         [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm_2d(x, w, b); },
                         [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 4, w, b); },
                         [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, w, b); }};
  for (const Sizes& sizes :
       {Sizes{40, 36, 16, 16}, Sizes{130, 1100, 2, 1}, Sizes{3, 8, 70, 65}, Sizes{600, 20, 3, 3}}) {
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      for (size_t norm = 0; norm < std::size(norms); ++norm) {
        Tensor x = in_layout(random_tensor(sizes, 1), layout);
        Tensor weight = random_tensor({sizes[1]}, 2);
        Tensor bias = random_tensor({sizes[1]}, 3);
        for (Tensor* input : {&x, &weight, &bias}) {
          input->set_requires_grad();
        }
        const Tensor y = norms[norm](x, weight, bias);
        const Tensor dy = in_layout(random_tensor(sizes, 4), layout);
        const Tensors fused = grad({y}, {x, weight, bias}, {dy}, {.retain_graph = true});
        const Tensors composed = grad({y}, {x, weight, bias}, {dy}, {.create_graph = true});
        CAPTURE(norm);
        CAPTURE(to_string(sizes));
        CAPTURE(to_string(layout));
        for (size_t i = 0; i < fused.size(); ++i) {
          CHECK(max_difference(fused[i], composed[i]) <= 1e-9);
        }
      }
    }
  }
}

TEST_CASE("norms: differentiable gradients, and theirs, are exact to rounding at any offset") {
  using Apply = std::function<Tensor(const Tensor& x, const Tensor& w)>;
  const Apply norms[] = {
      [](const Tensor& x, const Tensor& w) { return batch_norm(x, {}, {}, w); },
      [](const Tensor& x, const Tensor& w) { return layer_norm_2d(x, w); },
      [](const Tensor& x, const Tensor& w) { return group_norm(x, 4, w, {}, {}, {.activation = Activation::silu}); }};
  const Tensor dy = random_tensor({4, 16, 5, 3}, 2, DType::float32);
  // The gradients of sum(y · dy), and those of the sum of their squares.
  const auto twice = [&](const Apply& norm, const Tensor& x, const Tensor& weight, DType dtype) {
    Tensors inputs{to(x, dtype).detach(), to(weight, dtype).detach()};
    for (Tensor& input : inputs) {
      input.set_requires_grad();
    }
    const Tensor y = norm(inputs[0], inputs[1]);
    Tensors results = grad({y}, inputs, {to(dy, dtype)}, {.create_graph = true});
    const Tensor squares = add(sum(mul(results[0], results[0])), sum(mul(results[1], results[1])));
    for (const Tensor& second : grad({squares}, inputs)) {
      results.push_back(second);
    }
    return results;
  };
  for (const double offset : {0.0, 1e2, 1e4, 1e6}) {
    for (size_t norm = 0; norm < std::size(norms); ++norm) {
      CAPTURE(offset);
      CAPTURE(norm);
      const Tensor x = to(add(random_tensor({4, 16, 5, 3}, 1), offset), DType::float32);
      const Tensor weight = random_tensor({16}, 3, DType::float32);
      const Tensors narrow = twice(norms[norm], x, weight, DType::float32);
      const Tensors wide = twice(norms[norm], x, weight, DType::float64);
      for (size_t i = 0; i < narrow.size(); ++i) {
        CAPTURE(i);
        const double scale = max_difference(wide[i], zeros_like(wide[i]));
        CHECK(max_difference(to(narrow[i], DType::float64), wide[i]) <= 4e-6 * scale);
      }
    }
  }
}
