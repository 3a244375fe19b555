#include "nn/norm/factory.h"
#include "nn/optim/clip.h"
#include "nn/optim/optimizers.h"

#include "core/parallel.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <cmath>

using namespace norma;
using namespace norma::nn;
using norma::test::differ;
using norma::test::error_of;
using norma::test::Layout;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

struct Problem {
  Tensor w = from_vector<double>({0.5, -1.25, 2.0, 0.75}, {2, 2}).set_requires_grad();
  Tensor b = from_vector<double>({0.1, -0.2}, {2}).set_requires_grad();

  [[nodiscard]] std::vector<ParameterGroup> groups() const {
    return {{.parameters = {{"w", w}}, .weight_decay = 0.1}, {.parameters = {{"b", b}}, .lr_scale = 2}};
  }
  // The gradients of (k + 1) sum(w²) + sum(w[0] · b) + sum(b³).
  void set_gradients(int k) {
    const std::vector<double> p = w.to_vector<double>();
    const std::vector<double> q = b.to_vector<double>();
    std::vector<double> dw(4);
    std::vector<double> db(2);
    for (size_t i = 0; i < 4; ++i) {
      dw[i] = 2 * (k + 1) * p[i] + (i < 2 ? q[i] : 0);
    }
    for (size_t i = 0; i < 2; ++i) {
      db[i] = p[i] + 3 * q[i] * q[i];
    }
    w.set_grad(from_vector(dw, {2, 2}));
    b.set_grad(from_vector(db, {2}));
  }
};

template <class Opt, class Options>
void check_run(const Options& options, int steps, const std::vector<double>& w, const std::vector<double>& b) {
  Problem problem;
  Opt optimizer(problem.groups(), options);
  for (int k = 0; k < steps; ++k) {
    problem.set_gradients(k);
    optimizer.step();
  }
  CHECK(optimizer.steps() == steps);
  CHECK(max_difference(problem.w, from_vector(w, {2, 2})) <= 1e-14);
  CHECK(max_difference(problem.b, from_vector(b, {2})) <= 1e-14);
}

// One parameter of `sizes` under AdamW for three steps.
Tensor run_adamw(const Tensor& start, const Tensor& gradient) {
  Tensor p = start;
  p.set_requires_grad();
  AdamW optimizer({{.parameters = {{"p", p}}, .weight_decay = 0.1}}, {.lr = 0.1});
  p.set_grad(gradient);
  for (int k = 0; k < 3; ++k) {
    optimizer.step();
  }
  return p.detach();
}

}  // namespace

// The numbers come from PyTorch 1.13:
//   w = torch.tensor([[0.5, -1.25], [2.0, 0.75]], dtype=torch.float64, requires_grad=True)
//   b = torch.tensor([0.1, -0.2], dtype=torch.float64, requires_grad=True)
//   o = OPTIMIZER([{'params': [w], 'weight_decay': 0.1}, {'params': [b], 'weight_decay': 0, 'lr': 0.02}], lr=0.01, ...)
//   for k in range(steps):
//     o.zero_grad(); ((w * w * (k + 1)).sum() + (w[0] * b).sum() + (b ** 3).sum()).backward(); o.step()
//   print(w, b)

TEST_CASE("sgd: plain, PyTorch's numbers") {
  check_run<Sgd>(SgdOptions{.lr = 0.01}, 3, {0.43826376791599997, -1.096972778294, 1.763180958, 0.66119285925},
                 {0.0694230206961042, -0.13289433226037123});
}

TEST_CASE("sgd: momentum and dampening, PyTorch's numbers") {
  check_run<Sgd>(SgdOptions{.lr = 0.01, .momentum = 0.9, .dampening = 0.25}, 3,
                 {0.41732168195275, -1.045530456540375, 1.6866892388749999, 0.6325084645781249},
                 {0.049497129972801944, -0.09014737985003189});
}

TEST_CASE("sgd: Nesterov, PyTorch's numbers") {
  check_run<Sgd>(SgdOptions{.lr = 0.01, .momentum = 0.9, .nesterov = true}, 3,
                 {0.3543197928015536, -0.8889872712850125, 1.440937052922, 0.54035139484575},
                 {0.01993847268652985, -0.02156566063397485});
}

TEST_CASE("adamw: betas and eps, PyTorch's numbers") {
  check_run<AdamW>(AdamWOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6}, 3,
                   {0.4688294032507747, -1.2166310002287342, 1.9644603285853717, 0.718187593636899},
                   {0.04013846513804009, -0.1399715070611739});
}

TEST_CASE("adamw: defaults, PyTorch's numbers") {
  check_run<AdamW>(AdamWOptions{.lr = 0.01}, 5,
                   {0.4487294418037745, -1.1951294581654919, 1.9415643800294167, 0.6977390654609322},
                   {0.00037550444590485343, -0.0999339549179387});
}

// With a gradient g that stays, each update of AdamW moves by lr · g / (|g| + eps), whatever the betas are, if the bias
// is corrected by the number of updates.
TEST_CASE("adamw: a parameter whose first gradient comes late begins at its step 1") {
  for (const bool muon : {false, true}) {
    CAPTURE(muon);
    Tensor early = ones({2}, {.dtype = DType::float64}).set_requires_grad();
    Tensor late = from_vector<double>({1, -2}, {2}).set_requires_grad();
    const auto make = [&]() -> std::unique_ptr<Optimizer> {
      const std::vector<ParameterGroup> groups{{.parameters = {{"early", early}, {"late", late}}}};
      if (muon) {
        return std::make_unique<Muon>(groups, MuonOptions{.lr = 0.1});
      }
      return std::make_unique<AdamW>(groups, AdamWOptions{.lr = 0.1});
    };
    const auto check_updates = [&](int early_updates, int late_updates) {
      CHECK(max_difference(early, full({2}, 1 - 0.1 * early_updates, {.dtype = DType::float64})) <= 1e-6);
      CHECK(max_difference(late, from_vector<double>({1 - 0.1 * late_updates, -2 + 0.1 * late_updates}, {2})) <= 1e-6);
    };
    auto optimizer = make();
    early.set_grad(full({2}, 3, {.dtype = DType::float64}));
    for (int step = 1; step <= 4; ++step) {
      if (step == 3) {
        late.set_grad(from_vector<double>({0.5, -4}, {2}));
      }
      optimizer->step();
      check_updates(step, std::max(0, step - 2));
    }
    const NamedTensors state = optimizer->state_dict();
    CHECK(state.back().first == "step.late");
    CHECK(state.back().second.item<int64_t>() == 2);
    optimizer = make();
    optimizer->load_state_dict(state);
    optimizer->step();
    check_updates(5, 3);
    if (optimizer->can_be_recorded()) {
      optimizer->set_numbers();
      optimizer->record_step(zeros({2}, {.dtype = DType::float64}));  // the CPU makes it at once
      optimizer->count_launched_step();
      optimizer->step();
      check_updates(7, 5);
    }
  }
}

TEST_CASE("adamw: a state without a parameter's own steps takes the optimizer's") {
  Tensor x = from_vector<double>({1}, {1}).set_requires_grad();
  AdamW optimizer({{.parameters = {{"x", x}}}}, {.lr = 0.1, .beta1 = 0.5, .beta2 = 0.75});
  const TensorOptions number{.dtype = DType::int64};
  optimizer.load_state_dict({{"step", full({}, 2, number)},
                             {"states", full({}, 2, number)},
                             {"exp_avg.x", from_vector<double>({0}, {1})},
                             {"exp_avg_sq.x", from_vector<double>({0}, {1})}});
  x.set_grad(from_vector<double>({2}, {1}));
  optimizer.step();  // its third: m = 1, v = 1
  CHECK(x.item<double>() == doctest::Approx(1 - 0.1 / (1 - 0.125) / std::sqrt(1 / (1 - 0.421875))));
}

TEST_CASE("optimizer: every layout of parameter and gradient gives the same values") {
  const Tensor start = random_tensor({3, 5, 2, 4}, 1);
  const Tensor gradient = random_tensor({3, 5, 2, 4}, 2);
  const Tensor expected = run_adamw(copy_of(start), gradient);
  CHECK(differ(expected, start, 0.1));
  for (const Layout p : test::kLayouts) {
    for (const Layout g : test::kLayouts) {
      CAPTURE(to_string(p));
      CAPTURE(to_string(g));
      CHECK(max_difference(run_adamw(in_layout(start, p), in_layout(gradient, g)), expected) == 0);
    }
  }
}

TEST_CASE("optimizer: a parameter that changes its format keeps its averages") {
  const Tensor gradient = random_tensor({4, 3, 2, 2}, 4, DType::float32);
  Conv2d plain(3, 4, 2);
  Conv2d turned(3, 4, 2);
  turned.load_state_dict(plain.state_dict());
  for (Conv2d* conv : {&plain, &turned}) {
    Sgd optimizer(parameter_groups(*conv, 0), {.lr = 0.1, .momentum = 0.9});
    for (int k = 0; k < 3; ++k) {
      if (conv == &turned && k == 1) {
        conv->to(MemoryFormat::channels_last);
      }
      Tensor weight = conv->weight();
      weight.set_grad(gradient);
      optimizer.step();
    }
  }
  CHECK(max_difference(plain.weight(), turned.weight()) == 0);
}

TEST_CASE("optimizer: same bits for one thread and two") {
  const Tensor start = random_tensor({50001}, 1, DType::float32);
  const Tensor gradient = random_tensor({50001}, 2, DType::float32);
  const int before = num_threads();
  set_num_threads(1);
  const Tensor one = run_adamw(copy_of(start), gradient);
  set_num_threads(2);
  const Tensor two = run_adamw(copy_of(start), gradient);
  set_num_threads(before);
  CHECK(max_difference(one, two) == 0);
}

TEST_CASE("optimizer: parameters without a gradient stay, steps count as in-place changes") {
  Problem problem;
  Sgd optimizer(problem.groups(), {.lr = 0.1});
  const Tensor before = copy_of(problem.w.detach());
  problem.b.set_grad(ones({2}, {.dtype = DType::float64}));
  const int64_t version = problem.b.version();
  optimizer.step();
  CHECK(max_difference(problem.w, before) == 0);
  CHECK(max_difference(problem.b, from_vector<double>({0.1 - 0.2, -0.2 - 0.2}, {2})) <= 1e-15);
  CHECK(problem.b.version() > version);
  optimizer.zero_grad();
  CHECK(!problem.b.grad().defined());
}

TEST_CASE("optimizer: groups keep norms, biases and scales from decaying") {
  const Sequential net{std::make_shared<Conv2d>(3, 4, 3), std::make_shared<BatchNorm2d>(4)};
  const std::vector<ParameterGroup> groups = parameter_groups(net, 0.05);
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].parameters.size() == 1);
  CHECK(groups[0].parameters[0].first == "0.weight");
  CHECK(groups[0].weight_decay == 0.05);
  REQUIRE(groups[1].parameters.size() == 3);
  CHECK(groups[1].parameters[0].first == "0.bias");
  CHECK(groups[1].parameters[1].first == "1.weight");
  CHECK(groups[1].weight_decay == 0);
  CHECK(parameter_groups(net, 0.05, {.decay_vectors = true}).size() == 1);
  // Numbers of their own for norms and for other biases; those without stay together.
  const std::vector<ParameterGroup> three =
      parameter_groups(net, 0.05, {.norm_weight_decay = 0.01, .bias_weight_decay = 0.05});
  REQUIRE(three.size() == 3);
  CHECK(three[1].weight_decay == 0.05);
  CHECK(three[1].parameters[0].first == "0.bias");
  CHECK(three[2].weight_decay == 0.01);
  CHECK(three[2].parameters[0].first == "1.weight");
  CHECK(three[2].parameters[1].first == "1.bias");
  // A norm names those that decay as weights do: zero-centred weights, and alpha and beta of SeeDNorm.
  const auto decaying = [](const std::string& norm) {
    std::string names;
    for (const ParameterGroup& group : parameter_groups(Sequential{make_norm(norm, 4)}, 0.05)) {
      for (const auto& [name, x] : group.parameters) {
        names += group.weight_decay == 0.05 ? name + " " : "";
      }
    }
    return names;
  };
  CHECK(decaying("layer2d").empty());
  CHECK(decaying("layer2d[offset=true]") == "0.weight ");
  CHECK(decaying("rms2d[offset=true]") == "0.weight ");
  CHECK(decaying("seednorm") == "0.alpha 0.beta ");
  CHECK(decaying("seednorm[offset=true]") == "0.alpha 0.beta ");
  // A gain has sizes [4, 1, 1, 1].
  const std::vector<ParameterGroup> scaled = parameter_groups(ScaledStdConv2d(3, 4, 3), 0.05);
  REQUIRE(scaled.size() == 2);
  CHECK(scaled[0].parameters.size() == 1);
  CHECK(scaled[1].parameters[1].first == "gain");
}

TEST_CASE("optimizer: state out and in continues with the same bits") {
  for (const bool adam : {false, true}) {
    CAPTURE(adam);
    const auto make = [&](const Problem& problem) -> std::unique_ptr<Optimizer> {
      if (adam) {
        return std::make_unique<AdamW>(problem.groups(), AdamWOptions{.lr = 0.01});
      }
      return std::make_unique<Sgd>(problem.groups(), SgdOptions{.lr = 0.01, .momentum = 0.9, .nesterov = true});
    };
    Problem whole;
    const auto through = make(whole);
    Problem first;
    const auto before = make(first);
    for (int k = 0; k < 4; ++k) {
      whole.set_gradients(k);
      through->step();
      if (k < 2) {
        first.set_gradients(k);
        before->step();
      }
    }
    Problem second;
    copy_into(first.w.detach(), second.w.detach());
    copy_into(first.b.detach(), second.b.detach());
    const auto after = make(second);
    after->load_state_dict(before->state_dict());
    for (int k = 2; k < 4; ++k) {
      second.set_gradients(k);
      after->step();
    }
    CHECK(after->steps() == 4);
    CHECK(max_difference(whole.w, second.w) == 0);
    CHECK(max_difference(whole.b, second.b) == 0);
  }
}

TEST_CASE("optimizer: names of the state") {
  Problem problem;
  AdamW optimizer(problem.groups());
  problem.set_gradients(0);
  optimizer.step();
  std::vector<std::string> names;
  for (const auto& [name, x] : optimizer.state_dict()) {
    names.push_back(name);
  }
  CHECK(names == std::vector<std::string>{"step", "states", "exp_avg.w", "exp_avg_sq.w", "exp_avg.b", "exp_avg_sq.b"});
}

TEST_CASE("optimizer: a step that throws is not counted, and can be taken once more") {
  /// AdamW that has no memory for its first attempts.
  class Starved : public AdamW {
   public:
    using AdamW::AdamW;
    int attempts_left = 2;

   private:
    void begin_step() override {
      if (attempts_left-- > 0) {
        throw OutOfMemory("no memory left");
      }
    }
  };
  Problem with_faults;
  Problem without;
  Starved starved(with_faults.groups(), {.lr = 0.1});
  AdamW fed(without.groups(), {.lr = 0.1});
  for (int k = 0; k < 3; ++k) {
    with_faults.set_gradients(k);
    without.set_gradients(k);
    for (starved.attempts_left = k; starved.attempts_left > 0;) {
      CHECK_THROWS_AS(starved.step(), OutOfMemory);
      CHECK(starved.steps() == k);
    }
    starved.step();
    fed.step();
    CHECK(starved.steps() == k + 1);
  }
  CHECK(with_faults.w.to_vector<double>() == without.w.to_vector<double>());
  CHECK(with_faults.b.to_vector<double>() == without.b.to_vector<double>());
}

TEST_CASE("optimizer: error texts") {
  Problem problem;
  CHECK(error_of([&] {
          Sgd({{.parameters = {{"w", problem.w}, {"v", problem.w}}}});
        }) == "optimizer: v: expected every parameter once, got it twice");
  CHECK(error_of([&] {
          Sgd({{.parameters = {{"w", problem.w.detach()}}}});
        }) == "optimizer: w: expected a leaf that requires a gradient");
  CHECK(error_of([&] { Sgd(problem.groups(), {.nesterov = true}); }) ==
        "sgd: nesterov: expected momentum > 0 and dampening 0, got momentum 0, dampening 0");
  CHECK(error_of([&] { AdamW(problem.groups(), {.beta1 = 1}); }) ==
        "adamw: beta1, beta2: expected values in [0, 1), got 1, 0.999");
  AdamW optimizer(problem.groups());
  const NamedTensors dict = {{"exp_avg.w", zeros({3})},
                             {"momentum.w", zeros({2, 2})},
                             {"step", zeros({}, {.dtype = DType::int64})},
                             {"states", zeros({}, {.dtype = DType::int64})}};
  CHECK(error_of([&] { optimizer.load_state_dict(dict); }) ==
        "optimizer.load_state_dict: unexpected: momentum.w; exp_avg.w: expected sizes [2, 2], got [3]");
  CHECK(error_of([&] { optimizer.load_state_dict({}); }) ==
        "optimizer.load_state_dict: missing: step; missing: states");
  NamedTensors lost = {{"step", zeros({}, {.dtype = DType::int64})},
                       {"states", full({}, 2, {.dtype = DType::int64})},
                       {"exp_avg.w", zeros({2, 2})}};
  CHECK(error_of([&] {
          optimizer.load_state_dict(lost);
        }).starts_with("optimizer.load_state_dict: missing: 1 of exp_avg_sq.w"));
  NamedTensors negative = optimizer.state_dict();
  for (auto& [name, x] : negative) {
    if (name == "step") {
      x = full({}, -2, {.dtype = DType::int64});
    }
  }
  negative.emplace_back("exp_avg.w", zeros({2, 2}, {.dtype = DType::int32}));
  CHECK(
      error_of([&] { optimizer.load_state_dict(negative); }) ==
      "optimizer.load_state_dict: step: expected at least 0, got -2; exp_avg.w: expected a floating dtype, got int32");
  NamedTensors late = optimizer.state_dict();
  late.emplace_back("step.w", full({}, -1, {.dtype = DType::int64}));
  CHECK(error_of([&] { optimizer.load_state_dict(late); }) ==
        "optimizer.load_state_dict: step.w: expected at least 0, got -1");
}

TEST_CASE("clip: by norm, PyTorch's numbers") {
  // a.grad = [3, -4], c.grad = [[12]]; torch.nn.utils.clip_grad_norm_([a, c], 2.0) is 13
  Tensor a = zeros({2}, {.dtype = DType::float64}).set_requires_grad();
  Tensor c = zeros({1, 1}, {.dtype = DType::float64}).set_requires_grad();
  Tensor without = zeros({2}).set_requires_grad();
  a.set_grad(from_vector<double>({3, -4}, {2}));
  c.set_grad(from_vector<double>({12}, {1, 1}));
  CHECK(std::abs(clip_grad_norm_({a, c, without}, 2.0).item<double>() - 13) <= 1e-14);
  CHECK(max_difference(a.grad(), from_vector<double>({0.46153842603550577, -0.615384568047341}, {2})) <= 1e-15);
  CHECK(max_difference(c.grad(), from_vector<double>({1.846153704142023}, {1, 1})) <= 1e-15);
  const Tensor before = copy_of(a.grad());
  CHECK(std::abs(clip_grad_norm_({a, c}, 3.0).item<double>() - 2) <= 1e-6);
  CHECK(max_difference(a.grad(), before) == 0);  // small enough already
}

TEST_CASE("clip: by value and by norm in every layout") {
  for (const Layout layout : test::kLayouts) {
    CAPTURE(to_string(layout));
    const Tensor values = random_tensor({3, 4, 5, 2}, 5);
    Tensor x = zeros({3, 4, 5, 2}, {.dtype = DType::float64}).set_requires_grad();
    x.set_grad(in_layout(values, layout));
    clip_grad_value_({x}, 0.5);
    const std::vector<double> before = values.to_vector<double>();
    const std::vector<double> after = x.grad().to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      CHECK(after[i] == std::min(0.5, std::max(-0.5, before[i])));
      sum += after[i] * after[i];
    }
    CHECK(std::abs(clip_grad_norm_({x}, 1).item<double>() - std::sqrt(sum)) <= 1e-12);
    CHECK(std::abs(clip_grad_norm_({x}, 1).item<double>() - 1) <= 1e-6);
  }
}

TEST_CASE("clip: adaptively, timm's formula unit by unit") {
  // Plain loops over units: a channel of w, all of b, and the only number of s.
  const Sizes sizes = {3, 2, 1, 2};
  const std::vector<double> weights = {3, -4, 0, 0, 1e-5, 0, 0, -1e-5, 0.5, 0.5, 0.5, 0.5};
  const std::vector<double> slopes = {0.3, -0.1, 0.2, 0.4, 1, 2, -2, 4, 1e-4, 0, 0, -1e-4};
  const auto expected = [](const std::vector<double>& w, const std::vector<double>& g, size_t units, double factor) {
    std::vector<double> clipped = g;
    const size_t length = w.size() / units;
    for (size_t unit = 0; unit < units; ++unit) {
      double w_sum = 0;
      double g_sum = 0;
      for (size_t i = unit * length; i < (unit + 1) * length; ++i) {
        w_sum += w[i] * w[i];
        g_sum += g[i] * g[i];
      }
      const double most = factor * std::max(std::sqrt(w_sum), 1e-3);
      for (size_t i = unit * length; i < (unit + 1) * length; ++i) {
        clipped[i] *= std::sqrt(g_sum) < most ? 1 : most / std::max(std::sqrt(g_sum), 1e-6);
      }
    }
    return clipped;
  };
  for (const Layout layout : test::kLayouts) {
    CAPTURE(to_string(layout));
    Tensor w = in_layout(from_vector(weights, sizes), layout).set_requires_grad();
    Tensor b = from_vector<double>({0.6, -0.8}, {2}).set_requires_grad();
    Tensor s = from_vector<double>({2}, {}).set_requires_grad();
    const Tensor without = ones({2}, {.dtype = DType::float64}).set_requires_grad();
    w.set_grad(in_layout(from_vector(slopes, sizes), layout));
    b.set_grad(from_vector<double>({3, 4}, {2}));
    s.set_grad(from_vector<double>({-5}, {}));
    adaptive_clip_grad({w, b, s, without}, {.factor = 0.02});
    CHECK(max_difference(w.grad(), from_vector(expected(weights, slopes, 3, 0.02), sizes)) <= 1e-16);
    CHECK(max_difference(b.grad(), from_vector<double>({3 * 0.02 / 5, 4 * 0.02 / 5}, {2})) <= 1e-16);
    CHECK(s.grad().item<double>() == doctest::Approx(-0.04));
    CHECK(!without.grad().defined());
  }
  // 16-bit numbers are computed in float32 and rounded once.
  Tensor half = full({4}, 2, {.dtype = DType::bfloat16}).set_requires_grad();
  half.set_grad(full({4}, 3, {.dtype = DType::bfloat16}));
  adaptive_clip_grad({half}, {.factor = 0.5});
  CHECK(half.grad().dtype() == DType::bfloat16);
  CHECK(to(half.grad(), DType::float32).to_vector<float>() == std::vector<float>(4, 1));
}

TEST_CASE("clip: adaptively, units whose squares leave float32") {
  const std::vector<float> weights = {0.6F, 0.8F, 1e-4F, 0, 1e20F, 0, 3, 4};
  for (const float scale : {1e-25F, 1e-6F, 1.F, 2e21F, 3e38F}) {
    CAPTURE(scale);
    Tensor w = from_vector(weights, {4, 2}).set_requires_grad();
    w.set_grad(from_vector<float>({scale, scale, scale, 0, scale, scale, 0, 0}, {4, 2}));
    adaptive_clip_grad({w});
    const std::vector<float> g = w.grad().to_vector<float>();
    const auto expected = [&](double norm_of_w, double norm_of_g) {  // the norm of the clipped gradient
      return std::min(0.01 * norm_of_w, static_cast<double>(scale) * norm_of_g);
    };
    const auto norm = [&](size_t unit) { return std::hypot(double{g[2 * unit]}, double{g[2 * unit + 1]}); };
    CHECK(norm(0) == doctest::Approx(expected(1, std::sqrt(2))).epsilon(1e-6));
    CHECK(norm(1) == doctest::Approx(expected(1e-3, 1)).epsilon(1e-6));
    CHECK(norm(2) == doctest::Approx(expected(1e20, std::sqrt(2))).epsilon(1e-6));
    CHECK(norm(3) == 0);
  }
}

TEST_CASE("clip: a norm that is not finite") {
  Tensor x = zeros({2}).set_requires_grad();
  x.set_grad(from_vector<float>({3, NAN}, {2}));
  CHECK(std::isnan(clip_grad_norm_({x}, 1).item<double>()));
  CHECK(x.grad().to_vector<float>()[0] == 3);
  x.set_grad(from_vector<float>({3, INFINITY}, {2}));
  CHECK(std::isinf(clip_grad_norm_({x}, 1).item<double>()));
  CHECK(x.grad().to_vector<float>()[0] == 0);
  CHECK(clip_grad_norm_({zeros({2})}, 1).item<double>() == 0);  // no gradient
}

TEST_CASE("clip: error texts") {
  CHECK(error_of([] { clip_grad_norm_({}, 0); }) == "clip_grad_norm_: max_norm: expected a positive number, got 0");
  CHECK(error_of([] { clip_grad_value_({}, -1); }) == "clip_grad_value_: limit: expected a number >= 0, got -1");
  CHECK(error_of([] { adaptive_clip_grad({}, {.factor = 0}); }) ==
        "adaptive_clip_grad: factor: expected a finite positive number, got 0");
  CHECK(error_of([] { adaptive_clip_grad({}, {.eps = -1}); }) ==
        "adaptive_clip_grad: eps: expected a finite number of at least 0, got -1");
}

TEST_CASE("optimizer: numbers that are none, each with its error") {
  const auto groups = [](double weight_decay = 0, double lr_scale = 1) {
    return std::vector<ParameterGroup>{
        {.parameters = {{"w", ones({2}).set_requires_grad()}}, .weight_decay = weight_decay, .lr_scale = lr_scale}};
  };
  CHECK(error_of([&] { Sgd(groups(), {.lr = NAN}); }) ==
        "optimizer: lr: expected a finite number of at least 0, got nan");
  CHECK(error_of([&] { AdamW(groups(), {.lr = -1}); }) ==
        "optimizer: lr: expected a finite number of at least 0, got -1");
  CHECK(error_of([&] { Sgd(groups(-0.5)); }) ==
        "optimizer: weight_decay: expected a finite number of at least 0, got -0.5");
  CHECK(error_of([&] { Sgd(groups(0, INFINITY)); }) ==
        "optimizer: lr_scale: expected a finite number of at least 0, got inf");
  CHECK(error_of([&] { Sgd(groups(), {.momentum = -1}); }) ==
        "sgd: momentum: expected a finite number of at least 0, got -1");
  CHECK(error_of([&] { Sgd(groups(), {.dampening = NAN}); }) == "sgd: dampening: expected a finite number, got nan");
  CHECK(error_of([&] { AdamW(groups(), {.eps = -1e-8}); }) ==
        "adamw: eps: expected a finite number of at least 0, got -1e-08");
}

TEST_CASE("sgd: without momentum the velocity and the dampening play no part, and the velocity stays") {
  // p = 0, gradients 1, lr 1: v = 1, p = -1; then p = -2; then v = 0.5 * 1 + 0.75 * 1 = 1.25, p = -3.25.
  Tensor p = zeros({1}, {.dtype = DType::float64}).set_requires_grad();
  Sgd sgd({{.parameters = {{"p", p}}}}, {.lr = 1, .momentum = 0.5, .dampening = 0.25});
  const auto step = [&](double momentum) {
    sgd.set_momentum(momentum);
    p.set_grad(ones({1}, {.dtype = DType::float64}));
    sgd.step();
    return p.item<double>();
  };
  CHECK(step(0.5) == -1);
  CHECK(step(0) == -2);
  CHECK(step(0.5) == -3.25);
}
