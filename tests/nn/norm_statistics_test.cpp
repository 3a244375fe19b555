#include "core/factory.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/map_norms.h"
#include "nn/norm/norm.h"
#include "ops/map_norm/norms.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

using namespace norma;
using namespace norma::nn;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

using Function = std::function<Tensor(const Tensor& x, Statistics statistics)>;

constexpr int64_t kChannels = 8;

Tensor channels_of(double value, DType dtype) {
  return full({kChannels}, value, {.dtype = dtype});
}

std::vector<std::pair<std::string, Function>> functions() {
  return {
      {"batch_norm", [](auto& x, auto s) { return batch_norm(x, {}, {}, {}, {}, {.statistics = s}); }},
      {"ghost_batch_norm", [](auto& x, auto s) { return ghost_batch_norm(x, 2, {}, {}, {}, {}, {.statistics = s}); }},
      {"batch_renorm",
       [](auto& x, auto s) {
         return batch_renorm(x, channels_of(0, x.dtype()), channels_of(1, x.dtype()), {}, {},
                             {.batch_norm = {.statistics = s}, .r_max = 1, .d_max = 0});
       }},
      {"layer_norm",
       [](auto& x, auto s) {
         return layer_norm(x, {8, 9}, {}, {}, {.statistics = s});
       }},
      {"layer_norm_2d", [](auto& x, auto s) { return layer_norm_2d(x, {}, {}, {.statistics = s}); }},
      {"group_norm", [](auto& x, auto s) { return group_norm(x, 2, {}, {}, {.statistics = s}); }},
      {"simple_norm",
       [](auto& x, auto s) {
         return simple_norm(x, {8, 9}, {}, {.statistics = s});
       }},
      {"simple_norm_2d", [](auto& x, auto s) { return simple_norm_2d(x, {}, {.statistics = s}); }},
      {"instance_norm", [](auto& x, auto s) { return instance_norm(x, {}, {}, InstanceNormOptions{.statistics = s}); }},
      {"instance_norm, tracked",
       [](auto& x, auto s) {
         return instance_norm(x, channels_of(0, x.dtype()), channels_of(1, x.dtype()), {}, {},
                              TrackedInstanceNormOptions{.statistics = s});
       }},
      {"evo_norm_b0",
       [](auto& x, auto s) { return evo_norm_b0(x, {}, channels_of(0, x.dtype()), {}, {}, {.statistics = s}); }},
      {"evo_norm_s0",
       [](auto& x, auto s) { return evo_norm_s0(x, 2, channels_of(0, x.dtype()), {}, {}, {.statistics = s}); }},
      {"standardize_weight", [](auto& x, auto s) { return standardize_weight(x, {}, {.statistics = s}); }},
  };
}

template <class Layer>
Tensor run(Layer layer, const Tensor& x) {
  layer.to(x.dtype());
  layer.load_state_dict({{"v", channels_of(0, x.dtype())}}, {.strict = false});  // EvoNorm B0 hides a variance behind v
  return layer(x);
}

std::vector<std::pair<std::string, Function>> layers() {
  return {
      {"BatchNorm2d", [](auto& x, auto s) { return run(BatchNorm2d(kChannels, {.statistics = s}), x); }},
      {"GhostBatchNorm2d", [](auto& x, auto s) { return run(GhostBatchNorm2d(kChannels, 2, {.statistics = s}), x); }},
      {"BatchRenorm2d", [](auto& x, auto s) { return run(BatchRenorm2d(kChannels, 1, 0, {.statistics = s}), x); }},
      {"LayerNorm",
       [](auto& x, auto s) {
         return run(LayerNorm({8, 9}, {.statistics = s}), x);
       }},
      {"LayerNorm2d", [](auto& x, auto s) { return run(LayerNorm2d(kChannels, {.statistics = s}), x); }},
      {"GroupNorm", [](auto& x, auto s) { return run(GroupNorm(2, kChannels, {.statistics = s}), x); }},
      {"SimpleNorm",
       [](auto& x, auto s) {
         return run(SimpleNorm({8, 9}, {.statistics = s}), x);
       }},
      {"SimpleNorm2d", [](auto& x, auto s) { return run(SimpleNorm2d(kChannels, {.statistics = s}), x); }},
      {"InstanceNorm2d", [](auto& x, auto s) { return run(InstanceNorm2d(kChannels, {.statistics = s}), x); }},
      {"InstanceNorm2d, tracked",
       [](auto& x, auto s) {
         return run(InstanceNorm2d(kChannels, {.track_running_stats = true, .statistics = s}), x);
       }},
      {"EvoNorm2dB0", [](auto& x, auto s) { return run(EvoNorm2dB0(kChannels, {.statistics = s}), x); }},
      {"EvoNorm2dS0", [](auto& x, auto s) { return run(EvoNorm2dS0(2, kChannels, {.statistics = s}), x); }},
  };
}

}  // namespace

TEST_CASE("norms: every function and layer computes the statistics it is told to") {
  const Tensor x = add(random_tensor({4, kChannels, 8, 9}, 1, DType::float32), 1e4);
  for (const auto& table : {functions(), layers()}) {
    for (const auto& [name, norm] : table) {
      CAPTURE(name);
      const Tensor exact = norm(to(x, DType::float64), Statistics::stable);
      const double scale = largest_number(exact);
      const auto error = [&](Statistics statistics) { return max_difference(norm(x, statistics), exact) / scale; };
      CHECK(error(Statistics::stable) <= 1e-5);
      CHECK(error(Statistics::compensated) <= 1e-5);
      CHECK(error(Statistics::welford) <= 0.01);
      CHECK(error(Statistics::two_pass) <= 0.01);
      CHECK(error(Statistics::sum_of_squares) > 0.05);
    }
  }
}
