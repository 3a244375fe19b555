#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/norm_table.h"
#include "ops/shape/view.h"

#include <span>

// Norms against their definition: all cases of the table, and random ones.

using namespace norma;
using namespace norma::test;

namespace {

constexpr Activation kActivations[] = {Activation::identity, Activation::relu, Activation::gelu, Activation::silu};

bool is_large(const Sizes& sizes) {
  return sizes.numel() > 10000;
}

double steps_of(DType dtype) {
  return dtype == DType::float64 ? 600 : 20;  // the definition rounds, too
}

/// Large tensors come in two layouts, for time.
void check_layouts(const SpecCase& c, NormOperands of, Activation activation) {
  CAPTURE(c.name);
  CAPTURE(to_string(c.sizes));
  CAPTURE(to_string(of.x.dtype()));
  CAPTURE(to_string(activation));
  const ReferenceNorm expected = definition_of(c.spec, of, activation);
  for (const Layout layout : std::span(kLayouts).first(is_large(c.sizes) ? 2 : 4)) {
    CAPTURE(to_string(layout));
    check_definition(expected, c.spec, in_layout(of, layout), activation, steps_of(of.x.dtype()));
  }
}

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
  const Activation kDrawn[] = {Activation::identity, Activation::identity, Activation::relu, Activation::gelu,
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
  c.activation = one_of(kDrawn, generator);
  c.residual = generator.below(2) == 0;
  c.dtype = one_of(kDTypes, generator);
  c.parameters = c.dtype == DType::float64 || generator.below(2) == 0 ? c.dtype : DType::float32;
  c.offset = generator.below(3) == 0 && spec.statistics != Statistics::sum_of_squares ? 3 : 0;
  return c;
}

}  // namespace

TEST_CASE("norms: values and gradients against the definition, dtypes × layouts × affine" *
          doctest::test_suite("slow-emulated")) {
  // Around the vector width; C = 1; H = W = 1; N = 1; runs long and short; sets that fill several blocks.
  const Sizes kShapes[] = {{2, 32, 3, 5},   {3, 31, 2, 2},  {2, 33, 4, 1},   {4, 1, 5, 3},    {5, 8, 1, 1},
                           {1, 12, 7, 9},   {1, 1, 2, 3},   {2, 64, 16, 16}, {70, 20, 8, 4},  {3, 4, 70, 64},
                           {300, 36, 1, 1}, {9, 160, 5, 5}, {130, 24, 2, 2}, {2, 1300, 3, 3}, {3, 4, 80, 80},
                           {2, 6, 22, 14},  {2, 72, 3, 5}};
  for (const Sizes& sizes : kShapes) {
    for (const SpecCase& c : image_norms(sizes)) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        for (const int affine : {0, 1, 2, 3}) {  // weight and bias come both or either
          if (is_large(sizes) && affine != 3) {
            continue;
          }
          CAPTURE(affine);
          NormOperands of = operands_of(c, dtype);
          of.weight = (affine & 1) != 0 ? of.weight : Tensor();
          of.bias = (affine & 2) != 0 ? of.bias : Tensor();
          check_layouts(c, of, Activation::identity);
        }
      }
    }
  }
}

TEST_CASE("norms: gradients of sets that fill many tiles and blocks against the definition" *
          doctest::test_suite("slow-emulated")) {
  for (const Sizes& sizes :
       {Sizes{40, 36, 16, 16}, Sizes{130, 1100, 2, 1}, Sizes{3, 8, 70, 65}, Sizes{600, 20, 3, 3}}) {
    const std::vector<SpecCase> norms = image_norms(sizes);
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, norms.size() - 1}) {
      // The last, simple, has a dx of its own. The others have the loops of the first four.
      check_layouts(norms[i], operands_of(norms[i], DType::float64), Activation::identity);
    }
  }
}

TEST_CASE("norm_act: values and gradients against the definition, activations × residuals") {
  // Maps and rows whose bits fill bytes, and others.
  for (const Sizes& sizes : {Sizes{3, 6, 5, 7}, Sizes{2, 33, 1, 3}, Sizes{2, 3, 20, 17}, Sizes{3, 16, 6, 4}}) {
    for (const SpecCase& c : image_norms(sizes)) {
      for (const DType dtype : {DType::float64, DType::float32}) {
        for (const Activation activation : kActivations) {
          for (const bool with_residual : {false, true}) {
            CAPTURE(with_residual);
            check_layouts(c, operands_of(c, dtype, with_residual), activation);
          }
        }
      }
    }
  }
}

TEST_CASE("norm_act: 2400 random cases against the definition, forward and backward" *
          doctest::test_suite("slow-emulated")) {
  constexpr int kCases = 2400;
  Generator generator(7);
  for (int trial = 0; trial < kCases; ++trial) {
    const RandomCase c = random_case(generator);
    const bool gaps = generator.below(3) == 0;
    const auto random_values = [&](const Sizes& sizes, uint64_t number, DType dtype, double offset = 0) {
      return to(add(random_tensor(sizes, static_cast<uint64_t>(trial) + 10000 * number), offset), dtype);
    };
    NormOperands of{.x = random_layout(random_values(c.sizes, 0, c.dtype, c.offset), generator, gaps)};
    if (c.residual) {
      of.residual = random_layout(random_values(c.sizes, 1, c.dtype), generator, generator.below(3) == 0);
    }
    const Sizes affine = affine_sizes(of.x, c.spec);
    of.weight = generator.below(4) == 0 ? Tensor{} : random_values(affine, 2, c.parameters);
    of.bias = generator.below(4) == 0 ? Tensor{} : random_values(affine, 3, c.parameters);
    of.dy = random_layout(random_values(c.sizes, 4, c.dtype), generator, generator.below(3) == 0);
    CAPTURE(trial);
    CAPTURE(to_string(c.sizes));
    CAPTURE(to_string(of.x.strides()));
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
    const double steps = c.dtype == DType::float64                         ? 600  // the definition rounds as well
                         : c.spec.statistics == Statistics::sum_of_squares ? 200
                                                                           : 60;
    check_definition(definition_of(c.spec, of, c.activation), c.spec, of, c.activation, steps);
  }
}

TEST_CASE("norm reference: takes the place of the kernels, forward and backward") {
  for (const SpecCase& c : image_norms({3, 6, 5, 7})) {
    CAPTURE(c.name);
    NormOperands of = operands_of(c, DType::float64, /* with_residual= */ true);
    const ReferenceNorm expected = definition_of(c.spec, of, Activation::silu);
    const ByReference guard;
    for (const Layout layout : kLayouts) {
      check_definition(expected, c.spec, in_layout(of, layout), Activation::silu, /* steps= */ 1);
    }
  }
}

TEST_CASE("norm reference: fixed statistics, 16 bits and second derivatives") {
  const Tensor x = random_tensor({2, 4, 3, 5}, 1);
  const Tensor mean = random_tensor({4}, 2);
  const Tensor var = add(abs(random_tensor({4}, 3)), 0.5);
  const Tensor dy = random_tensor(x.sizes(), 4);
  const auto gradient = [&](DType dtype) {
    Tensor leaf = to(x, dtype).set_requires_grad();
    const Tensor y = batch_norm(leaf, to(mean, DType::float32), to(var, DType::float32), {}, {}, {.training = false});
    return grad({y}, {leaf}, {to(dy, dtype)})[0];
  };
  const auto second = [&] {
    Tensor leaf = copy_of(x).set_requires_grad();
    const Tensor y = group_norm(leaf, 2);
    const Tensor first = grad({y}, {leaf}, {dy}, {.create_graph = true})[0];
    return grad({first}, {leaf}, {x})[0];
  };
  const Tensor fixed = gradient(DType::float32);
  const Tensor fixed_half = gradient(DType::bfloat16);
  const Tensor twice = second();
  const ByReference guard;
  CHECK(max_difference(gradient(DType::float32), fixed) <= 1e-6);
  CHECK(max_difference(gradient(DType::bfloat16), fixed_half) <= 0.02);
  CHECK(max_difference(second(), twice) <= 1e-10);
}

TEST_CASE("norm reference: the profile names it") {
  const ByReference guard;
  const OpProfile profile;
  layer_norm(random_tensor({3, 5}, 1), {5});
  bool found = false;
  for (const OpRecord& record : profile.records()) {
    found = found || record.work.implementation == "reference";
  }
  CHECK(found);
}
