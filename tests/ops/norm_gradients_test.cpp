#include "core/gradcheck.h"
#include "ops/norm_table.h"
#include "ops/third_derivatives.h"

#include <numeric>

// Derivatives of norms by finite differences, with create_graph and by normalize_backward().

using namespace norma;
using namespace norma::test;

namespace {

using Apply = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;

struct GradientCase {
  std::string name;
  Sizes sizes;
  Sizes affine;
  Apply f;
  bool twice = true;
  bool has_bias = true;
};

/// Checks f once, and twice if asked; also with weight or bias alone, and with neither.
void check_case(const GradientCase& c) {
  const Tensor x = random_tensor(c.sizes, 11);
  const Tensor weight = random_tensor(c.affine, 12);
  const Tensor bias = random_tensor(c.affine, 13);
  const std::string label = c.name + " " + to_string(c.sizes);
  check_gradients(
      label + " weight only", [&](const Tensors& in) { return Tensors{c.f(in[0], in[1], {})}; }, {x, weight},
      c.twice && !c.has_bias);
  check_gradients(
      label + " no affine", [&](const Tensors& in) { return Tensors{c.f(in[0], {}, {})}; }, {x}, c.twice);
  if (c.has_bias) {
    check_gradients(
        label, [&](const Tensors& in) { return Tensors{c.f(in[0], in[1], in[2])}; }, {x, weight, bias}, c.twice);
    check_gradients(label + " bias only", [&](const Tensors& in) { return Tensors{c.f(in[0], {}, in[1])}; }, {x, bias});
  }
}

void check_cases(const std::vector<GradientCase>& cases) {
  for (const GradientCase& c : cases) {
    check_case(c);
  }
}

Apply of_spec(const NormSpec& spec) {
  return [spec](const Tensor& x, const Tensor& w, const Tensor& b) { return normalize(x, spec, w, b); };
}

Apply group(int64_t groups) {
  return [groups](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, groups, w, b); };
}

/// Specs of image norms whose dx have different formulas.
std::vector<NormSpec> backward_specs() {
  return {{.reduce = {0, 2, 3}, .affine = {1}},
          {.reduce = {1}, .affine = {1}},
          {.reduce = {1, 2, 3}, .affine = {1}, .groups = 2},
          {.reduce = {2, 3}, .affine = {1}, .correction = 1},
          {.reduce = {1, 2, 3}, .affine = {1, 2, 3}, .centring = Centring::none},
          {.reduce = {1}, .affine = {1, 3}, .centring = Centring::deviation}};
}

}  // namespace

TEST_CASE("norms: gradients of each function and choice of axes, once and twice" *
          doctest::test_suite("slow-emulated")) {
  const Apply batch = [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); };
  const Apply last = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {x.size(x.rank() - 1)}, w, b);
  };
  const Apply last_two = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {x.size(2), x.size(3)}, w, b);
  };
  const Apply layer2d = [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm_2d(x, w, b); };
  const Apply instance = [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, w, b); };
  const Apply lossy = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return group_norm(x, 2, w, b, {.statistics = Statistics::sum_of_squares});
  };
  check_cases({{"batch_norm", {2, 3, 2, 4}, {3}, batch},
               {"batch_norm", {5, 33}, {33}, batch, /* twice= */ false},
               {"batch_norm", {3, 2, 7}, {2}, batch},
               {"batch_norm", {2, 3, 2, 1, 2}, {3}, batch},
               {"batch_norm, C = 1", {2, 1, 3, 2}, {1}, batch},
               {"batch_norm, H = W = 1", {4, 5, 1, 1}, {5}, batch},
               {"batch_norm, N = 1", {1, 3, 4, 2}, {3}, batch},
               {"batch_norm, long runs", {2, 2, 1, 131}, {2}, batch, /* twice= */ false},
               {"layer_norm", {2, 3, 5}, {5}, last},
               {"layer_norm", {3, 31}, {31}, last, /* twice= */ false},
               {"layer_norm", {7}, {7}, last},
               {"layer_norm over two axes", {2, 3, 4, 3}, {4, 3}, last_two},
               {"layer_norm_2d", {2, 4, 2, 3}, {4}, layer2d},
               {"layer_norm_2d, no short rows", {2, 3, 3, 6}, {3}, layer2d, /* twice= */ false},
               {"layer_norm_2d, N = 1", {1, 5, 2, 2}, {5}, layer2d},
               {"layer_norm_2d, H = W = 1", {3, 5, 1, 1}, {5}, layer2d},
               {"group_norm 2", {2, 4, 3, 2}, {4}, group(2)},
               {"group_norm 1", {2, 3, 2, 2}, {3}, group(1)},
               {"group_norm C", {2, 3, 2, 3}, {3}, group(3)},
               {"group_norm, a weight for each run", {2, 6, 3, 6}, {6}, group(3), /* twice= */ false},
               {"group_norm, rank 2", {2, 8}, {8}, group(2)},
               {"group_norm, rank 3", {2, 4, 5}, {4}, group(2)},
               {"group_norm, sum_of_squares", {2, 4, 3, 2}, {4}, lossy},
               {"instance_norm", {2, 3, 2, 4}, {3}, instance},
               {"instance_norm, rank 3", {2, 3, 5}, {3}, instance}});
  // Affine axes apart from the reduced ones.
  check_cases({{"normalize", {2, 3, 4, 2}, {2, 2}, of_spec({.reduce = {2}, .affine = {0, 3}})},
               {"normalize", {2, 4, 3, 2}, {3}, of_spec({.reduce = {1, 3}, .affine = {2}, .groups = 2})},
               {"normalize", {2, 4, 3, 2}, {4, 2}, of_spec({.reduce = {0, 1}, .affine = {1, 3}, .groups = 2})},
               {"normalize", {2, 3, 2, 3}, {2, 3, 2, 3}, of_spec({.reduce = {0, 2}, .affine = {0, 1, 2, 3}})},
               {"normalize", {2, 3, 2, 2, 2}, {3}, of_spec({.reduce = {1, 3}, .affine = {1}})}});
}

TEST_CASE("norms: gradients of all that normalize() centres otherwise, once and twice") {
  const auto check = [](const std::string& name, const Sizes& sizes, const Sizes& affine, const Apply& f) {
    check_case({name, sizes, affine, f, /* twice= */ true, /* has_bias= */ false});
  };
  const Sizes rows{3, 2, 4};
  const Sizes image{2, 4, 3, 2};
  check("rms_norm", rows, {4}, [](const Tensor& x, const Tensor& w, const Tensor&) { return rms_norm(x, {4}, w); });
  check("rms_norm, two axes", rows, {2, 4}, [](const Tensor& x, const Tensor& w, const Tensor&) {
    return rms_norm(x, {2, 4}, w);
  });
  check("rms_norm_2d", image, {4}, [](const Tensor& x, const Tensor& w, const Tensor&) { return rms_norm_2d(x, w); });
  check("simple_norm", rows, {4},
        [](const Tensor& x, const Tensor& w, const Tensor&) { return simple_norm(x, {4}, w); });
  check("simple_norm, two axes", rows, {2, 4}, [](const Tensor& x, const Tensor& w, const Tensor&) {
    return simple_norm(x, {2, 4}, w);
  });
  check("simple_norm_2d", image, {4},
        [](const Tensor& x, const Tensor& w, const Tensor&) { return simple_norm_2d(x, w); });
  check("correction and groups", image, {4}, of_spec({.reduce = {1, 3}, .affine = {1}, .groups = 2, .correction = 1}));
  check("deviation and groups", image, {4},
        of_spec({.reduce = {0, 1}, .affine = {1}, .groups = 2, .centring = Centring::deviation}));
}

TEST_CASE("norms: gradients of batch norm in evaluation and of its relatives, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 4}, Sizes{4, 5, 1, 1}, Sizes{1, 2, 1, 130}, Sizes{5, 7}}) {
    const Tensor mean = random_tensor({sizes[1]}, 21);
    const Tensor var = add(abs(random_tensor({sizes[1]}, 22)), 0.5);
    check_case(
        {"batch_norm in evaluation", sizes, mean.sizes(), [&](const Tensor& x, const Tensor& w, const Tensor& b) {
           return batch_norm(x, mean, var, w, b, {.training = false});
         }});
  }
  const Tensor mean = random_tensor({3}, 4);
  const Tensor var = add(abs(random_tensor({3}, 5)), 0.5);
  // With bounds that hold r and d fast, finite differences see them as constants: d = -d_max, r = 1 / r_max.
  const Tensor far_mean = full({3}, 20.0, {.dtype = DType::float64});
  const Tensor far_var = full({3}, 100.0, {.dtype = DType::float64});
  const Sizes image{5, 3, 2, 2};
  for (const int64_t sub_batch : {1, 2, 5}) {  // the last of 2 is one image
    check_case({fmt::format("ghost_batch_norm {}", sub_batch),
                image,
                {3},
                [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                  return ghost_batch_norm(x, sub_batch, {}, {}, w, b);
                }});
  }
  check_case({"ghost_batch_norm in evaluation", image, {3}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                return ghost_batch_norm(x, 2, mean, var, w, b, {.training = false});
              }});
  check_case({"batch_renorm in evaluation", image, {3}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                return batch_renorm(x, mean, var, w, b, {.batch_norm = {.training = false}});
              }});
  check_case({"instance_norm in evaluation", image, {3}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                return instance_norm(x, mean, var, w, b, TrackedInstanceNormOptions{.training = false});
              }});
  // Each call changes the running statistics, so each gets its own.
  check_case(
      {"instance_norm with running statistics", image, {3}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
         return instance_norm(x, copy_of(mean), copy_of(var), w, b, TrackedInstanceNormOptions{});
       }});
  check_case(
      {"batch_renorm, r and d are constants", image, {3}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
         return batch_renorm(x, copy_of(far_mean), copy_of(far_var), w, b, {.r_max = 1.5, .d_max = 0.5});
       }});
}

TEST_CASE("norm_act: gradients of each activation, with and without a residual, once and twice") {
  const std::pair<std::string, NormSpec> norms[] = {
      {"batch", {.reduce = {0, 2, 3}, .affine = {1}}},
      {"layer 2d", {.reduce = {1}, .affine = {1}, .eps = 1e-6}},
      {"group", {.reduce = {1, 2, 3}, .affine = {1}, .groups = 2}},
      {"rms 2d", {.reduce = {1}, .affine = {1}, .centring = Centring::none}},
      {"simple", {.reduce = {2, 3}, .affine = {1}, .centring = Centring::deviation, .correction = 1}}};
  for (const auto& [name, spec] : norms) {
    for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu, Activation::silu}) {
      for (const bool with_residual : {false, true}) {
        Tensors inputs{random_tensor({1, 4, 2, 2}, 11), random_tensor({4}, 12), random_tensor({4}, 13)};
        if (with_residual) {
          inputs.push_back(random_tensor({1, 4, 2, 2}, 14));
        }
        check_gradients(
            fmt::format("norm_act {} {}{}", name, to_string(activation), with_residual ? " with a residual" : ""),
            [&, &spec = spec](const Tensors& in) {
              return Tensors{norm_act(in[0], spec, in[1], in[2],
                                      {.activation = activation, .residual = with_residual ? in[3] : Tensor{}})};
            },
            inputs, /* twice= */ true);
      }
    }
  }
}

TEST_CASE("norms: third derivatives") {
  // PyTorch's batch norm is wrong from the third on, or refuses.
  const Sizes sizes{3, 4, 2};
  const auto check = [&](const std::string& name, const Sizes& affine, const Apply& f) {
    check_third_derivative(name, [&](const Tensors& in) { return f(in[0], in[1], in[2]); },
                           {random_tensor(sizes, 31), random_tensor(affine, 33), random_tensor(affine, 34)});
  };
  check("batch_norm", {4},
        [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); });
  check("group_norm", {4}, group(2));
  check("layer_norm", {4, 2}, [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {4, 2}, w, b);
  });
  check("group_norm and silu", {4}, [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return group_norm(x, 2, w, b, {}, {.activation = Activation::silu});
  });
  check_third_derivative("rms_norm",
                         [](const Tensors& in) {
                           return rms_norm(in[0], {4, 2}, in[1]);
                         },
                         {random_tensor(sizes, 31), random_tensor({4, 2}, 35)});
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

TEST_CASE("norm_act: each gradient alone has the bits that it has among all of them") {
  const DefaultDeviceGuard on_cpu(kCpu);  // CUDA has kernels of its own for some, which round otherwise
  const Sizes sizes{2, 4, 3, 5};
  for (const Layout layout : kLayouts) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const auto in_dtype = [&](uint64_t seed) {
        return in_layout(to(random_tensor(sizes, seed, DType::float32), dtype), layout);
      };
      const Tensor dy = in_dtype(4);
      for (const NormSpec& spec : backward_specs()) {
        for (const Activation activation : {Activation::identity, Activation::relu, Activation::silu}) {
          for (const bool with_residual : {false, true}) {
            CAPTURE(to_string(layout));
            CAPTURE(to_string(dtype));
            CAPTURE(to_string(spec.reduce));
            CAPTURE(to_string(activation));
            CAPTURE(with_residual);
            const Tensor weight =
                spec.affine.size() == 1 ? random_tensor({4}, 2, DType::float32) : Tensor{};  // of the channels
            Tensors inputs{in_dtype(1)};
            if (weight.defined()) {
              inputs.push_back(weight);
            }
            if (with_residual) {
              inputs.push_back(in_dtype(3));
            }
            const auto gradients = [&](const std::vector<size_t>& wanted) {
              Tensors leaves;
              for (size_t i = 0; i < inputs.size(); ++i) {
                leaves.push_back(inputs[i].detach());
              }
              Tensors of;
              for (const size_t i : wanted) {
                leaves[i].set_requires_grad();
                of.push_back(leaves[i]);
              }
              const Tensor y =
                  norm_act(leaves[0], spec, weight.defined() ? leaves[1] : Tensor{}, {},
                           {.activation = activation, .residual = with_residual ? leaves.back() : Tensor{}});
              return grad({y}, of, {dy});
            };
            std::vector<size_t> every(inputs.size());
            std::iota(every.begin(), every.end(), size_t{0});
            const Tensors all = gradients(every);
            for (const size_t i : every) {
              CAPTURE(i);
              CHECK(max_difference(gradients({i})[0], all[i]) == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("norms: the gradient of the input has its memory format") {
  const Tensor x = in_layout(random_tensor({2, 4, 3, 5}, 1), Layout::channels_last).set_requires_grad();
  const Tensor dy = random_tensor({2, 4, 3, 5}, 2);  // contiguous
  for (const Tensor& y : {batch_norm(x, {}, {}), group_norm(x, 2), layer_norm_2d(x), instance_norm(x)}) {
    CHECK(grad({y}, {x}, {dy})[0].strides() == x.strides());
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
        const double scale = largest_number(wide[i]);
        CHECK(max_difference(to(narrow[i], DType::float64), wide[i]) <= 4e-6 * scale);
      }
    }
  }
}

TEST_CASE("normalize: with create_graph the first gradient is that of the kernels, whatever the range") {
  for (const double scale : {1.0, 1e20, 1e30}) {
    for (const NormSpec& spec : backward_specs()) {
      for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu}) {
        for (const bool with_residual : {false, true}) {
          CAPTURE(scale);
          CAPTURE(to_string(activation));
          NormOperands of = operands_of({"", {3, 4, 5, 3}, spec}, DType::float32, with_residual);
          of.x = mul(of.x, scale);
          const Tensors plain = norm_results(spec, of, activation);
          const Tensors recorded = norm_results(spec, of, activation, /* create_graph= */ true);
          for (size_t i = 0; i < plain.size(); ++i) {
            CHECK((!plain[i].defined() || max_difference(plain[i], recorded[i]) == 0));
          }
        }
      }
    }
  }
}

TEST_CASE("normalize_backward: the gradients of normalize, in the order input, weight, bias") {
  for (const NormSpec& spec : backward_specs()) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(layout));
        NormOperands of = in_layout(operands_of({"", {3, 4, 5, 3}, spec}, dtype), layout);
        of.weight = to(of.weight, dtype);
        const Tensors apart = normalize_backward(of.dy, of.x, spec, of.weight, of.bias);
        const Tensors expected = norm_results(spec, of);
        REQUIRE(apart.size() == 3);
        for (size_t i = 0; i < 3; ++i) {
          CHECK(max_difference(apart[i], expected[i + 1]) == 0);
          CHECK(apart[i].dtype() == expected[i + 1].dtype());
        }
        CHECK(apart[0].strides() == expected[1].strides());
        const Tensors bare = normalize_backward(of.dy, of.x, spec);
        of.weight = of.bias = Tensor();
        CHECK(max_difference(bare[0], norm_results(spec, of)[1]) == 0);
        CHECK(!bare[1].defined());
        CHECK(!bare[2].defined());
      }
    }
  }
}

TEST_CASE("normalize_backward: finite differences") {
  for (const NormSpec& spec : backward_specs()) {
    const SpecCase c{"", {2, 4, 3, 1}, spec};
    const NormOperands of = operands_of(c, DType::float64);
    check_gradients(
        "normalize_backward",
        [spec](const Tensors& in) { return normalize_backward(in[0], in[1], spec, in[2], in[3]); },
        {of.dy, of.x, of.weight, of.bias}, /* twice= */ true);
  }
}
