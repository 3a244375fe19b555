#include "core/memory_format.h"
#include "error_text.h"
#include "nn/norm/batch_norm.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "parallel/group.h"
#include "support.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

// Batch norm of a batch that the ranks share, beside that of one process with the whole batch.

using namespace norma;
using test::group;

namespace {

class Parts final : public PartsOfBatch {
 public:
  [[nodiscard]] Tensor all_gather(const Tensor& x) const override { return group().all_gather(x); }
};

struct Case {
  std::vector<int64_t> images;  ///< of each rank
  MemoryFormat format = MemoryFormat::contiguous;
  DType dtype = DType::float64;
  bool affine = true;
  Activation activation = Activation::identity;
  bool residual = false;
  double mean = 0.3;
};

struct Results {
  Tensor y;
  Tensors gradients;  // of x, weight, bias, residual
  Tensor running_mean;
  Tensor running_var;
};

Results results_of(const Case& of, const Tensor& all_x, const Tensor& all_residual, const Tensor& all_dy, int64_t first,
                   int64_t count, std::shared_ptr<const PartsOfBatch> parts) {
  const int64_t channels = all_x.size(1);
  const auto part = [&](const Tensor& x) { return copy_of(narrow(x, 0, first, count), of.format).detach(); };
  Tensor x = part(all_x).set_requires_grad();
  Tensor residual = of.residual ? part(all_residual).set_requires_grad() : Tensor();
  const DType wide = of.dtype == DType::float64 ? DType::float64 : DType::float32;
  Tensor weight = of.affine ? test::random_tensor({channels}, 11, wide).set_requires_grad() : Tensor();
  Tensor bias = of.affine ? test::random_tensor({channels}, 12, wide).set_requires_grad() : Tensor();
  Results results;
  results.running_mean = full({channels}, 0.25, {.dtype = wide});
  results.running_var = full({channels}, 1.5, {.dtype = wide});
  results.y =
      batch_norm(x, results.running_mean, results.running_var, weight, bias,
                 {.momentum = 0.3, .parts = std::move(parts)}, {.activation = of.activation, .residual = residual});
  backward(results.y, part(all_dy));
  for (const Tensor& input : {x, weight, bias, residual}) {
    results.gradients.push_back(input.defined() ? input.grad() : Tensor());
  }
  return results;
}

void check_near(const std::string& what, const Tensor& found, const Tensor& expected, double tolerance) {
  CAPTURE(what);
  REQUIRE(found.defined() == expected.defined());
  if (!found.defined()) {
    return;
  }
  REQUIRE(found.sizes() == expected.sizes());
  const std::vector<double> a = found.to_vector<double>();
  const std::vector<double> b = expected.to_vector<double>();
  double largest = 1;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    worst = std::isfinite(a[i]) ? std::max(worst, std::abs(a[i] - b[i])) : std::numeric_limits<double>::infinity();
  }
  CHECK(worst <= tolerance * largest);
}

void check_case(const Case& of) {
  int64_t total = 0;
  int64_t first = 0;
  for (int rank = 0; rank < group().size(); ++rank) {
    first = rank == group().rank() ? total : first;
    total += of.images[static_cast<size_t>(rank)];
  }
  const int64_t count = of.images[static_cast<size_t>(group().rank())];
  CAPTURE(count);
  const Sizes sizes{total, 5, 3, 7};
  const auto random = [&](uint64_t seed) { return to(test::random_tensor(sizes, seed, DType::float64), of.dtype); };
  const Tensor x = add(random(1), of.mean);
  const Tensor residual = random(2);
  const Tensor dy = random(3);
  const Results expected = results_of(of, x, residual, dy, 0, total, nullptr);
  const Results found = results_of(of, x, residual, dy, first, count, std::make_shared<Parts>());
  // bfloat16: y, dx and the sums have eight bits.
  const double tolerance = of.dtype == DType::float64 ? 1e-12 : of.dtype == DType::float32 ? 1e-5 : 2e-2;
  const auto part = [&](const Tensor& whole) { return narrow(whole.detach(), 0, first, count); };
  CHECK((count == 0 || found.y.is_contiguous(of.format)));
  check_near("y", found.y.detach(), part(expected.y), tolerance);
  check_near("dx", found.gradients[0], part(expected.gradients[0]), tolerance);
  for (const size_t i : {1, 2}) {  // the parts of the weights' gradients add up
    if (expected.gradients[i].defined()) {
      const Tensor sum = to(found.gradients[i], DType::float64);
      group().all_reduce(sum);
      check_near(i == 1 ? "dweight" : "dbias", sum, expected.gradients[i], tolerance);
    }
  }
  if (of.residual) {
    check_near("dresidual", found.gradients[3], part(expected.gradients[3]), tolerance);
  }
  check_near("running_mean", found.running_mean, expected.running_mean, tolerance);
  check_near("running_var", found.running_var, expected.running_var, tolerance);
}

/// Splits for any number of ranks: even, uneven, one image on the last rank, none on the first or the last.
std::vector<std::vector<int64_t>> splits() {
  const auto ranks = static_cast<size_t>(group().size());
  std::vector<std::vector<int64_t>> all;
  all.emplace_back(ranks, 3);
  all.emplace_back(ranks, 4);
  all.back().front() = 1;
  all.emplace_back(ranks, 2);
  all.back().back() = 5;
  if (ranks > 1) {
    all.emplace_back(ranks, 2);
    all.back().back() = 0;
    all.emplace_back(ranks, 3);
    all.back().front() = 0;
  }
  return all;
}

}  // namespace

TEST_CASE("ranks: batch norm over all of them is that of one process, forward and backward") {
  for (const std::vector<int64_t>& images : splits()) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
        for (const bool affine : {true, false}) {
          check_case({.images = images, .format = format, .dtype = dtype, .affine = affine});
        }
        check_case({.images = images, .format = format, .dtype = dtype, .activation = Activation::relu});
        check_case(
            {.images = images, .format = format, .dtype = dtype, .activation = Activation::relu, .residual = true});
      }
    }
  }
}

TEST_CASE("ranks: batch norm over all of them holds at means a million deviations away") {
  for (const std::vector<int64_t>& images : splits()) {
    Case of{.images = images, .mean = 1e6};
    of.dtype = DType::float64;
    // x itself has only ten digits behind the mean.
    const Tensor x = add(
        test::random_tensor({images[static_cast<size_t>(group().rank())], 5, 3, 7}, 1 + group().rank(), DType::float64),
        of.mean);
    const Tensor y = batch_norm(x, {}, {}, {}, {}, {.parts = std::make_shared<Parts>()});
    Tensor moments = zeros({2, 5}, {.dtype = DType::float64, .device = kCpu});
    copy_into(sum(y, {0, 2, 3}), select(moments, 0, 0));
    copy_into(sum(mul(y, y), {0, 2, 3}), select(moments, 0, 1));
    group().all_reduce(moments);
    int64_t values = 0;
    for (const int64_t count : images) {
      values += count * 21;
    }
    for (int64_t channel = 0; channel < 5; ++channel) {
      CHECK(std::abs(moments.to_vector<double>()[static_cast<size_t>(channel)]) <= 1e-8 * static_cast<double>(values));
      CHECK(std::abs(moments.to_vector<double>()[static_cast<size_t>(5 + channel)] / static_cast<double>(values) - 1) <=
            1e-4);
    }
  }
}

TEST_CASE("ranks: batch norm over all of them says what it cannot do") {
  using test::error_of;
  const auto parts = std::make_shared<Parts>();
  const Tensor x = test::random_tensor({group().rank() == 0 ? 1 : 0, 2, 1, 1}, 1, DType::float64);
  CHECK(error_of([&] { batch_norm(x, {}, {}, {}, {}, {.parts = parts}); }) ==
        "batch_norm: input: expected more than 1 value per channel when training, got 1 in all processes");
  Tensor z = test::random_tensor({2, 2, 3, 3}, 1, DType::float64).set_requires_grad();
  const Tensor y = batch_norm(z, {}, {}, {}, {}, {.parts = parts});
  CHECK(error_of([&] { backward(sum(y), {}, {.create_graph = true}); }) ==
        "batch_norm: backward: expected no create_graph where several processes share a batch");
  nn::GhostBatchNorm2d ghost(4, 2);
  CHECK(error_of([&] { ghost.set_parts(parts); }) ==
        "GhostBatchNorm2d: parts: expected batch norm to share statistics between processes, got ghost batch norm");
  nn::BatchRenorm2d renorm(4);
  CHECK(error_of([&] { renorm.set_parts(parts); }) ==
        "BatchRenorm2d: parts: expected batch norm to share statistics between processes, got batch renorm");
}
