#include "built_in_norm_names.h"
#include "core/tape.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

// What the norms keep for backward.

using namespace norma;
using namespace norma::test;

namespace {

/// Bytes kept, over those of x. x is no leaf, so that it counts.
double kept(const std::string& norm, DType dtype, MemoryFormat format, Activation activation, bool residual) {
  const Sizes sizes{4, 64, 14, 14};
  Tensor leaf = in_layout(to(random_tensor(sizes, 1), dtype),
                          format == MemoryFormat::contiguous ? Layout::contiguous : Layout::channels_last);
  leaf.set_requires_grad();
  const Tensor x = add(leaf, 1);  // keeps nothing
  const auto layer = nn::make_norm(norm, sizes[1]);
  const Tensor y = nn::forward_act(*layer, x, {.activation = activation, .residual = residual ? leaf : Tensor{}});
  return static_cast<double>(Tape(y).saved_bytes()) /
         (static_cast<double>(x.numel()) * static_cast<double>(size_of(dtype)));
}

/// Norms that leave a residual to ops behind them, which keep what comes out.
bool residual_apart(const std::string& norm) {
  for (const std::string apart :
       {"local_response", "evonorm_b0", "evonorm_s0", "frn", "grn", "dyt", "derf", "seednorm", "none"}) {
    if (norm == apart) {
      return true;
    }
  }
  return false;
}

/// Norms composed of other ops, which keep another tensor beside x.
bool of_ops(const std::string& norm) {
  return norm == "seednorm";
}

}  // namespace

TEST_CASE("norms keep their input and statistics for backward, and nothing else") {
  // Statistics: up to five numbers for each pixel, which are 10 / 64 of x in bfloat16; and bits of relu, 1 / 16.
  constexpr double kStatistics = 0.22;
  for (const std::string& norm : test::built_in_norm_names()) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(norm);
        CAPTURE(to_string(dtype));
        const double least = of_ops(norm) ? 2 * (4.0 / static_cast<double>(size_of(dtype))) : 1;  // in float32
        const double most = (of_ops(norm) ? least / 2 : 1) * kStatistics + least;
        CHECK(kept(norm, dtype, format, Activation::identity, false) <= most);
        CHECK(kept(norm, dtype, format, Activation::relu, false) <= most);
        CHECK(kept(norm, dtype, format, Activation::relu, true) <= most + (residual_apart(norm) ? 1 : 0));
      }
    }
  }
}
