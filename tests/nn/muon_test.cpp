#include "core/copy.h"
#include "core/factory.h"
#include "error_text.h"
#include "nn/optim/optimizers.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::nn;
using namespace norma::test;

namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b[0].size(); ++j) {
      for (size_t k = 0; k < b.size(); ++k) {
        c[i][j] += a[i][k] * b[k][j];
      }
    }
  }
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) {
      t[j][i] = a[i][j];
    }
  }
  return t;
}

/// The iteration in plain loops, which never transposes: (b X Xᵀ + c (X Xᵀ)²) X.
Matrix orthogonal(Matrix x, int steps, double eps) {
  const double coefficients[5][3] = {{4.0848, -6.8946, 2.9270},
                                     {3.9505, -6.3029, 2.6377},
                                     {3.7418, -5.5913, 2.3037},
                                     {2.8769, -3.1427, 1.2046},
                                     {2.8366, -3.0525, 1.2012}};
  double squares = 0;
  for (const auto& row : x) {
    for (const double value : row) {
      squares += value * value;
    }
  }
  const double norm = std::max(std::sqrt(squares), eps);
  for (auto& row : x) {
    for (double& value : row) {
      value /= norm;
    }
  }
  for (int step = 0; step < steps; ++step) {
    const double* k = coefficients[std::min(step, 4)];
    const Matrix once = product(product(x, transposed(x)), x);
    const Matrix twice = product(product(x, transposed(x)), once);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) {
        x[i][j] = k[0] * x[i][j] + k[1] * once[i][j] + k[2] * twice[i][j];
      }
    }
  }
  return x;
}

Matrix rows_of(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  const auto columns = static_cast<size_t>(x.numel() / x.size(0));
  Matrix rows;
  for (size_t i = 0; i < values.size(); i += columns) {
    rows.emplace_back(values.begin() + static_cast<int64_t>(i), values.begin() + static_cast<int64_t>(i + columns));
  }
  return rows;
}

double largest_difference(const Tensor& x, const Matrix& expected) {
  const Matrix rows = rows_of(x);
  REQUIRE(rows.size() == expected.size());
  double difference = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows[i].size(); ++j) {
      REQUIRE(std::isfinite(rows[i][j]));
      difference = std::max(difference, std::abs(rows[i][j] - expected[i][j]));
    }
  }
  return difference;
}

}  // namespace

TEST_CASE("newton_schulz: by the definition, and wide, tall and square matrices become nearly orthogonal") {
  for (const Sizes& sizes : {Sizes{4, 9}, Sizes{11, 5}, Sizes{6, 6}, Sizes{1, 7}}) {
    CAPTURE(to_string(sizes));
    const Tensor x = random_tensor(sizes, 3);
    for (const int64_t steps : {1, 5, 7}) {
      CHECK(largest_difference(newton_schulz(x, steps), orthogonal(rows_of(x), static_cast<int>(steps), 1e-7)) <=
            1e-11);
    }
    const Tensor y = newton_schulz(x);
    const bool is_tall = sizes[0] > sizes[1];
    const Matrix gram = rows_of(is_tall ? matmul(transpose(y, 0, 1), y) : matmul(y, transpose(y, 0, 1)));
    for (size_t i = 0; i < gram.size(); ++i) {
      for (size_t j = 0; j < gram.size(); ++j) {
        CHECK(std::abs(gram[i][j] - (i == j ? 1 : 0)) < 0.35);  // the numbers trade accuracy for fewer steps
      }
    }
  }
  CHECK(largest_difference(newton_schulz(zeros({4, 5}, {.dtype = DType::float64})),
                           Matrix(4, std::vector<double>(5))) == 0);
}

TEST_CASE("newton_schulz: the scale of a matrix makes no difference, in float32 neither") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = to(random_tensor({6, 9}, 4), dtype);
    const Matrix expected = rows_of(to(newton_schulz(x), DType::float64));
    for (const double scale : {1e-36, 1e-24, 1e-10, 1e-7, 1e18, 1e30, 1e37}) {
      CAPTURE(scale);
      CHECK(largest_difference(to(newton_schulz(mul(x, scale)), DType::float64), expected) <= 1e-5);
    }
  }
}

TEST_CASE("muon: steps of filters by the definition in every layout") {
  for (const Layout layout : kLayouts) {
    CAPTURE(to_string(layout));
    const Tensor start = random_tensor({5, 3, 2, 4}, 1);
    Tensor weight = in_layout(clone(start), layout).detach().set_requires_grad();
    Muon optimizer({{.parameters = {{"weight", weight}}, .weight_decay = 0.1, .lr_scale = 2}},
                   {.lr = 0.05, .momentum = 0.8});
    Matrix expected = rows_of(start);
    Matrix momentum(5, std::vector<double>(24));
    for (int step = 1; step <= 4; ++step) {
      const Tensor gradient = random_tensor({5, 3, 2, 4}, static_cast<uint64_t>(10 + step));
      weight.set_grad(in_layout(gradient, layout));
      optimizer.step();
      const Matrix g = rows_of(gradient);
      for (size_t i = 0; i < 5; ++i) {
        for (size_t j = 0; j < 24; ++j) {
          momentum[i][j] = 0.8 * momentum[i][j] + 0.2 * g[i][j];
        }
      }
      const Matrix direction = orthogonal(momentum, 5, 1e-7);
      for (size_t i = 0; i < 5; ++i) {
        for (size_t j = 0; j < 24; ++j) {
          expected[i][j] *= 1 - 0.1 * 0.1;
          expected[i][j] -= 0.1 * 0.2 * std::sqrt(24.0) * direction[i][j];
        }
      }
      CHECK(largest_difference(weight.detach(), expected) <= 1e-11);
    }
  }
}

TEST_CASE("muon: matrices and filters take its steps, all else those of adamw") {
  CHECK(Muon::orthogonalizes({4, 4}));
  CHECK(Muon::orthogonalizes({10, 512}));
  CHECK(Muon::orthogonalizes({64, 3, 7, 7}));
  CHECK(Muon::orthogonalizes({8, 2, 1, 1}) == false);   // 2 columns
  CHECK(Muon::orthogonalizes({3, 100}) == false);       // 3 rows
  CHECK(Muon::orthogonalizes({4, 512}));                // 128 times as many
  CHECK(Muon::orthogonalizes({4, 513}) == false);       // more
  CHECK(Muon::orthogonalizes({96, 1, 7, 7}) == false);  // depthwise
  CHECK(Muon::orthogonalizes({1, 196, 768}) == false);
  CHECK(Muon::orthogonalizes({64}) == false);
  CHECK(Muon::orthogonalizes({}) == false);

  Tensor matrix = random_tensor({5, 7}, 1).set_requires_grad();
  Tensor vector = random_tensor({9}, 2).set_requires_grad();
  Tensor alone = clone(vector.detach()).set_requires_grad();
  Muon muon({{.parameters = {{"matrix", matrix}, {"vector", vector}}, .weight_decay = 0.1}}, {.lr = 0.01});
  AdamW adamw({{.parameters = {{"vector", alone}}, .weight_decay = 0.1}},
              {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-7});
  for (uint64_t step = 1; step <= 3; ++step) {
    matrix.set_grad(random_tensor({5, 7}, 10 + step));
    vector.set_grad(random_tensor({9}, 20 + step));
    alone.set_grad(vector.grad());
    muon.step();
    adamw.step();
    CHECK(max_difference(vector.detach(), alone.detach()) == 0);
  }
  std::vector<std::string> names;
  for (const auto& [name, x] : muon.state_dict()) {
    names.push_back(name);
  }
  CHECK(names == std::vector<std::string>{"step", "states", "momentum.matrix", "exp_avg.vector", "exp_avg_sq.vector"});
}

TEST_CASE("muon: goes on from its state dict with the same bits") {
  const auto run = [](bool stop) {
    Tensor matrix = random_tensor({6, 8}, 1).set_requires_grad();
    const auto make = [&] {
      return std::make_unique<Muon>(std::vector<ParameterGroup>{{.parameters = {{"matrix", matrix}}}});
    };
    auto optimizer = make();
    for (uint64_t step = 1; step <= 4; ++step) {
      if (stop && step == 3) {
        NamedTensors state;
        for (const auto& [name, x] : optimizer->state_dict()) {
          state.emplace_back(name, clone(x));
        }
        optimizer = make();
        optimizer->load_state_dict(state);
      }
      matrix.set_grad(random_tensor({6, 8}, 10 + step));
      optimizer->step();
    }
    return matrix.detach();
  };
  CHECK(max_difference(run(true), run(false)) == 0);
}

TEST_CASE("muon: error texts") {
  const auto error = [](const MuonOptions& options) { return error_of([&] { Muon({}, options); }); };
  CHECK(error({.momentum = 1.5}) == "muon: momentum: expected a value in [0, 1], got 1.5");
  CHECK(error({.newton_schulz_steps = 0}) == "muon: newton_schulz_steps: expected at least 1, got 0");
  CHECK(error({.eps = -1}) == "muon: eps: expected a finite number of at least 0, got -1");
  CHECK(error({.beta2 = 1}) == "muon: beta1, beta2: expected values in [0, 1), got 0.9, 1");
}
