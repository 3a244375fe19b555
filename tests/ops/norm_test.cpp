#include "core/tape.h"
#include "ops/norm_table.h"
#include "ops/shape/view.h"

// What each function of ops/norm/norm.h means, what it does to running statistics and what the tape keeps.
// norm_definition_test.cpp compares the numbers.

using namespace norma;
using namespace norma::test;

namespace {

/// A norm by name, as a spec and as the public function.
struct NamedNorm {
  std::string name;
  NormSpec spec;
  std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)> apply;
};

/// For x (N, C, 3, 5), C a multiple of 4. The last ones have no bias.
std::vector<NamedNorm> named_norms() {
  return {{"batch_norm",
           {.reduce = {0, 2, 3}, .affine = {1}},
           [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); }},
          {"layer_norm",
           {.reduce = {2, 3}, .affine = {2, 3}},
           [](const Tensor& x, const Tensor& w, const Tensor& b) {
             return layer_norm(x, {3, 5}, w, b);
           }},
          {"layer_norm_2d",
           {.reduce = {1}, .affine = {1}, .eps = 1e-6},
           [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm_2d(x, w, b); }},
          {"group_norm",
           {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4},
           [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 4, w, b); }},
          {"instance_norm",
           {.reduce = {2, 3}, .affine = {1}},
           [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, w, b); }},
          {"rms_norm_2d",
           {.reduce = {1}, .affine = {1}, .eps = 1e-6, .centring = Centring::none},
           [](const Tensor& x, const Tensor& w, const Tensor&) { return rms_norm_2d(x, w); }},
          {"simple_norm_2d",
           {.reduce = {1}, .affine = {1}, .eps = 1e-6, .centring = Centring::deviation, .correction = 1},
           [](const Tensor& x, const Tensor& w, const Tensor&) { return simple_norm_2d(x, w); }}};
}

}  // namespace

TEST_CASE("norms: each function is the normalize() of its axes") {
  const Tensor values = random_tensor({2, 8, 3, 5}, 1);
  for (const NamedNorm& norm : named_norms()) {
    CAPTURE(norm.name);
    const Tensor weight = random_tensor(affine_sizes(values, norm.spec), 2);
    const Tensor bias = norm.spec.centring == Centring::mean ? random_tensor(weight.sizes(), 3) : Tensor();
    for (const Layout layout : kLayouts) {
      const Tensor x = in_layout(values, layout);
      CHECK(max_difference(norm.apply(x, weight, bias), normalize(x, norm.spec, weight, bias)) == 0);
      CHECK(max_difference(norm.apply(x, {}, {}), normalize(x, norm.spec)) == 0);
    }
  }
}

TEST_CASE("norms: ambiguous channels_last strides are kept") {
  const Tensor x = to(random_tensor({2, 1, 4, 5}, 1), MemoryFormat::channels_last);
  CHECK(x.strides() == Strides{20, 1, 5, 1});
  CHECK(batch_norm(x, {}, {}).strides() == x.strides());
  CHECK(layer_norm_2d(x).strides() == x.strides());
  CHECK(group_norm(x, 1).strides() == x.strides());
}

TEST_CASE("ghost_batch_norm: a tensor of its own in the strides of the input, whether sub_batch divides N or not") {
  struct Case {
    Sizes sizes;
    Strides strides;
  };
  const Case cases[] = {
      {{6, 4, 4, 3}, {48, 12, 3, 1}}, {{6, 4, 4, 3}, {48, 12, 1, 4}},  // (N, C, W, H)
      {{6, 4, 4, 3}, {48, 1, 12, 4}}, {{6, 4, 4, 3}, {1, 72, 18, 6}},  // N innermost
      {{6, 1, 4, 3}, {12, 1, 3, 1}},  {{6, 4, 1, 1}, {4, 1, 4, 4}},
      {{6, 4, 3}, {12, 1, 4}},        {{6, 4, 2, 2, 3}, {48, 1, 24, 12, 4}}  // 5-d channels last
  };
  for (const auto& [sizes, strides] : cases) {
    Tensor x = empty_strided(sizes, strides, {.dtype = DType::float64});
    copy_into(random_tensor(sizes, 1), x);
    x.set_requires_grad();
    Tensor row_major = copy_of(x, MemoryFormat::contiguous).detach();
    row_major.set_requires_grad();
    const Tensor dy = random_tensor(sizes, 2);
    for (const int64_t sub_batch : {2, 3, 4, 6, 32}) {
      CAPTURE(to_string(sizes));
      CAPTURE(to_string(strides));
      CAPTURE(sub_batch);
      Tensor y = ghost_batch_norm(x, sub_batch, {}, {});
      CHECK(y.strides() == strides);
      const Tensor expected = relu(ghost_batch_norm(row_major, sub_batch, {}, {}));
      REQUIRE_NOTHROW(relu_(y));
      CHECK(max_difference(y, expected) <= 1e-13);
      x.set_grad({});
      row_major.set_grad({});
      y.backward(dy);
      expected.backward(dy);
      CHECK(max_difference(x.grad(), row_major.grad()) <= 1e-12);
    }
  }
}

TEST_CASE("norms: values and gradients of PyTorch") {
  // i = torch.arange(24, dtype=torch.float64)
  // x = (torch.sin(i * i) * 3 + 1).reshape(1, 4, 2, 3).requires_grad_()
  // w, b = torch.tensor([.5, -1.5, 2, .25]).double().requires_grad_(), torch.tensor([1., 2, -3, .5]).double()
  // F.batch_norm(x, None, None, w, b, True)                                      # y[:6], x.grad[:6], w.grad
  // F.group_norm(x, 2, w, b)
  // F.layer_norm(x.permute(0, 2, 3, 1), (4,), w, b, 1e-6).permute(0, 3, 1, 2)
  // y.backward(torch.cos(i).reshape(1, 4, 2, 3))
  std::vector<double> values, gradient;
  for (int i = 0; i < 24; ++i) {
    values.push_back(std::sin(static_cast<double>(i * i)) * 3 + 1);
    gradient.push_back(std::cos(static_cast<double>(i)));
  }
  struct Case {
    std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> apply;
    std::vector<double> y;
    std::vector<double> dx;
    std::vector<double> dweight;
  };
  const Case cases[] = {
      {[](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); },
       {0.987452507621305, 1.81521319313949, 0.242980786518551, 1.39285624229234, 0.704240072411742, 0.857257198016572},
       {0.342180059419716, 0.099729538303435, -0.0396913495168364, -0.355261067469448, -0.168673900070007,
        0.12171671933314},
       {1.01370269847547, -1.00376560997025, 1.21607817810946, -2.35492911455978}},
      {[](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 2, w, b); },
       {1.06487047047205, 1.66780880487046, 0.522599561281179, 1.36016530244203, 0.858579404764731, 0.970036607867886},
       {0.222057673666755, 0.0109707901839516, -0.025079649847687, -0.302846473146442, -0.138247408156827,
        0.066897132010183},
       {0.703472063292811, -1.17225891167889, 1.17383187776045, -2.1762613918745}},
      {[](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm_2d(x, w, b); },
       {1.66849220803514, 1.67006647864337, 0.527507294457195, 1.31063756449073, 1.13072901907135, 0.45134820207996},
       {-0.605477873194067, -0.105936777372317, -0.0642486821225216, -0.148388474880507, -0.112590252265553,
        0.212749548593113},
       {1.3570924015844, -1.55100182374674, 1.92672689177117, -2.35773601683573}}};
  const std::vector<double> dbias = {-0.235818462679834, -0.177203585788022, -0.104472772843281, -0.0234197187081616};
  for (const Case& c : cases) {
    for (const Layout layout : kLayouts) {
      Tensor x = in_layout(from_vector(values, {1, 4, 2, 3}), layout);
      Tensor w = from_vector<double>({0.5, -1.5, 2, 0.25}, {4});
      Tensor b = from_vector<double>({1, 2, -3, 0.5}, {4});
      for (Tensor* input : {&x, &w, &b}) {
        input->set_requires_grad();
      }
      const Tensor y = c.apply(x, w, b);
      y.backward(from_vector(gradient, {1, 4, 2, 3}));
      const auto first = [](const Tensor& t) {
        std::vector<double> v = t.to_vector<double>();
        v.resize(6);
        return from_vector(v, {6});
      };
      CHECK(distance(first(y), c.y) <= 1e-13);
      CHECK(distance(first(x.grad()), c.dx) <= 1e-13);
      CHECK(distance(w.grad(), c.dweight) <= 1e-13);
      CHECK(distance(b.grad(), dbias) <= 1e-13);
    }
  }
}

TEST_CASE("batch_norm: running statistics, three steps") {
  // m = torch.nn.BatchNorm1d(2).double()
  // for k in range(3): m(torch.tensor([[0., 1.], [2., 5.], [4. + k, -3.]], dtype=torch.float64))
  const Tensor mean = zeros({2}, {.dtype = DType::float64});
  const Tensor var = ones({2}, {.dtype = DType::float64});
  for (int k = 0; k < 3; ++k) {
    batch_norm(from_vector<double>({0, 1, 2, 5, 4.0 + k, -3}, {3, 2}), mean, var);
  }
  CHECK(distance(mean, {0.638666666666667, 0.271}) <= 1e-14);
  CHECK(distance(var, {2.55633333333333, 5.065}) <= 1e-14);
  CHECK(mean.version() > 0);

  // m = torch.nn.BatchNorm1d(1); m(torch.tensor([[0.], [2.]])); m.running_var: the unbiased 2, not the biased 1
  const Tensor var_of_one = ones({1});
  batch_norm(from_vector<float>({0, 2}, {2, 1}), zeros({1}), var_of_one);
  CHECK(std::abs(var_of_one.item<float>() - 1.1F) <= 1e-7F);

  // momentum 0 freezes, momentum 1 takes the batch
  batch_norm(from_vector<float>({0, 6}, {2, 1}), zeros({1}), var_of_one, {}, {}, {.momentum = 0});
  CHECK(std::abs(var_of_one.item<float>() - 1.1F) <= 1e-7F);
  batch_norm(from_vector<float>({0, 6}, {2, 1}), zeros({1}), var_of_one, {}, {}, {.momentum = 1});
  CHECK(std::abs(var_of_one.item<float>() - 18.0F) <= 1e-5F);
}

TEST_CASE("batch_norm: evaluation uses the running statistics and leaves them alone") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Sizes& sizes : {Sizes{2, 33, 4, 5}, Sizes{3, 1, 5, 2}, Sizes{1, 7, 20, 20}, Sizes{5, 31},
                               Sizes{2, 3, 2, 3, 2}, Sizes{40, 12, 2, 2}}) {
      const Tensor values = random_tensor(sizes, 1, dtype);
      const Sizes channels{sizes[1]};
      const Tensor mean = random_tensor(channels, 2, dtype);
      const Tensor var = abs(random_tensor(channels, 3, dtype));
      const Tensor weight = random_tensor(channels, 4, dtype);
      const Tensor bias = random_tensor(channels, 5, dtype);
      Sizes broadcast = Sizes::filled(sizes.size(), 1);
      broadcast[1] = sizes[1];
      const auto row = [&](const Tensor& t) { return reshape(to(t, DType::float64), broadcast); };
      const Tensor xhat = mul(sub(to(values, DType::float64), row(mean)), rsqrt(add(row(var), 1e-5)));
      const Tensor with_affine = add(mul(xhat, row(weight)), row(bias));
      const int64_t versions = mean.version() + var.version();
      for (const Layout layout : kLayouts) {
        const Tensor x = in_layout(values, layout);
        const double tolerance = dtype == DType::float32 ? 2e-4 : 1e-11;  // 1 / sqrt(var) goes up to about 100
        const BatchNormOptions eval{.training = false};
        CHECK(max_difference(to(batch_norm(x, mean, var, weight, bias, eval), DType::float64), with_affine) <=
              tolerance);
        CHECK(max_difference(to(batch_norm(x, mean, var, {}, {}, eval), DType::float64), xhat) <= tolerance);
        CHECK(batch_norm(x, mean, var, {}, {}, eval).strides() == preserved_strides(x.sizes(), x.strides()));
      }
      CHECK(mean.version() + var.version() == versions);
    }
  }
}

TEST_CASE("batch_norm: evaluation without running statistics takes those of the batch") {
  const Tensor x = random_tensor({3, 4, 5, 2}, 1);
  CHECK(max_difference(batch_norm(x, {}, {}, {}, {}, {.training = false}), batch_norm(x, {}, {})) == 0);
}

TEST_CASE("normalize: hands out mean and variance in the order of the sets' axes") {
  const Tensor values = random_tensor({2, 6, 3, 5}, 1);
  const NormSpec spec{.reduce = {1, 3}, .affine = {}, .groups = 3};
  const ReferenceNorm expected = reference_norm(values, spec);
  for (const Layout layout : kLayouts) {
    NormStatistics statistics;
    normalize(in_layout(values, layout), spec, {}, {}, &statistics);
    REQUIRE(statistics.mean.sizes() == Sizes{2, 3, 3});  // N, groups, H
    REQUIRE(statistics.var.sizes() == Sizes{2, 3, 3});
    const std::vector<double> mean = statistics.mean.to_vector<double>();
    const std::vector<double> var = statistics.var.to_vector<double>();
    for (size_t n = 0; n < 2; ++n) {
      for (size_t c = 0; c < 6; ++c) {
        for (size_t h = 0; h < 3; ++h) {
          const size_t element = ((n * 6 + c) * 3 + h) * 5;
          const size_t set = (n * 3 + c / 2) * 3 + h;
          CHECK(std::abs(mean[set] - expected.mean[element]) <= 1e-14);
          CHECK(std::abs(var[set] - expected.var[element]) <= 1e-14);
        }
      }
    }
  }
}

TEST_CASE("norms: the tape keeps the input and three numbers per set, nothing else") {
  Tensor leaf = random_tensor({4, 8, 5, 6}, 1, DType::float32);
  leaf.set_requires_grad();
  Tensor weight = ones({8});
  Tensor bias = zeros({8});
  weight.set_requires_grad();
  bias.set_requires_grad();
  const Tensor x = add(leaf, 1.0);
  const size_t input = 4 * 8 * 5 * 6 * sizeof(float);
  CHECK(Tape(batch_norm(x, {}, {}, weight, bias)).saved_bytes() - Tape(x).saved_bytes() ==
        input + 3 * 8 * sizeof(float));
  CHECK(Tape(group_norm(x, 2, weight, bias)).saved_bytes() - Tape(x).saved_bytes() ==
        input + 3 * 4 * 2 * sizeof(float));
  CHECK(Tape(layer_norm_2d(x, weight, bias)).saved_bytes() - Tape(x).saved_bytes() ==
        input + 3 * 4 * 30 * sizeof(float));
}

TEST_CASE("norm_act: keeps the input and the statistics for backward, and one bit per element behind a residual") {
  Tensor x = random_tensor({4, 16, 9, 7}, 1, DType::float32);
  x.set_requires_grad();
  Tensor base = random_tensor({4, 16, 9, 7}, 2, DType::float32);
  base.set_requires_grad();
  const Tensor residual = mul(base, 2.0);  // its memory is the graph's anyway: mul keeps `base`
  Tensor weight = random_tensor({16}, 3, DType::float32);
  weight.set_requires_grad();
  Tensor bias = random_tensor({16}, 4, DType::float32);
  bias.set_requires_grad();
  const size_t statistics = 3 * 16 * sizeof(float);
  const size_t elements = 4 * 16 * 9 * 7;
  const auto saved = [&](const Tensor& y) { return Tape(y).saved_bytes(); };

  const size_t plain = saved(batch_norm(x, {}, {}, weight, bias));
  CHECK(plain == statistics);  // x is a leaf and does not count
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::silu}) {
    CHECK(saved(batch_norm(x, {}, {}, weight, bias, {}, {.activation = f})) == plain);
  }
  // PyTorch keeps the output for relu.
  CHECK(saved(relu(batch_norm(x, {}, {}, weight, bias))) == plain + elements * sizeof(float));
  const size_t without = saved(add(batch_norm(x, {}, {}, weight, bias), residual));
  CHECK(saved(batch_norm(x, {}, {}, weight, bias, {}, {.activation = Activation::relu, .residual = residual})) ==
        without + elements / 8);
}

TEST_CASE("norm_act: evaluation with running statistics, and nothing saved without gradients") {
  const Tensor x = random_tensor({2, 3, 2, 3}, 1);
  const Tensor mean = random_tensor({3}, 2);
  const Tensor var = add(abs(random_tensor({3}, 3)), 0.5);
  const Tensor weight = random_tensor({3}, 4);
  const Tensor bias = random_tensor({3}, 5);
  const Tensor residual = random_tensor({2, 3, 2, 3}, 6);
  const BatchNormOptions eval{.training = false};
  const Tensor separate = relu(add(batch_norm(x, mean, var, weight, bias, eval), residual));
  const Tensor fused =
      batch_norm(x, mean, var, weight, bias, eval, {.activation = Activation::relu, .residual = residual});
  CHECK(max_difference(fused, separate) <= 1e-14);
  CHECK(!fused.requires_grad());

  for (const Activation f : {Activation::identity, Activation::relu, Activation::gelu, Activation::silu}) {
    for (const bool with_residual : {false, true}) {
      const ActOptions then{.activation = f};
      check_gradients(
          "batch_norm, evaluation, " + std::string(to_string(f)),
          [&](const Tensors& in) {
            ActOptions options = then;
            options.residual = with_residual ? in[3] : Tensor{};
            return Tensors{batch_norm(in[0], mean, var, in[1], in[2], eval, options)};
          },
          with_residual ? Tensors{x, weight, bias, residual} : Tensors{x, weight, bias}, /* twice= */ true);
    }
  }
}

TEST_CASE("norm_act: NaN reaches the output and the gradient") {
  const std::vector<double> values = {1, 2, NAN, 4, 5, 6, 7, 9};
  for (const Activation f : {Activation::identity, Activation::relu, Activation::gelu, Activation::silu}) {
    const Tensor y = norm_act(from_vector(values, {2, 4}), {.reduce = {1}}, {}, {}, {.activation = f});
    for (int64_t i = 0; i < 8; ++i) {
      CHECK(std::isnan(y.to_vector<double>()[static_cast<size_t>(i)]) == (i < 4));
    }
  }
}

TEST_CASE("norms: an empty batch gives an empty output, and leaves running statistics alone") {
  for (const NamedNorm& norm : named_norms()) {
    const SpecCase empty{norm.name, {0, 8, 3, 5}, norm.spec};
    const Tensors results = norm_results(norm.spec, operands_of(empty, DType::float32));
    CHECK(norm.apply(zeros(empty.sizes), {}, {}).sizes() == empty.sizes);
    CHECK(results[0].sizes() == empty.sizes);
    CHECK(results[1].sizes() == empty.sizes);
    for (const Tensor& of_parameter : {results[2], results[3]}) {
      CHECK(max_difference(of_parameter, zeros_like(of_parameter)) == 0);
    }
  }
  const Tensor mean = full({4}, 0.5);
  const Tensor var = full({4}, 2.0);
  batch_norm(zeros({0, 4, 3, 2}), mean, var);
  CHECK(max_difference(mean, full({4}, 0.5)) == 0);
  CHECK(max_difference(var, full({4}, 2.0)) == 0);
}
