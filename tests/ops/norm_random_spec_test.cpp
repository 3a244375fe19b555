#include "norm_reference.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <set>

using namespace norma;
using namespace norma::test;

namespace {

/// A random tensor: axes in any order in memory, sometimes with gaps.
Tensor random_layout(const Tensor& values, Generator& generator, bool gaps) {
  Axes order;
  for (int64_t axis = 0; axis < values.rank(); ++axis) {
    order.insert(static_cast<int64_t>(generator.below(static_cast<uint64_t>(axis) + 1)), axis);
  }
  Strides strides = Strides::filled(values.rank(), 0);
  int64_t step = gaps ? 2 : 1;
  for (const int64_t axis : order) {
    strides[axis] = step;
    step *= values.size(axis) + (gaps && generator.below(2) == 0 ? 1 : 0);
  }
  const Tensor storage = zeros({step + 1}, {.dtype = values.dtype()});
  const Tensor result = alias(storage, values.sizes(), strides, gaps ? 1 : 0).detach();
  copy_into(values, result);
  return result;
}

Axes random_axes(int64_t rank, Generator& generator) {
  Axes axes;
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (generator.below(2) == 0) {
      axes.push_back(axis);
    }
  }
  return axes;
}

template <class T, size_t n>
T one_of(const T (&choices)[n], Generator& generator) {
  return choices[generator.below(n)];
}

struct RandomCase {
  Sizes sizes;
  NormSpec spec;
  Activation activation = Activation::identity;
  DType dtype = DType::float64;
  DType parameters = DType::float64;
  bool residual = false;
  double offset = 0;
};

RandomCase random_case(Generator& generator) {
  const int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33, 130};
  const Statistics kStatistics[] = {Statistics::stable, Statistics::welford, Statistics::two_pass,
                                    Statistics::compensated, Statistics::sum_of_squares};
  const Centring kCentrings[] = {Centring::mean, Centring::mean, Centring::none, Centring::deviation};
  const Activation kActivations[] = {Activation::identity, Activation::identity, Activation::relu, Activation::gelu,
                                     Activation::silu};
  const DType kDTypes[] = {DType::float64, DType::float32, DType::bfloat16, DType::float16};
  RandomCase c;
  const auto rank = static_cast<int64_t>(2 + generator.below(4));
  int64_t numel = 1;
  for (int64_t axis = 0; axis < rank; ++axis) {
    int64_t size = one_of(kSizes, generator);
    if (numel * size > 1500) {
      size = static_cast<int64_t>(1 + generator.below(3));
    }
    c.sizes.push_back(size);
    numel *= size;
  }
  NormSpec& spec = c.spec;
  spec.reduce = random_axes(rank, generator);
  if (spec.reduce.empty()) {
    spec.reduce.push_back(static_cast<int64_t>(generator.below(static_cast<uint64_t>(rank))));
  }
  spec.affine = random_axes(rank, generator);
  if (spec.reduce.contains(1)) {
    for (const int64_t groups : {4, 3, 2}) {
      if (c.sizes[1] % groups == 0 && generator.below(2) == 0) {
        spec.groups = groups;
        break;
      }
    }
  }
  spec.statistics = one_of(kStatistics, generator);
  spec.centring = one_of(kCentrings, generator);
  // E[x²] - E[x]² needs a variance that is not small against the mean, and a rounded mean one that is not tiny.
  const double kEps[] = {1e-5, 1e-3, 0.1};
  spec.eps = spec.statistics == Statistics::sum_of_squares ? 0.1
             : spec.statistics == Statistics::welford || spec.statistics == Statistics::two_pass
                 ? 0.01
                 : one_of(kEps, generator);
  int64_t elements = 1;
  for (const int64_t axis : spec.reduce) {
    elements *= c.sizes[axis];
  }
  if (spec.centring != Centring::none && elements / spec.groups > 1) {
    spec.correction = static_cast<int64_t>(generator.below(2));
  }
  c.activation = one_of(kActivations, generator);
  c.residual = generator.below(2) == 0;
  c.dtype = one_of(kDTypes, generator);
  c.parameters = c.dtype == DType::float64 || generator.below(2) == 0 ? c.dtype : DType::float32;
  c.offset = generator.below(3) == 0 && spec.statistics != Statistics::sum_of_squares ? 3 : 0;
  return c;
}

/// Half a step of the result's own rounding, and some of the arithmetic's, at the largest number that enters.
double tolerance(DType dtype, const RandomCase& c, double scale) {
  const DType arithmetic = c.dtype == DType::float64 ? DType::float64 : DType::float32;
  const double steps = c.dtype == DType::float64                         ? 600  // the definition rounds as well
                       : c.spec.statistics == Statistics::sum_of_squares ? 200
                                                                         : 60;
  return 0.51 * rounding_step(dtype, scale) + steps * rounding_step(arithmetic, scale);
}

}  // namespace

TEST_CASE("norm_act: 2400 random cases against the definition, forward and backward") {
  constexpr int kCases = 2400;
  Generator generator(7);
  int checked = 0;
  for (int trial = 0; trial < kCases; ++trial) {
    const RandomCase c = random_case(generator);
    const auto seed = static_cast<uint64_t>(trial);
    const bool gaps = generator.below(3) == 0;
    const auto random_values = [&](const Sizes& sizes, uint64_t number, DType dtype, double offset = 0) {
      return to(add(random_tensor(sizes, seed + 10000 * number), offset), dtype);
    };
    Tensor x = random_layout(random_values(c.sizes, 0, c.dtype, c.offset), generator, gaps);
    Tensor residual =
        c.residual ? random_layout(random_values(c.sizes, 1, c.dtype), generator, generator.below(3) == 0) : Tensor{};
    const Sizes affine = affine_sizes(x, c.spec);
    Tensor weight = generator.below(4) == 0 ? Tensor{} : random_values(affine, 2, c.parameters);
    Tensor bias = generator.below(4) == 0 ? Tensor{} : random_values(affine, 3, c.parameters);
    Tensor dy_values = random_values(c.sizes, 4, DType::float64);
    if (c.activation == Activation::relu) {
      // The gradient jumps at 0: no weight on elements whose sign could be a matter of rounding.
      const std::vector<double> z = reference_norm(x, c.spec, weight, bias, {.residual = residual}).y;
      for (size_t i = 0; i < z.size(); ++i) {
        if (std::abs(z[i]) < 1e-3) {
          set_element(dy_values, static_cast<int64_t>(i), 0.0);
        }
      }
    }
    const Tensor dy = random_layout(to(dy_values, c.dtype), generator, generator.below(3) == 0);
    CAPTURE(trial);
    CAPTURE(to_string(c.sizes));
    CAPTURE(to_string(x.strides()));
    CAPTURE(to_string(c.dtype));
    CAPTURE(to_string(c.parameters));
    CAPTURE(to_string(c.spec.reduce));
    CAPTURE(to_string(c.spec.affine));
    CAPTURE(to_string(c.spec.statistics));
    CAPTURE(static_cast<int>(c.spec.centring));
    CAPTURE(c.spec.correction);
    CAPTURE(c.spec.eps);
    CAPTURE(c.spec.groups);
    CAPTURE(to_string(c.activation));
    CAPTURE(c.residual);

    Tensors inputs;
    for (Tensor* input : {&x, &weight, &bias, &residual}) {
      if (input->defined()) {
        input->set_requires_grad();
        inputs.push_back(*input);
      }
    }
    const ReferenceNorm expected =
        reference_norm(x, c.spec, weight, bias, {.dy = dy, .activation = c.activation, .residual = residual});
    double scale = 1;
    for (const auto* values :
         {&expected.y, &expected.dx, &expected.terms, &expected.dweight, &expected.dbias, &expected.dresidual}) {
      scale = std::max(scale, largest(*values));
    }
    const Tensor y = norm_act(x, c.spec, weight, bias, {.activation = c.activation, .residual = residual});
    CHECK(y.dtype() == c.dtype);
    CHECK(y.strides() == preserved_strides(x.sizes(), x.strides()));
    CHECK(distance(y, expected.y) <= tolerance(c.dtype, c, scale));

    const Tensors fused = grad({y}, inputs, {dy}, {.retain_graph = true});
    size_t next = 0;
    for (const auto& [input, values] : {std::pair(x, &expected.dx),
                                        {weight, &expected.dweight},
                                        {bias, &expected.dbias},
                                        {residual, &expected.dresidual}}) {
      if (input.defined()) {
        CAPTURE(next);
        CHECK(fused[next].dtype() == input.dtype());
        CHECK(distance(fused[next], *values) <= tolerance(input.dtype(), c, scale));
        ++next;
      }
    }
    if (c.dtype == DType::float64) {
      // The kernels' backward against the same written in differentiable functions.
      const Tensors composed = grad({y}, inputs, {dy}, {.create_graph = true});
      for (size_t i = 0; i < inputs.size(); ++i) {
        CHECK(max_difference(fused[i], composed[i]) <= 1e-10 * scale);
      }
    }
    ++checked;
  }
  CHECK(checked == kCases);
}
