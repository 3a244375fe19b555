#include "norm_reference.h"
#include "ops/reduce/reduce.h"

#include <limits>

using namespace norma;
using namespace norma::test;

namespace {

/// x as the input of each walk, with what is reduced: rows, columns, groups with short and with long runs.
struct WalkCase {
  std::string name;
  Sizes sizes;
  NormSpec spec;
};
const WalkCase kWalks[] = {{"rows", {64, 128}, {.reduce = {1}}},
                           {"long rows", {3, 20000}, {.reduce = {1}}},
                           {"columns", {128, 64}, {.reduce = {0}}},
                           {"columns in blocks", {20000, 33}, {.reduce = {0}}},
                           {"narrow columns", {900, 3}, {.reduce = {0}}},
                           {"groups", {40, 6, 5}, {.reduce = {0, 2}}},
                           {"groups in blocks", {9000, 4, 7}, {.reduce = {0, 2}}},
                           {"groups of long runs", {9, 4, 300}, {.reduce = {0, 2}}}};

double worst_error(const Tensor& x, const NormSpec& spec) {
  return distance(normalize(x, spec), reference_norm(x, spec).y);
}

}  // namespace

TEST_CASE("stable: exact to rounding at any offset, in every walk") {
  // Against float64 of the same rounded inputs. PyTorch 1.13's layer_norm is off by 1.8e-3 at 1e4 and by 0.12 at 1e6.
  for (const WalkCase& walk : kWalks) {
    for (const double offset : {0.0, 1e2, 1e4, 1e6, -1e6}) {
      const Tensor x = add(random_tensor(walk.sizes, 5, DType::float32), offset);
      CAPTURE(walk.name);
      CAPTURE(offset);
      CHECK(worst_error(x, walk.spec) <= 2e-6);  // outputs go up to about 4: one unit in the last place is 4.8e-7
    }
  }
}

TEST_CASE("stable: float64 at a mean of 1e12") {
  for (const WalkCase& walk : kWalks) {
    // Multiples of 1/8, so that x and the reference's mean are exact.
    Tensor x = random_tensor(walk.sizes, 6);
    change_elements<double>(x, [&](double* values) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        values[i] = std::round(values[i] * 8) / 8;
      }
    });
    const Tensor far = add(x, 1e12);
    CAPTURE(walk.name);
    CHECK(distance(normalize(far, walk.spec), reference_norm(x, walk.spec).y) <= 1e-11);
  }
}

TEST_CASE("stable: the first element of a set is an outlier") {
  // The pivot is then far from the mean, and the sum of squares around it would cancel.
  for (const WalkCase& walk : kWalks) {
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

TEST_CASE("sum_of_squares: exact near 0, cancels far from it") {
  for (const WalkCase& walk : kWalks) {
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
  for (const WalkCase& walk : kWalks) {
    CAPTURE(walk.name);
    const Tensor y = normalize(full(walk.sizes, 1e10), walk.spec);
    CHECK(max_difference(y, zeros(walk.sizes)) == 0);
  }
}

TEST_CASE("norms: NaN and Inf reach only the outputs that depend on them") {
  for (const WalkCase& walk : kWalks) {
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
