#include "ops/norm/norm.h"

#include "error_text.h"
#include "ops/norm_properties.h"

using namespace norma;
using namespace norma::test;

namespace {

std::vector<double> reference(const Tensor& weight, const std::vector<double>& factor, double eps) {
  std::vector<double> values = weight.to_vector<double>();
  const auto fan_in = static_cast<size_t>(weight.numel() / weight.size(0));
  for (size_t o = 0; o < factor.size(); ++o) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(o * fan_in);
    const std::vector<double> row(begin, begin + static_cast<std::ptrdiff_t>(fan_in));
    double mean = 0;
    for (const double value : row) {
      mean += value / static_cast<double>(fan_in);
    }
    const double scale = factor[o] / std::sqrt(variance_of(row) + eps);
    for (size_t i = 0; i < fan_in; ++i) {
      values[o * fan_in + i] = (row[i] - mean) * scale;
    }
  }
  return values;
}

}  // namespace

TEST_CASE("standardize_weight: values of PyTorch") {
  // w = torch.linspace(-1, 2, 12, dtype=torch.float64).view(3, 2, 2, 1) ** 3
  // torch.nn.functional.batch_norm(w.reshape(1, 3, -1), None, None, training=True, eps=1e-6,
  //     weight=torch.tensor([1., 2., .5], dtype=torch.float64) * 1.5 * 4 ** -.5)                    (PyTorch 1.13)
  std::vector<double> values;
  for (int i = 0; i < 12; ++i) {
    values.push_back(std::pow(-1 + 3 * static_cast<double>(i) / 11, 3));
  }
  const Tensor w = from_vector(values, {3, 2, 2, 1});
  const Tensor gain = from_vector<double>({1, 2, 0.5}, {3, 1, 1, 1});
  CHECK(distance_to(standardize_weight(w, gain, {.gamma = 1.5}),
                    {-1.211894556486064, -0.02606224852658201, 0.5342760947949314, 0.7036807102177146,
                     -1.3307413663936918, -1.0918903519127727, -0.034121573497274106, 2.456753291803739,
                     -0.4427337764769024, -0.21871260900297818, 0.10723288111311068, 0.5542135043667699}) <= 1e-13);
}

TEST_CASE("standardize_weight: values by the definition") {
  for (const Sizes& sizes :
       {Sizes{5, 3, 3, 2}, Sizes{4, 33}, Sizes{1, 2, 1, 1}, Sizes{3, 1, 7, 7}, Sizes{2, 3, 2, 1, 2}}) {
    const auto count = static_cast<size_t>(sizes[0]);
    const double root = std::sqrt(static_cast<double>(sizes.numel() / sizes[0]));
    const std::vector<double> gains = random_tensor({sizes[0]}, 2).to_vector<double>();
    Sizes of_gain = Sizes::filled(sizes.size(), 1);
    of_gain[0] = sizes[0];
    const Tensor gain = from_vector<double>(gains, of_gain);
    std::vector<double> both = gains;
    for (double& value : both) {
      value *= 1.7 / root;
    }
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(sizes));
      CAPTURE(to_string(layout));
      const Tensor w = in_layout(random_tensor(sizes, 1), layout);
      for (const Statistics statistics : all_statistics()) {
        CHECK(distance_to(standardize_weight(w, {}, {.statistics = statistics}),
                          reference(w, std::vector<double>(count, 1), 1e-6)) <= 1e-13);
      }
      CHECK(distance_to(standardize_weight(w, gain, {.eps = 0.1}), reference(w, gains, 0.1)) <= 1e-13);
      CHECK(distance_to(standardize_weight(w, gain, {.gamma = 1.7}), reference(w, both, 1e-6)) <= 1e-13);
      CHECK(distance_to(standardize_weight(w, {}, {.gamma = 1.7}),
                        reference(w, std::vector<double>(count, 1.7 / root), 1e-6)) <= 1e-13);
      CHECK(standardize_weight(w).strides() == preserved_strides(w.sizes(), w.strides()));
    }
  }
}

TEST_CASE("standardize_weight: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{3, 2, 2, 3}, Sizes{2, 5}, Sizes{2, 3, 1, 1}}) {
    check_gradients(
        "standardize_weight " + to_string(sizes),
        [](const Tensors& in) { return Tensors{standardize_weight(in[0], in[1], {.gamma = 1.7})}; },
        {random_tensor(sizes, 11), random_tensor({sizes[0], 1, 1, 1}, 12)}, /* twice= */ true);
    check_gradients(
        "standardize_weight alone " + to_string(sizes),
        [](const Tensors& in) { return Tensors{standardize_weight(in[0])}; }, {random_tensor(sizes, 11)},
        /* twice= */ true);
  }
}

TEST_CASE("standardize_weight: float32 and 16 bits") {
  check_float32("standardize_weight",
                [](const Tensors& in) { return Tensors{standardize_weight(in[0], in[1], {.gamma = 1})}; },
                {random_tensor({4, 3, 2, 3}, 5), random_tensor({4, 1, 1, 1}, 6)});
  check_sixteen_bits("standardize_weight",
                     [](const Tensors& in) { return Tensors{standardize_weight(in[0], in[1], {.gamma = 1})}; },
                     {random_tensor({4, 3, 2, 3}, 5), random_tensor({4, 1, 1, 1}, 6)});
}

TEST_CASE("standardize_weight: error texts") {
  CHECK(error_of([] { standardize_weight({}); }) == "standardize_weight: weight: expected a tensor, got none");
  CHECK(error_of([] { standardize_weight(ones({3})); }) ==
        "standardize_weight: weight: expected rank 2 to 5, got rank 1 (sizes [3])");
  CHECK(error_of([] {
          standardize_weight(ones({3, 2}, {.dtype = DType::int64}));
        }) == "standardize_weight: weight: expected a floating dtype, got int64");
  CHECK(error_of([] {
          standardize_weight(ones({3, 1, 1, 1}));
        }) == "standardize_weight: weight: expected more than 1 value per output channel, got sizes [3, 1, 1, 1]");
  CHECK(error_of([] {
          standardize_weight(ones({3, 2}), ones({2}));
        }) == "standardize_weight: gain: expected 3 values, got sizes [2]");
  CHECK(error_of([] {
          standardize_weight(ones({3, 2}), ones({3}, {.dtype = DType::float64}));
        }) == "standardize_weight: gain: expected dtype float32, got float64");
  CHECK(error_of([] {
          standardize_weight(ones({3, 2}), {}, {.eps = -1});
        }) == "standardize_weight: eps: expected a value >= 0, got -1");
}
