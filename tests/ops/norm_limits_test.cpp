#include "core/copy.h"
#include "core/tape.h"
#include "norm_reference.h"
#include "ops/norm/norm.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cmath>
#include <string>

// Norms of sets with one element, and running statistics of infinite values.

using namespace norma;
using namespace norma::test;

namespace {

constexpr Statistics kStatistics[] = {Statistics::stable, Statistics::two_pass, Statistics::welford,
                                      Statistics::compensated, Statistics::sum_of_squares};

std::string kinds_of(const Tensor& x) {
  std::string kinds;
  for (const double value : x.to_vector<double>()) {
    kinds += std::isnan(value) ? 'n' : std::isfinite(value) ? 'f' : value > 0 ? '+' : '-';
  }
  return kinds;
}

}  // namespace

// y = x + anything - its mean = 0: nothing depends on x.
TEST_CASE("normalize: a set of one element has a gradient of exactly 0, in every walk, dtype and kind of statistics") {
  struct Case {
    std::string name;
    Sizes sizes;
    NormSpec spec;
  };
  const std::vector<Case> cases = {
      {"rows", {37, 1}, {.reduce = {1}, .affine = {1}}},
      {"rows, no weight", {37, 1}, {.reduce = {1}}},
      {"columns", {1, 37}, {.reduce = {0}, .affine = {1}}},
      {"rows, weight by channel", {5, 33, 1}, {.reduce = {2}, .affine = {1}}},
      {"channels of one pixel", {1, 33, 1, 1}, {.reduce = {0, 2, 3}, .affine = {1}}},
      {"groups of one channel", {3, 8, 1, 1}, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 8}},
  };
  for (Case c : cases) {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      for (const Statistics statistics : kStatistics) {
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
  for (const Statistics statistics : kStatistics) {
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
