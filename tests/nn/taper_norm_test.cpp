#include "error_text.h"
#include "nn/norm/changed_norms.h"
#include "nn/norm/factory.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

// The plug-in examples/my_norm/taper.cpp, which is compiled into this program, too.
extern "C" void norma_register_plugin();

using namespace norma;
using norma::test::differ;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

constexpr int64_t kWarmup = 3;
constexpr int64_t kTaper = 4;
constexpr double kEps = 0.1;  // large enough to show where it stands
constexpr double kMomentum = 0.3;
const Sizes kSizes{2, 4, 2, 3};  // small, since second derivatives are checked on cuda-emulated, too

std::shared_ptr<nn::Module> taper_norm(const std::string& options, int64_t channels = kSizes[1]) {
  static const bool known = [] {
    norma_register_plugin();
    return true;
  }();
  REQUIRE(known);
  return nn::make_norm("taper[" + options + "]", channels);
}

std::shared_ptr<nn::Module> in_float64() {
  auto layer =
      taper_norm(fmt::format("warmup_steps={},taper_steps={},eps={},momentum={}", kWarmup, kTaper, kEps, kMomentum));
  layer->to(DType::float64);
  return layer;
}

void set_random(const nn::Module& layer, const std::string& name, uint64_t seed) {
  const Tensor x = nn::tensor_of(layer, name);
  copy_into(random_tensor(x.sizes(), seed), x);
}

Tensor image(uint64_t seed) {
  return random_tensor(kSizes, seed);
}

/// A layer after so many forward passes in training, with parameters that are not those of the start.
std::shared_ptr<nn::Module> after(int64_t passes) {
  auto layer = in_float64();
  set_random(*layer, "weight", 1);
  for (int64_t pass = 0; pass < passes; ++pass) {
    (*layer)(image(100 + static_cast<uint64_t>(pass)));
  }
  set_random(*layer, "scale", 2);
  return layer;
}

/// g after so many forward passes in training.
double gate_after(int64_t passes) {
  const double share = std::clamp(static_cast<double>(passes - kWarmup) / kTaper, 0.0, 1.0);
  return (1 + std::cos(std::numbers::pi * share)) / 2;
}

/// The layer as plain loops over (N, C, H · W).
struct ByLoops {
  double numerator = 0;
  double denominator = 0;
  std::vector<double> start;
  int64_t passes = 0;

  std::vector<double> forward(const std::vector<double>& h, const std::vector<double>& gamma,
                              const std::vector<double>& learned, bool training) {
    const auto channels = static_cast<size_t>(kSizes[1]);
    const auto pixels = static_cast<size_t>(kSizes[2] * kSizes[3]);
    const size_t images = h.size() / channels / pixels;
    const auto place = [&](size_t n, size_t c, size_t p) { return (n * channels + c) * pixels + p; };
    std::vector<double> r(images * pixels);
    double over_r = 0;
    double squares = 0;
    for (size_t n = 0; n < images; ++n) {
      for (size_t p = 0; p < pixels; ++p) {
        double of_h = 0;
        double weighted = 0;
        for (size_t c = 0; c < channels; ++c) {
          of_h += h[place(n, c, p)] * h[place(n, c, p)];
          weighted += gamma[c] * gamma[c] * h[place(n, c, p)] * h[place(n, c, p)];
        }
        r[n * pixels + p] = std::sqrt(of_h / static_cast<double>(channels) + kEps);
        over_r += weighted / r[n * pixels + p];
        squares += weighted;
      }
    }
    if (training) {
      ++passes;
      if (passes <= kWarmup) {
        const auto elements = static_cast<double>(h.size());
        numerator += kMomentum * (over_r / elements - numerator);
        denominator += kMomentum * (squares / elements - denominator);
      }
      if (passes <= kWarmup + 1) {
        start = gamma;
      }
    }
    const double g = gate_after(passes);
    std::vector<double> y(h.size());
    for (size_t n = 0; n < images; ++n) {
      for (size_t c = 0; c < channels; ++c) {
        for (size_t p = 0; p < pixels; ++p) {
          const double x = h[place(n, c, p)];
          y[place(n, c, p)] = g * gamma[c] * x / r[n * pixels + p];
          if (passes > kWarmup) {
            y[place(n, c, p)] += (1 - g) * numerator / denominator * (start[c] + learned[c]) * x;
          }
        }
      }
    }
    return y;
  }
};

Tensor in_format(const Tensor& x, MemoryFormat format) {
  return copy_of(x, format);
}

}  // namespace

TEST_CASE("taper norm: the values of plain loops in every pass, trained and evaluated, in both formats") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    CAPTURE(to_string(format));
    const auto layer = in_float64();
    ByLoops loops;
    for (int64_t pass = 1; pass <= kWarmup + kTaper + 2; ++pass) {
      CAPTURE(pass);
      const auto seed = static_cast<uint64_t>(10 * pass);
      set_random(*layer, "weight", seed);  // as an optimizer would
      if (pass > kWarmup) {
        set_random(*layer, "scale", seed + 1);
      }
      for (const bool training : {true, false}) {
        layer->train(training);
        const Tensor x = in_format(image(seed + (training ? 2 : 3)), format);
        const Tensor y = (*layer)(x).detach();
        const std::vector<double> expected =
            loops.forward(x.to_vector<double>(), nn::tensor_of(*layer, "weight").to_vector<double>(),
                          nn::tensor_of(*layer, "scale").to_vector<double>(), training);
        CHECK(max_difference(y, from_vector<double>(expected, kSizes)) <= 1e-12);
        CHECK(y.is_contiguous(format));
      }
      CHECK(nn::tensor_of(*layer, "steps").item<int64_t>() == pass);
    }
  }
}

TEST_CASE("taper norm: the gate is 1, falls by half a cosine, and is 0 to the bit") {
  const Tensor x = image(3);
  for (const int64_t passes : {int64_t{0}, int64_t{1}, kWarmup}) {  // rms2d itself
    CAPTURE(passes);
    const auto layer = after(passes);
    layer->eval();
    CHECK(max_difference((*layer)(x), rms_norm_2d(x, nn::tensor_of(*layer, "weight"), {.eps = kEps})) == 0);
  }
  // Half-way both branches have one half.
  const auto half = after(kWarmup + kTaper / 2);
  half->eval();
  const Tensor normalized = rms_norm_2d(x, nn::tensor_of(*half, "weight"), {.eps = kEps});
  const auto scaled = [&](const nn::Module& layer) {
    const Tensor c = nn::tensor_of(layer, "numerator") / nn::tensor_of(layer, "denominator");
    return mul(x, reshape(c * (nn::tensor_of(layer, "scale_start") + nn::tensor_of(layer, "scale")), {-1, 1, 1}));
  };
  CHECK(max_difference((*half)(x), (normalized + scaled(*half)) * 0.5) <= 1e-14);
  CHECK(differ((*half)(x), normalized, 0.1));
  for (const int64_t passes : {kWarmup + kTaper, kWarmup + kTaper + 3}) {  // a factor for each channel
    CAPTURE(passes);
    const auto layer = after(passes);
    layer->eval();
    CHECK(max_difference((*layer)(x), scaled(*layer)) == 0);
    CHECK(max_difference((*layer)(x * 4), (*layer)(x)*4) == 0);
  }
}

TEST_CASE("taper norm: gradients of x and of the parameters, with the gate at 1, between and at 0") {
  for (const int64_t passes : {int64_t{1}, kWarmup + 1, kWarmup + kTaper}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      CAPTURE(passes);
      CAPTURE(to_string(format));
      const auto layer = after(passes - 1);
      const Tensor dy = in_format(image(7), format);
      Tensor x = in_format(image(8), format);
      x.set_requires_grad();
      const auto gradients = [&] {
        layer->zero_grad();
        x.set_grad({});
        backward((*layer)(x), dy);
        Tensors all{x.grad()};
        for (const Tensor& parameter : layer->parameters()) {
          all.push_back(parameter.grad());
        }
        return all;
      };
      const Tensors in_training = gradients();  // pass number `passes`
      layer->eval();
      const Tensors evaluated = gradients();
      REQUIRE(in_training.size() == 3);
      for (size_t i = 0; i < 3; ++i) {  // c and what else a training pass learns are constants
        CHECK(max_difference(in_training[i], evaluated[i]) == 0);
      }
      const auto f = [&](const Tensors& inputs) -> Tensors { return {(*layer)(inputs[0])}; };
      const GradcheckResult of_x = gradcheck(f, {x});
      CHECK_MESSAGE(of_x.passed, of_x.message);
      const GradcheckResult second = gradgradcheck(f, {x});
      CHECK_MESSAGE(second.passed, second.message);
      const NoGradGuard guard;
      for (size_t i = 0; i < 2; ++i) {
        const Tensor parameter = layer->parameters()[i].detach();
        const Tensor kept = copy_of(parameter);
        const std::vector<double> gradient = evaluated[i + 1].to_vector<double>();
        for (int64_t c = 0; c < kSizes[1]; ++c) {
          constexpr double kStep = 1e-6;
          const auto loss_at = [&](double step) {
            copy_into(kept, parameter);
            test::change_elements<double>(parameter, [&](double* elements) { elements[c] += step; });
            return sum((*layer)(x)*dy).item<double>();
          };
          const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
          copy_into(kept, parameter);
          CHECK(std::abs(gradient[static_cast<size_t>(c)] - difference) <= 1e-6 * (1 + std::abs(difference)));
        }
        // Each branch has a parameter: γ where there is a norm, γ' where there is a scaling.
        CHECK(differ(evaluated[i + 1], zeros_like(parameter), 0.1) ==
              (i == 0 ? passes < kWarmup + kTaper : passes > kWarmup));
      }
    }
  }
}

TEST_CASE("taper norm: c makes the scaling the nearest to the norm, and images of zeros leave it as it is") {
  const auto layer = taper_norm("warmup_steps=1,taper_steps=1,momentum=1");
  layer->to(DType::float64);
  const Tensor x = image(5);
  (*layer)(x);
  const Tensor normalized = rms_norm_2d(x, {}, {.eps = 1e-6});
  const double c =
      nn::tensor_of(*layer, "numerator").item<double>() / nn::tensor_of(*layer, "denominator").item<double>();
  const auto distance = [&](double factor) {
    const Tensor off = normalized - x * factor;
    return sum(off * off).item<double>();
  };
  CHECK(distance(c) < distance(c + 1e-3));
  CHECK(distance(c) < distance(c - 1e-3));

  const auto black = taper_norm("warmup_steps=2,taper_steps=1");
  for (int pass = 0; pass < 4; ++pass) {
    CHECK(max_difference((*black)(zeros(kSizes)), zeros(kSizes)) == 0);
  }
  const Tensor y = copy_of(x, MemoryFormat::preserve, DType::float32);
  CHECK(max_difference((*black)(y), y) == 0);  // c stays 1
}

TEST_CASE("taper norm: a state dict goes on half-way through the taper") {
  const auto whole = after(kWarmup + 1);
  const auto loaded = in_float64();
  loaded->load_state_dict(whole->state_dict());
  for (uint64_t pass = 0; pass < kTaper; ++pass) {
    const Tensor x = image(50 + pass);
    CHECK(max_difference((*whole)(x), (*loaded)(x)) == 0);
  }
  CHECK(nn::tensor_of(*loaded, "steps").item<int64_t>() == kWarmup + 1 + kTaper);
}

TEST_CASE("taper norm: one line for people, and what is refused") {
  CHECK(taper_norm("warmup_steps=5", 12)->name() ==
        "TaperNorm(12, eps=1e-06, momentum=0.1, warmup_steps=5, taper_steps=100)");
  const auto error = [](const std::string& options) { return error_of([&] { taper_norm(options); }); };
  CHECK(error("warmup_steps=-1") == "norm: taper: warmup_steps: expected a positive whole number, got '-1'");
  CHECK(error("warmup_steps=0") == "norm: taper: warmup_steps: expected a positive whole number, got '0'");
  CHECK(error("taper_steps=1.5") == "norm: taper: taper_steps: expected a positive whole number, got '1.5'");
  CHECK(error("momentum=0") == "norm: taper: momentum: expected a number in (0, 1], got 0");
  CHECK(error("momentum=nan") == "norm: taper: momentum: expected a number in (0, 1], got nan");
  CHECK(error("eps=-1") == "norm: taper: eps: expected a number >= 0, got -1");
  CHECK(error("eps=inf") == "norm: taper: eps: expected a number >= 0, got inf");
  CHECK(error("steps=5") == "norm: taper: unknown option 'steps'; did you mean 'eps'?");
}
