#include "norm_reference.h"
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

}  // namespace

TEST_CASE("normalize: 600 random specs against the definition, forward and backward") {
  Generator generator(7);
  const int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33, 130};
  int checked = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const auto rank = static_cast<int64_t>(2 + generator.below(4));
    Sizes sizes;
    int64_t numel = 1;
    for (int64_t axis = 0; axis < rank; ++axis) {
      int64_t size = kSizes[generator.below(std::size(kSizes))];
      if (numel * size > 3000) {
        size = static_cast<int64_t>(1 + generator.below(3));
      }
      sizes.push_back(size);
      numel *= size;
    }
    NormSpec spec;
    spec.reduce = random_axes(rank, generator);
    if (spec.reduce.empty()) {
      spec.reduce.push_back(static_cast<int64_t>(generator.below(static_cast<uint64_t>(rank))));
    }
    spec.affine = random_axes(rank, generator);
    if (spec.reduce.contains(1)) {
      for (const int64_t groups : {4, 3, 2}) {
        if (sizes[1] % groups == 0 && generator.below(2) == 0) {
          spec.groups = groups;
          break;
        }
      }
    }
    Sizes affine_sizes;
    for (const int64_t axis : spec.affine) {
      affine_sizes.push_back(sizes[axis]);
    }
    const bool gaps = generator.below(3) == 0;
    const auto seed = static_cast<uint64_t>(trial);
    Tensor x = random_layout(random_tensor(sizes, seed), generator, gaps);
    Tensor dy = random_layout(random_tensor(sizes, seed + 10000), generator, false);
    Tensor weight = generator.below(4) == 0 ? Tensor{} : random_tensor(affine_sizes, seed + 20000);
    Tensor bias = generator.below(4) == 0 ? Tensor{} : random_tensor(affine_sizes, seed + 30000);
    CAPTURE(trial);
    CAPTURE(to_string(sizes));
    CAPTURE(to_string(x.strides()));
    CAPTURE(to_string(spec.reduce));
    CAPTURE(to_string(spec.affine));
    CAPTURE(spec.groups);

    x.set_requires_grad();
    Tensors inputs{x};
    for (Tensor* parameter : {&weight, &bias}) {
      if (parameter->defined()) {
        parameter->set_requires_grad();
        inputs.push_back(*parameter);
      }
    }
    const Tensor y = normalize(x, spec, weight, bias);
    CHECK(distance(y, reference_norm(x, spec, weight, bias).y) <= 1e-11);
    CHECK(y.strides() == preserved_strides(x.sizes(), x.strides()));

    // The kernels' backward against the same written in differentiable functions.
    const Tensors fused = grad({y}, inputs, {dy}, {.retain_graph = true});
    const Tensors composed = grad({y}, inputs, {dy}, {.create_graph = true});
    for (size_t i = 0; i < inputs.size(); ++i) {
      CHECK(max_difference(fused[i], composed[i]) <= 1e-10);
    }
    ++checked;
  }
  CHECK(checked == 600);
}
