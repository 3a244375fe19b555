#include "core/copy.h"
#include "core/tape.h"
#include "norm_reference.h"
#include "ops/shape/copy.h"

#include <limits>

// Sets whose squares leave the range of float32, in every walk.

using namespace norma;
using namespace norma::test;

namespace {

struct WalkCase {
  std::string name;
  Sizes sizes;
  NormSpec spec;
};
const WalkCase kWalks[] = {{"rows", {24, 128}, {.reduce = {1}, .affine = {1}}},
                           {"rows, weights by segment", {5, 6, 33}, {.reduce = {1, 2}, .affine = {1}}},
                           {"columns", {128, 33}, {.reduce = {0}, .affine = {1}}},
                           {"columns, weights by row", {4, 31, 50}, {.reduce = {1}, .affine = {1}}},
                           {"columns in blocks", {9000, 17}, {.reduce = {0}, .affine = {1}}},
                           {"groups", {40, 6, 5}, {.reduce = {0, 2}, .affine = {1}}},
                           {"groups of long runs", {9, 4, 300}, {.reduce = {0, 2}, .affine = {1}}}};

struct Outcome {
  Tensor y;
  Tensor dx;
  Tensor dweight;
};

Outcome run(const Tensor& values, const NormSpec& spec, const Tensor& dy) {
  Tensor x = values.detach();
  x.set_requires_grad();
  Tensor weight = add(mul(random_tensor({x.size(spec.affine[0])}, 3), 0.1), 0.75);
  weight = to(weight, x.dtype()).detach();
  weight.set_requires_grad();
  const Tensor y = normalize(x, spec, weight);
  y.backward(dy);
  return {y.detach(), x.grad(), weight.grad()};
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.to_vector<double>()) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

/// y, dx and dweight of float32 values are those of the same values in float64.
void check_like_float64(const Tensor& x, const NormSpec& spec) {
  const Tensor dy = random_tensor(x.sizes(), 4, DType::float32);
  const Outcome narrow = run(x, spec, dy);
  const Outcome wide = run(to(x, DType::float64).detach(), spec, to(dy, DType::float64).detach());
  CHECK(max_difference(to(narrow.y, DType::float64), wide.y) <= 2e-6);
  CHECK(max_difference(to(narrow.dx, DType::float64), wide.dx) <= 1e-5 * largest(wide.dx));
  CHECK(max_difference(to(narrow.dweight, DType::float64), wide.dweight) <= 1e-5 * largest(wide.dweight));
}

}  // namespace

TEST_CASE("norms: squares that overflow float32") {
  for (const WalkCase& walk : kWalks) {
    for (const Statistics statistics :
         {Statistics::stable, Statistics::welford, Statistics::two_pass, Statistics::compensated}) {
      for (const double scale : {1e19, 1e30, 5e37}) {
        CAPTURE(walk.name);
        CAPTURE(to_string(statistics));
        CAPTURE(scale);
        NormSpec spec = walk.spec;
        spec.statistics = statistics;
        check_like_float64(to(mul(random_tensor(walk.sizes, 5), scale), DType::float32).detach(), spec);
      }
    }
  }
}

TEST_CASE("norms: squares that underflow float32 where eps does not cover them") {
  for (const WalkCase& walk : kWalks) {
    for (const double scale : {1e-20, 1e-30}) {
      CAPTURE(walk.name);
      CAPTURE(scale);
      NormSpec spec = walk.spec;
      spec.eps = 0;
      check_like_float64(to(mul(random_tensor(walk.sizes, 5), scale), DType::float32).detach(), spec);
    }
  }
}

TEST_CASE("norms: root mean square and deviation of squares that overflow float32") {
  for (const WalkCase& walk : kWalks) {
    for (const Centring centring : {Centring::none, Centring::deviation}) {
      CAPTURE(walk.name);
      NormSpec spec = walk.spec;
      spec.centring = centring;
      spec.correction = centring == Centring::deviation ? 1 : 0;
      check_like_float64(to(mul(random_tensor(walk.sizes, 5), 1e25), DType::float32).detach(), spec);
    }
  }
}

TEST_CASE("norms: float64 at 1e200 is what it is at 1") {
  for (const WalkCase& walk : kWalks) {
    NormSpec spec = walk.spec;
    spec.eps = 0;
    const Tensor x = random_tensor(walk.sizes, 6);
    const Tensor dy = random_tensor(walk.sizes, 7);
    const Outcome near = run(x, spec, dy);
    const double scale = std::ldexp(1.0, 664);
    const Outcome far = run(mul(x, scale).detach(), spec, dy);
    CAPTURE(walk.name);
    CHECK(max_difference(far.y, near.y) <= 1e-13);
    CHECK(max_difference(mul(far.dx, scale), near.dx) <= 1e-11);
  }
}

TEST_CASE("norms: infinities and NaN stay what they are among squares that overflow") {
  Tensor x = to(mul(random_tensor({3, 40}, 8), 1e25), DType::float32).detach();
  set_element(x, 45, std::numeric_limits<float>::infinity());
  set_element(x, 90, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> y = normalize(x, {.reduce = {1}}).to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) {
    CHECK(std::isnan(y[i]) == (i >= 40));
  }
}

TEST_CASE("compensated: float64 at a mean of 1e12") {
  for (const WalkCase& walk : kWalks) {
    // Multiples of 1/8, so that x and the reference's mean are exact.
    Tensor x = random_tensor(walk.sizes, 6);
    change_elements<double>(x, [&](double* values) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        values[i] = std::round(values[i] * 8) / 8;
      }
    });
    NormSpec spec = walk.spec;
    spec.statistics = Statistics::compensated;
    CAPTURE(walk.name);
    CHECK(distance(normalize(add(x, 1e12), spec), reference_norm(x, spec).y) <= 1e-11);
  }
}

TEST_CASE("normalize: the gradient of x / std where the mean is large") {
  // dx = (g - (x - mean) * rstd * m) * rstd: x itself in the product would leave its rounding behind, 0.1 at 1e6.
  for (const WalkCase& walk : kWalks) {
    NormSpec spec = walk.spec;
    spec.centring = Centring::deviation;
    spec.correction = 1;
    const Tensor x = add(random_tensor(walk.sizes, 9, DType::float32), 1e6).detach();
    const Tensor dy = add(random_tensor(walk.sizes, 4, DType::float32), 1.0).detach();
    const Outcome narrow = run(x, spec, dy);
    const Outcome wide = run(to(x, DType::float64).detach(), spec, to(dy, DType::float64).detach());
    CAPTURE(walk.name);
    CHECK(max_difference(to(narrow.dx, DType::float64), wide.dx) <= 1e-5 * largest(wide.dx));
  }
}

TEST_CASE("batch_norm: with running statistics a NaN in x does not reach dx") {
  for (const Sizes& sizes : {Sizes{4, 3, 5, 7}, Sizes{2, 3, 20, 20}, Sizes{64, 3}}) {
    Tensor x = copy_of(random_tensor(sizes, 1, DType::float32));
    set_element(x, x.numel() / 2, std::numeric_limits<float>::quiet_NaN());
    x.set_requires_grad();
    const Tensor running_mean = zeros({3});
    const Tensor running_var = full({3}, 4);
    const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, {.training = false, .eps = 0});
    y.backward(ones(sizes));
    CHECK(max_difference(x.grad(), full(sizes, 0.5)) == 0);
  }
}
