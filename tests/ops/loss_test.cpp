#include "ops/loss/loss.h"

#include "core/parallel.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "tests/support.h"

#include <limits>

using namespace norma;
using namespace norma::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// x = torch.tensor([[0.5, -1.2, 3.0, 0.1], [2.0, 0.3, -0.7, 1.1], [-0.4, 0.9, 0.6, -2.5]], dtype=torch.float64)
// p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.0, 0.2, 0.1], [0.25, 0.25, 0.4, 0.1]], dtype=torch.float64)
// t = torch.tensor([2, 0, 3])
Tensor example_logits() {
  return from_vector<double>({0.5, -1.2, 3.0, 0.1, 2.0, 0.3, -0.7, 1.1, -0.4, 0.9, 0.6, -2.5}, {3, 4});
}
Tensor example_probabilities() {
  return from_vector<double>({0.1, 0.2, 0.3, 0.4, 0.7, 0.0, 0.2, 0.1, 0.25, 0.25, 0.4, 0.1}, {3, 4});
}
Tensor example_classes() {
  return from_vector<int64_t>({2, 0, 3}, {3});
}

}  // namespace

TEST_CASE("softmax and log_softmax: values are those of PyTorch") {
  // F.softmax(x, 1), F.log_softmax(x, 0)   (PyTorch 1.13)
  const Tensor softmax_1 = from_vector<double>(
      {0.071247919627, 0.013015821039, 0.86797735057, 0.047758908764, 0.603697515726, 0.110285589635, 0.040571801084,
       0.245445093555, 0.133155173055, 0.488585832768, 0.361953287281, 0.016305706896},
      {3, 4});
  const Tensor log_softmax_0 = from_vector<double>(
      {-1.77296032239, -2.613582658259, -0.109250272519, -1.333040041672, -0.27296032239, -1.113582658259,
       -3.809250272519, -0.333040041672, -2.67296032239, -0.513582658259, -2.509250272519, -3.933040041672},
      {3, 4});
  for (const Layout layout : kLayouts) {
    const Tensor x = in_layout(example_logits(), layout);
    CHECK(max_difference(softmax(x, 1), softmax_1) <= 1e-12);
    CHECK(max_difference(log_softmax(x, 0), log_softmax_0) <= 1e-12);
    // float32: the inputs and the results are rounded
    CHECK(max_difference(softmax(to(x, DType::float32), -1), to(softmax_1, DType::float32)) <= 3e-7);
    CHECK(max_difference(log_softmax(to(x, DType::float32), -2), to(log_softmax_0, DType::float32)) <= 1e-6);
  }
}

TEST_CASE("softmax and log_softmax: every axis against the formula, sizes around the vector width, every layout") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{31, 2, 33, 1}, Sizes{3, 32, 1, 7}}) {
    const Tensor x = mul(random_tensor(sizes, 1), 3);
    for (int64_t axis = 0; axis < 4; ++axis) {
      const Tensor e = exp(x);
      const Tensor expected = div(e, sum(e, {axis}, {.keepdim = true}));
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(sizes));
        CAPTURE(axis);
        CAPTURE(to_string(layout));
        const Tensor in = in_layout(x, layout);
        const Tensor y = softmax(in, axis);
        CHECK(max_difference(y, expected) <= 1e-13);
        CHECK(max_difference(log_softmax(in, axis), log(expected)) <= 1e-12);
        CHECK(max_difference(softmax(to(in, DType::float32), axis), to(expected, DType::float32)) <= 1e-6);
        CHECK(y.suggest_memory_format() == in.suggest_memory_format());
      }
    }
  }
}

TEST_CASE("softmax and log_softmax: large, infinite and NaN inputs") {
  const Tensor large = from_vector<float>({1e30F, 1e30F, -1e30F}, {3});
  CHECK(softmax(large, 0).to_vector<double>() == std::vector<double>{0.5, 0.5, 0});
  const Tensor masked = from_vector<double>({1, -kInfinity, 1}, {3});
  CHECK(max_difference(softmax(masked, 0), from_vector<double>({0.5, 0, 0.5}, {3})) <= 1e-15);
  CHECK(log_softmax(masked, 0).to_vector<double>()[1] == -kInfinity);
  for (const double value : softmax(from_vector<double>({1, std::nan(""), 2}, {3}), 0).to_vector<double>()) {
    CHECK(std::isnan(value));
  }
  CHECK(softmax(zeros({2, 0}), 1).numel() == 0);
  CHECK(softmax(full({1}, 3), 0).item<float>() == 1);
}

TEST_CASE("softmax, log_softmax and cross_entropy: exp(-inf) is 0 in every place of a row, every dtype") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const int64_t length : {2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 67}) {
      // All but one are -inf, or so far below that the exponential is no number; that one stands anywhere.
      for (const double below : {-kInfinity, -50'000.0}) {
        for (const int64_t top : {int64_t{0}, length / 2, length - 1}) {
          CAPTURE(to_string(dtype));
          CAPTURE(length);
          CAPTURE(below);
          Tensor x = full({3, length}, below, {.dtype = dtype});
          fill_(select(x, 1, top), 2);
          x.set_requires_grad();
          Tensor expected = zeros({3, length});
          fill_(select(expected, 1, top), 1);
          CHECK(softmax(x, 1).to_vector<double>() == expected.to_vector<double>());
          for (const Layout layout : {Layout::contiguous, Layout::strided}) {
            CHECK(softmax(in_layout(x.detach(), layout), 1).to_vector<double>() == expected.to_vector<double>());
          }
          const Tensor dy = to(random_tensor({3, length}, 5), dtype);
          const Tensor flat = ones_like(dy);
          // The gradient of log_softmax for sum(y) is 1 - length * softmax(x): 1 wherever softmax is 0.
          const std::vector<double> of_log = grad({log_softmax(x, 1)}, {x}, {flat})[0].to_vector<double>();
          const Tensor target = full({3}, static_cast<double>(top), {.dtype = DType::int64});
          const std::vector<double> of_loss = grad({cross_entropy(x, target)}, {x})[0].to_vector<double>();
          const std::vector<double> of_soft = grad({softmax(x, 1)}, {x}, {dy})[0].to_vector<double>();
          bool right = true;
          for (int64_t i = 0; i < 3 * length; ++i) {
            const bool is_top = i % length == top;
            const auto at = static_cast<size_t>(i);
            right = right && of_log[at] == (is_top ? 1.0 - static_cast<double>(length) : 1.0);
            right = right && of_loss[at] == 0 && of_soft[at] == 0;
          }
          CHECK(right);
          CHECK(cross_entropy(x, target).item<float>() == 0);
        }
      }
    }
  }
}

TEST_CASE("softmax: an element's bits do not depend on where in the row it stands") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const int64_t length : {2, 9, 16, 17, 35}) {
      Tensor x = full({length}, -0.7, {.dtype = dtype});
      fill_(narrow(x, 0, 0, 1), 0.3);
      const std::vector<double> y = softmax(x, 0).to_vector<double>();
      for (size_t i = 1; i < y.size(); ++i) {
        CHECK(y[i] == y[1]);
      }
    }
  }
}

TEST_CASE("softmax and log_softmax: gradients, once and twice, every axis") {
  for (int64_t axis = 0; axis < 4; ++axis) {
    const Tensors inputs = {random_tensor({2, 3, 4, 2}, 1)};
    check_gradients(
        fmt::format("softmax axis {}", axis), [&](const Tensors& in) { return Tensors{softmax(in[0], axis)}; }, inputs,
        true);
    check_gradients(
        fmt::format("log_softmax axis {}", axis), [&](const Tensors& in) { return Tensors{log_softmax(in[0], axis)}; },
        inputs, true);
  }
}

TEST_CASE("softmax: error texts") {
  CHECK_THROWS_WITH_AS(softmax(arange(3), 0), "softmax: x: expected a floating dtype, got int64", Error);
  CHECK_THROWS_WITH_AS(log_softmax(Tensor(), 0), "log_softmax: x: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(softmax(zeros({2, 3}), 2), "softmax: axis: expected a value in [-2, 2), got 2", Error);
}

TEST_CASE("cross_entropy: values and gradients are those of PyTorch") {
  // l = F.cross_entropy(x, t or p, label_smoothing=smoothing, reduction=reduction); the gradients are those of l, or
  // of (l * torch.tensor([1., -2., 0.5])).sum() where l is a vector   (PyTorch 1.13)
  struct Case {
    bool class_numbers;
    double smoothing;
    Reduction reduction;
    std::vector<double> loss, dx, dp;
  };
  const std::vector<Case> cases = {
      {true,
       0,
       Reduction::mean,
       {1.5875039276288512},
       {0.023749306542, 0.004338607013, -0.04400754981, 0.015919636255, -0.132100828091, 0.036761863212, 0.013523933695,
        0.081815031185, 0.044385057685, 0.162861944256, 0.12065109576, -0.327898097701},
       {}},
      {true,
       0.1,
       Reduction::sum,
       {4.920011782886554},
       {0.046247919627, -0.011984178961, -0.05702264943, 0.022758908764, -0.321302484274, 0.085285589635,
        0.015571801084, 0.220445093555, 0.108155173055, 0.463585832768, 0.336953287281, -0.908694293104},
       {}},
      {true,
       0.1,
       Reduction::none,
       {0.3815896584760117, 0.6371820082683122, 3.9012401161422305},
       {0.046247919627, -0.011984178961, -0.05702264943, 0.022758908764, 0.642604968548, -0.170571179269,
        -0.031143602168, -0.44089018711, 0.054077586528, 0.231792916384, 0.168476643641, -0.454347146552},
       {}},
      {false,
       0,
       Reduction::mean,
       {1.675837260962185},
       {-0.009584026791, -0.062328059654, 0.189325783523, -0.117413697079, -0.032100828091, 0.036761863212,
        -0.053142732972, 0.048481697852, -0.038948275648, 0.079528610923, -0.012682237573, -0.027898097701},
       {0.880529886159, 1.447196552825, 0.047196552825, 1.013863219492, 0.168227336089, 0.734894002756, 1.068227336089,
        0.468227336089, 0.672080038714, 0.238746705381, 0.338746705381, 1.372080038714}},
      {false,
       0.1,
       Reduction::sum,
       {5.1585117828865545},
       {-0.043752080373, -0.191984178961, 0.57297735057, -0.337241091236, -0.051302484274, 0.085285589635,
        -0.164428198916, 0.130445093555, -0.116844826945, 0.238585832768, -0.023046712719, -0.098694293104},
       {2.377430692628, 3.907430692628, 0.127430692628, 2.737430692628, 0.454213807441, 1.984213807441, 2.884213807441,
        1.264213807441, 1.814616104528, 0.644616104528, 0.914616104528, 3.704616104528}},
      {false,
       0.1,
       Reduction::none,
       {2.406589658476012, 1.2041820082683123, 1.5477401161422306},
       {-0.043752080373, -0.191984178961, 0.57297735057, -0.337241091236, 0.102604968548, -0.170571179269,
        0.328856397832, -0.26089018711, -0.058422413472, 0.119292916384, -0.011523356359, -0.049347146552},
       {2.377430692628, 3.907430692628, 0.127430692628, 2.737430692628, -0.908427614883, -3.968427614883,
        -5.768427614883, -2.528427614883, 0.907308052264, 0.322308052264, 0.457308052264, 1.852308052264}},
  };
  for (const Case& c : cases) {
    for (const Layout layout : kLayouts) {
      // The fused backward pass, and the one made of differentiable ops.
      for (const bool create_graph : {false, true}) {
        CAPTURE(c.class_numbers);
        CAPTURE(c.smoothing);
        CAPTURE(to_string(layout));
        CAPTURE(create_graph);
        const Tensor x = in_layout(example_logits(), layout).set_requires_grad();
        Tensor target = in_layout(c.class_numbers ? example_classes() : example_probabilities(), layout);
        Tensors inputs = {x};
        if (!c.class_numbers) {
          inputs.push_back(target.set_requires_grad());
        }
        const Tensor loss = cross_entropy(x, target, {.label_smoothing = c.smoothing, .reduction = c.reduction});
        CHECK(max_difference(loss, from_vector(c.loss, loss.sizes())) <= 1e-13);
        Tensors weights;
        if (c.reduction == Reduction::none) {
          weights = {from_vector<double>({1, -2, 0.5}, {3})};
        }
        const Tensors gradients = grad({loss}, inputs, weights, {.create_graph = create_graph});
        CHECK(max_difference(gradients[0], from_vector(c.dx, {3, 4})) <= 1e-12);
        if (!c.class_numbers) {
          CHECK(max_difference(gradients[1], from_vector(c.dp, {3, 4})) <= 1e-12);
        }
      }
    }
  }
}

TEST_CASE("cross_entropy: float32 stays near float64, loss and gradient") {
  const Tensor x = mul(random_tensor({130, 1000}, 1), 10);
  Generator generator(2);
  const Tensor classes = randint(0, 1000, {130}, {.dtype = DType::int64}, generator);
  for (const double smoothing : {0.0, 0.1}) {
    const Tensor wide = clone(x).set_requires_grad();
    const Tensor narrow_logits = to(x, DType::float32).set_requires_grad();
    const Tensor rounded = to(narrow_logits.detach(), DType::float64).set_requires_grad();
    const Tensor exact = cross_entropy(rounded, classes, {.label_smoothing = smoothing});
    const Tensor loss = cross_entropy(narrow_logits, classes, {.label_smoothing = smoothing});
    // one rounding of a loss near 50; gradients below 1/130 with some roundings each
    CHECK(std::abs(static_cast<double>(loss.item<float>()) - exact.item<double>()) <= 4e-6);
    exact.backward();
    loss.backward();
    CHECK(max_difference(narrow_logits.grad(), to(rounded.grad(), DType::float32)) <= 5e-9);
  }
}

TEST_CASE("cross_entropy: infinite logits of other classes") {
  const Tensor x = from_vector<double>({0, -kInfinity, 0}, {1, 3}).set_requires_grad();
  const Tensor loss = cross_entropy(x, from_vector<int64_t>({2}, {1}));
  CHECK(loss.item<double>() == doctest::Approx(std::log(2.0)));
  loss.backward();
  CHECK(max_difference(x.grad(), from_vector<double>({0.5, 0, -0.5}, {1, 3})) <= 1e-15);
}

TEST_CASE("cross_entropy: the same bits for any number of threads") {
  const int before = num_threads();
  const Tensor x = random_tensor({3000, 17}, 1, DType::float32);
  Generator generator(2);
  const Tensor classes = randint(0, 17, {3000}, {.dtype = DType::int64}, generator);
  std::vector<float> losses;
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Tensor in = clone(x).set_requires_grad();
    const Tensor loss = cross_entropy(in, classes, {.label_smoothing = 0.1});
    loss.backward();
    losses.push_back(loss.item<float>());
    gradients.push_back(in.grad().to_vector<float>());
  }
  set_num_threads(before);
  CHECK(losses[0] == losses[1]);
  CHECK(losses[0] == losses[2]);
  CHECK(gradients[0] == gradients[1]);
  CHECK(gradients[0] == gradients[2]);
}

TEST_CASE("cross_entropy: gradients, once and twice") {
  const Tensor x = random_tensor({5, 7}, 1);
  const Tensor classes = from_vector<int64_t>({6, 0, 3, 3, 1}, {5});
  const Tensor probabilities = softmax(random_tensor({5, 7}, 2), 1);
  for (const double smoothing : {0.0, 0.2}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      const CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction};
      const std::string name = fmt::format("smoothing {}, reduction {}", smoothing, static_cast<int>(reduction));
      check_gradients(
          "classes, " + name, [&](const Tensors& in) { return Tensors{cross_entropy(in[0], classes, options)}; }, {x},
          true);
      check_gradients(
          "probabilities, " + name, [&](const Tensors& in) { return Tensors{cross_entropy(in[0], in[1], options)}; },
          {x, probabilities}, true);
    }
  }
}

TEST_CASE("cross_entropy: numbers that are no class, on the CPU") {
  const DefaultDeviceGuard guard(kCpu);
  const Tensor x = zeros({4, 10});
  CHECK_THROWS_WITH_AS(cross_entropy(x, from_vector<int64_t>({0, 9, 3, 12}, {4})),
                       "cross_entropy: target: expected classes in [0, 10) or -100, got 12 at index 3", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, from_vector<int64_t>({0, -1, 3, 2}, {4})),
                       "cross_entropy: target: expected classes in [0, 10) or -100, got -1 at index 1", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, from_vector<int64_t>({0, -100, 3, 10}, {4})),
                       "cross_entropy: target: expected classes in [0, 10) or -100, got 10 at index 3", Error);
}

TEST_CASE("cross_entropy: error texts") {
  const Tensor x = zeros({4, 10});
  CHECK_THROWS_WITH_AS(cross_entropy(x, zeros({4, 9})),
                       "cross_entropy: target: expected int64 classes of sizes [4] or float32 probabilities of sizes "
                       "[4, 10], got float32 [4, 9]",
                       Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, zeros({4}, {.dtype = DType::int32})),
                       "cross_entropy: target: expected int64 classes of sizes [4] or float32 probabilities of sizes "
                       "[4, 10], got int32 [4]",
                       Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, zeros({4}, {.dtype = DType::int64}), {.label_smoothing = 1}),
                       "cross_entropy: label_smoothing: expected a value in [0, 1), got 1", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({4}), zeros({4}, {.dtype = DType::int64})),
                       "cross_entropy: logits: expected rank 2, got rank 1 (sizes [4])", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({0, 10}), zeros({0}, {.dtype = DType::int64})),
                       "cross_entropy: logits: expected at least one row and one class, got sizes [0, 10]", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(arange(3), arange(3)),
                       "cross_entropy: logits: expected a floating dtype, got int64", Error);
}
