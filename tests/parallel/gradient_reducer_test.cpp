#include "parallel/gradient_reducer.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "parallel/group.h"
#include "support.h"

#include <vector>

using namespace norma;
using test::group;

namespace {

/// Parameters of several sizes: `twice` is used twice, `first` by the first rank alone, `never` by none.
struct Network {
  Tensor a = test::random_tensor({4, 6}, 1, DType::float64).set_requires_grad();
  Tensor b = test::random_tensor({6, 3}, 2, DType::float64).set_requires_grad();
  Tensor twice = test::random_tensor({3}, 3, DType::float64).set_requires_grad();
  Tensor first = test::random_tensor({1}, 4, DType::float64).set_requires_grad();
  Tensor never = test::random_tensor({5}, 5, DType::float64).set_requires_grad();

  [[nodiscard]] Tensors parameters() const { return {a, b, twice, first, never}; }
  [[nodiscard]] Tensor loss(int rank, int64_t step) const {
    const Tensor x = test::random_tensor({7, 4}, 50 + 10 * rank + step, DType::float64);
    Tensor h = mul(add(matmul(gelu(matmul(x, a)), b), twice), twice);
    if (rank == 0) {
      h = mul(h, first);
    }
    return sum(mul(h, h));
  }
};

void check_sums(const parallel::GradientReducerOptions& options, int64_t passes) {
  const Network own;
  parallel::GradientReducer reducer(group(), own.parameters(), options);
  for (int64_t step = 0; step < 3; ++step) {  // the first one finds the order
    for (Tensor parameter : own.parameters()) {
      parameter.set_grad({});
    }
    for (int64_t pass = 0; pass < passes; ++pass) {
      const Tensor loss = own.loss(group().rank(), 10 * step + pass);
      if (pass + 1 < passes) {
        loss.backward();
        continue;
      }
      backward(loss, {}, {.on_leaf = [&](const Tensor& leaf, const Tensor& g) { reducer.take(leaf, g); }});
    }
    reducer.finish();
    const Network all;
    for (int rank = 0; rank < group().size(); ++rank) {
      for (int64_t pass = 0; pass < passes; ++pass) {
        all.loss(rank, 10 * step + pass).backward();
      }
    }
    for (size_t i = 0; i < all.parameters().size(); ++i) {
      CAPTURE(i);
      const Tensor expected = all.parameters()[i].grad();
      const Tensor found = own.parameters()[i].grad();
      REQUIRE(found.defined() == expected.defined());
      if (found.defined()) {
        CHECK(test::max_difference(found, expected) <= 1e-12 * test::largest_number(expected));
      }
    }
  }
}

}  // namespace

TEST_CASE("ranks: gradients are the sums over all, in buckets of any size, with accumulation") {
  for (const int64_t bytes : {int64_t{1}, int64_t{200}, int64_t{1} << 20}) {
    for (const int64_t passes : {1, 3}) {
      CAPTURE(bytes);
      CAPTURE(passes);
      check_sums({.bucket_bytes = bytes}, passes);
    }
  }
}

TEST_CASE("backward: on_leaf is told of each leaf once, when its gradient is whole") {
  const Network network;
  std::vector<const TensorImpl*> told;
  std::vector<double> sums;
  const Tensor loss = network.loss(0, 0);
  backward(loss, {}, {.on_leaf = [&](const Tensor& leaf, const Tensor& gradient) {
             told.push_back(&leaf.impl());
             sums.push_back(sum(gradient).to_vector<double>()[0]);
             CHECK_FALSE(leaf.grad().defined());
           }});
  const Tensors expected{network.first, network.twice, network.b, network.a};
  REQUIRE(told.size() == expected.size());
  for (size_t i = 0; i < told.size(); ++i) {
    CHECK(told[i] == &expected[i].impl());
    CHECK(sums[i] == sum(expected[i].grad()).to_vector<double>()[0]);
  }
}
