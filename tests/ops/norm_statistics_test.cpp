#include "core/tape.h"
#include "ops/norm_table.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

#include <limits>

using namespace norma;
using namespace norma::test;

namespace {

double worst_error(const Tensor& x, const NormSpec& spec) {
  return distance(normalize(x, spec), reference_norm(x, spec).y);
}

std::string kinds_of(const Tensor& x) {
  std::string kinds;
  for (const double value : x.to_vector<double>()) {
    kinds += std::isnan(value) ? 'n' : std::isfinite(value) ? 'f' : value > 0 ? '+' : '-';
  }
  return kinds;
}

}  // namespace

TEST_CASE("stable: exact to rounding at any offset, in every walk") {
  // Against float64 of the same rounded inputs. PyTorch 1.13's layer_norm is off by 1.8e-3 at 1e4 and by 0.12 at 1e6.
  for (const SpecCase& walk : norm_walks()) {
    for (const double offset : {0.0, 1e2, 1e4, 1e6, -1e6}) {
      const Tensor x = add(random_tensor(walk.sizes, 5, DType::float32), offset);
      CAPTURE(walk.name);
      CAPTURE(offset);
      CHECK(worst_error(x, walk.spec) <= 2e-6);  // outputs go up to about 4: one unit in the last place is 4.8e-7
    }
  }
}

TEST_CASE("statistics: stable and compensated float64 at a mean of 1e12") {
  for (const SpecCase& walk : norm_walks()) {
    // Multiples of 1/8, so that x and the reference's mean are exact.
    Tensor x = random_tensor(walk.sizes, 6);
    change_elements<double>(x, [&](double* values) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        values[i] = std::round(values[i] * 8) / 8;
      }
    });
    for (const Statistics statistics : {Statistics::stable, Statistics::compensated}) {
      NormSpec spec = walk.spec;
      spec.statistics = statistics;
      CAPTURE(walk.name);
      CAPTURE(to_string(statistics));
      CHECK(distance(normalize(add(x, 1e12), spec), reference_norm(x, spec).y) <= 1e-11);
    }
  }
}

TEST_CASE("stable: the first element of a set is an outlier") {
  // The pivot is then far from the mean, and the sum of squares around it would cancel.
  for (const SpecCase& walk : norm_walks()) {
    for (const double far : {1e4, -1e6}) {
      Tensor x = random_tensor(walk.sizes, 7, DType::float32);
      const ReferenceNorm sets = reference_norm(x, walk.spec);
      std::vector<double> seen;
      change_elements<float>(x, [&](float* values) {
        for (int64_t i = 0; i < x.numel(); ++i) {
          const double set = sets.mean[static_cast<size_t>(i)];  // tells the sets apart
          if (std::find(seen.begin(), seen.end(), set) == seen.end()) {
            seen.push_back(set);
            values[i] = static_cast<float>(far);
          }
        }
      });
      CAPTURE(walk.name);
      CAPTURE(far);
      const std::vector<double> expected = reference_norm(x, walk.spec).y;
      double scale = 0;
      for (const double y : expected) {
        scale = std::max(scale, std::abs(y));
      }
      CHECK(distance(normalize(x, walk.spec), expected) <= 1e-6 * scale);
    }
  }
}

TEST_CASE("statistics: every kind, at a mean that is large against the deviation") {
  for (const SpecCase& walk : norm_walks()) {
    for (const Statistics statistics : all_statistics()) {
      CAPTURE(walk.name);
      CAPTURE(to_string(statistics));
      const double offset = statistics == Statistics::sum_of_squares ? 1 : 1e4;
      const Tensor x = add(random_tensor(walk.sizes, 1, DType::float32), offset);
      const NormSpec spec{.reduce = walk.spec.reduce, .statistics = statistics};
      const NormStatistics expected = norm_statistics(to(x, DType::float64), {.reduce = walk.spec.reduce});
      const NormStatistics got = norm_statistics(x, spec);
      const bool exact = statistics == Statistics::stable || statistics == Statistics::compensated;
      const double rounded_mean = NormSets(x.sizes(), spec).set_size() < 500 ? 5e-3 : 5e-2;
      CHECK(max_difference(got.mean, expected.mean) <= (exact ? 5e-4 : rounded_mean));
      CHECK(max_difference(got.var, expected.var) <= (exact ? 1e-5 : 1e-2));
    }
  }
}

TEST_CASE("sum_of_squares: exact near 0, cancels far from it") {
  for (const SpecCase& walk : norm_walks()) {
    NormSpec spec = walk.spec;
    spec.statistics = Statistics::sum_of_squares;
    CAPTURE(walk.name);
    const Tensor x = random_tensor(walk.sizes, 8, DType::float32);
    CHECK(worst_error(x, spec) <= 1e-5);
    CHECK(worst_error(add(x, 1e4), spec) > 0.1);
    CHECK(distance(normalize(random_tensor(walk.sizes, 8), spec),
                   reference_norm(random_tensor(walk.sizes, 8), spec).y) <= 1e-11);
  }
}

TEST_CASE("layer_norm: rand(100) + 1e4 has mean 0 and variance 1") {
  // E[x²] - E[x]² in float32 gives an output mean of -87.9 here (NNlib #452).
  Generator generator(1);
  const Tensor x = add(rand({100}, {}, generator), 1e4);
  const Tensor y = layer_norm(x, {100});
  CHECK(std::abs(mean(y).item<float>()) <= 1e-6F);
  // var is 1 - eps / (var(x) + eps)
  CHECK(std::abs(var(y, {}, {.correction = 0}).item<float>() - 1) <= 3e-4F);
}

TEST_CASE("layer_norm: two close numbers") {
  // OneFlow #6149: float64 gives ±0.8454271584, and the gradient of the sum is 0.
  Tensor x = from_vector<float>({-1.83965693F, -1.82964566F}, {2});
  x.set_requires_grad();
  const Tensor y = layer_norm(x, {2});
  CHECK(distance(y, {-0.8454271584, 0.8454271584}) <= 2e-7);
  y.backward(ones({2}));
  CHECK(distance(x.grad(), {0, 0}) <= 1e-5);  // 1 / std is 169
}

TEST_CASE("norms: a constant channel of 1e10 gives 0") {
  for (const SpecCase& walk : norm_walks()) {
    CAPTURE(walk.name);
    const Tensor y = normalize(full(walk.sizes, 1e10), walk.spec);
    CHECK(max_difference(y, zeros(walk.sizes)) == 0);
  }
}

TEST_CASE("norms: NaN and Inf reach only the outputs that depend on them") {
  for (const SpecCase& walk : norm_walks()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Tensor good = random_tensor(walk.sizes, 9, DType::float32);
      const ReferenceNorm sets = reference_norm(good, walk.spec);
      const Tensor x = copy_of(good);
      const int64_t at = x.numel() / 2;
      set_element(x, at, bad);
      const std::vector<float> clean = normalize(good, walk.spec).to_vector<float>();
      const std::vector<float> y = normalize(x, walk.spec).to_vector<float>();
      CAPTURE(walk.name);
      int64_t wrong = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const bool same_set = sets.mean[i] == sets.mean[static_cast<size_t>(at)];
        // Of the same set: NaN, or 0 = finite / infinite deviation where bad is Inf. Of others: the same bits as
        // without it.
        wrong += same_set ? !std::isnan(y[i]) : y[i] != clean[i];
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("batch_norm: statistics of float32 data are those of float64") {
  // pytorch #40302: the variance of randn * 0.01 + 100 is 1e-4, and E[x²] - E[x]² makes it 0.
  const Tensor x = add(mul(random_tensor({1024, 3, 5, 5}, 10, DType::float32), 0.01), 100.0);
  NormStatistics statistics;
  const NormSpec spec{.reduce = {0, 2, 3}};
  normalize(x, spec, {}, {}, &statistics);
  const ReferenceNorm expected = reference_norm(x, spec);
  for (size_t c = 0; c < 3; ++c) {
    CHECK(std::abs(statistics.var.to_vector<double>()[c] / expected.var[c * 25] - 1) <= 1e-6);
    CHECK(std::abs(statistics.mean.to_vector<double>()[c] - expected.mean[c * 25]) <=
          4e-6);  // half a unit of 100 in float32
  }
}

// y = x + anything - its mean = 0: nothing depends on x.
TEST_CASE("normalize: a set of one element has a gradient of exactly 0, in every walk, dtype and kind of statistics") {
  const std::vector<SpecCase> cases = {
      {"rows", {37, 1}, {.reduce = {1}, .affine = {1}}},
      {"rows, no weight", {37, 1}, {.reduce = {1}}},
      {"columns", {1, 37}, {.reduce = {0}, .affine = {1}}},
      {"rows, weight by channel", {5, 33, 1}, {.reduce = {2}, .affine = {1}}},
      {"channels of one pixel", {1, 33, 1, 1}, {.reduce = {0, 2, 3}, .affine = {1}}},
      {"groups of one channel", {3, 8, 1, 1}, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 8}},
  };
  for (SpecCase c : cases) {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      for (const Statistics statistics : all_statistics()) {
        CAPTURE(c.name);
        CAPTURE(to_string(dtype));
        c.spec.statistics = statistics;
        const Tensor x = to(random_tensor(c.sizes, 1), dtype).set_requires_grad();
        Tensor weight;
        if (!c.spec.affine.empty()) {
          weight = to(random_tensor({c.sizes[c.spec.affine[0]]}, 2), dtype).set_requires_grad();
        }
        const Tensor y = normalize(x, c.spec, weight);
        const Tensor dy = to(random_tensor(c.sizes, 3), dtype).set_requires_grad();
        CHECK(max_difference(grad({y}, {x}, {dy}, {.retain_graph = true})[0], zeros(c.sizes)) == 0);
        const Tensor dx = grad({y}, {x}, {dy}, {.create_graph = true})[0];
        CHECK(max_difference(dx, zeros(c.sizes)) == 0);
        const Tensor start = to(random_tensor(c.sizes, 4), dtype);
        for (const Tensor& second : grad({dx}, {x, dy}, {start}, {.retain_graph = true})) {
          CHECK(max_difference(second, zeros(c.sizes)) <= (is_half(dtype) ? 0.05 : 1e-4));
        }
      }
    }
  }
}

TEST_CASE("normalize: a set of one element passes NaN on, and other centrings have their gradients") {
  const Tensor x = from_vector<float>({1, NAN, 3}, {3, 1}).set_requires_grad();
  const NormSpec spec{.reduce = {1}};
  CHECK(kinds_of(grad({normalize(x, spec)}, {x}, {ones({3, 1})})[0]) == "fnf");
  // x / sqrt(x^2 + eps) has the slope eps / (x^2 + eps)^1.5.
  const Tensor z = from_vector<double>({0.5, -2}, {2, 1}).set_requires_grad();
  const NormSpec rms{.reduce = {1}, .eps = 0.25, .centring = Centring::none};
  const Tensor expected = from_vector<double>({0.25 / std::pow(0.5, 1.5), 0.25 / std::pow(4.25, 1.5)}, {2, 1});
  CHECK(max_difference(grad({normalize(z, rms)}, {z}, {ones_like(z)})[0], expected) <= 1e-14);
}

// x = torch.randn(4, 3, 2, 2); x[1, 0, 0, 0] = math.inf; x[2, 1, 1, 0] = -math.inf; x[0, 2, 1, 1] = math.nan
// mean, var = torch.zeros(3), torch.ones(3); F.batch_norm(x, mean, var, training=True); mean, var
// -> mean [inf, -inf, nan], var all NaN; with both infinities in one channel its mean is NaN.
TEST_CASE("batch_norm: the running mean of infinite values is infinite, as in PyTorch") {
  for (const Statistics statistics : all_statistics()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      for (const Layout layout : kLayouts) {
        for (const int64_t place : {0, 1, 3}) {  // first of its channel, or later: where a pivot would come from
          for (const Sizes& image : {Sizes{2, 2}, Sizes{9, 7}}) {
            CAPTURE(static_cast<int>(statistics));
            CAPTURE(to_string(dtype));
            CAPTURE(to_string(layout));
            CAPTURE(place);
            const Tensor x = to(random_tensor({4, 5, image[0], image[1]}, 1), dtype);
            const auto put = [&](int64_t n, int64_t c, double value) {
              fill_(select(select(select(select(x, 0, n), 0, c), 0, place / 2), 0, place % 2), value);
            };
            put(0, 0, INFINITY);
            put(place == 0 ? 0 : 2, 1, -INFINITY);
            put(1, 2, NAN);
            put(0, 3, INFINITY);
            put(3, 3, -INFINITY);
            const TensorOptions running{.dtype = dtype == DType::float64 ? dtype : DType::float32};
            const Tensor mean = zeros({5}, running);
            const Tensor var = ones({5}, running);
            batch_norm(in_layout(x, layout), mean, var, {}, {}, {.training = true, .statistics = statistics});
            CHECK(kinds_of(mean) == "+-nnf");
            CHECK(kinds_of(var).substr(2) == "nnf");
            CHECK(kinds_of(var)[0] != 'f');
            CHECK(kinds_of(var)[1] != 'f');
          }
        }
      }
    }
  }
}
