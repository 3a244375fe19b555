#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "lab/judge/audit.h"
#include "ops/norm/norm.h"
#include "session/progress.h"

#include <array>
#include <chrono>

namespace norma::lab::judge {

namespace {

struct WalkInput {
  const char* walk;
  Sizes sizes;
  Sizes quick_sizes;
  NormSpec spec;
};

// Each input has about a million elements, more than the inner caches hold.
const std::array kWalkInputs = {
    WalkInput{"rows", {1024, 1024}, {128, 1024}, {.reduce = {1}, .affine = {1}}},
    WalkInput{"columns", {4096, 256}, {512, 256}, {.reduce = {0}, .affine = {1}}},
    WalkInput{"runs", {16, 64, 32, 32}, {2, 64, 32, 32}, {.reduce = {0, 2, 3}, .affine = {1}}},
};
constexpr int kRounds = 11;
constexpr int kQuickRounds = 5;

double seconds_of(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias) {
  synchronize(x.device());
  const auto start = std::chrono::steady_clock::now();
  const Tensor y = normalize(x, spec, weight, bias);
  synchronize(x.device());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::vector<Cost> measure_costs(DType dtype, const std::vector<Statistics>& statistics, bool quick) {
  std::vector<Statistics> kinds = statistics;
  kinds.erase(std::remove(kinds.begin(), kinds.end(), Statistics::stable), kinds.end());
  kinds.insert(kinds.begin(), Statistics::stable);
  std::vector<Cost> costs;
  for (const WalkInput& input : kWalkInputs) {
    const Sizes& sizes = quick ? input.quick_sizes : input.sizes;
    Generator generator(0);
    const Tensor x = copy_of(randn(sizes, {}, generator), MemoryFormat::contiguous, dtype);
    const Sizes affine = {sizes[input.spec.affine[0]]};
    const Tensor weight = ones(affine, {.dtype = dtype});
    const Tensor bias = zeros(affine, {.dtype = dtype});
    // All kinds take turns, so that a slow moment of the machine meets all; the first round only warms up.
    std::vector<std::vector<double>> seconds(kinds.size());
    for (int round = 0; round <= (quick ? kQuickRounds : kRounds); ++round) {
      for (size_t i = 0; i < kinds.size(); ++i) {
        NormSpec spec = input.spec;
        spec.statistics = kinds[i];
        const double one = seconds_of(x, spec, weight, bias);
        if (round > 0) {
          seconds[i].push_back(one);
        }
      }
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      std::vector<double> ratios;
      for (size_t round = 0; round < seconds[i].size(); ++round) {
        ratios.push_back(seconds[i][round] / seconds[0][round]);
      }
      costs.push_back({.dtype = dtype,
                       .walk = input.walk,
                       .sizes = sizes,
                       .statistics = kinds[i],
                       .seconds = train::median(seconds[i]),
                       .relative = train::median(ratios)});
    }
  }
  return costs;
}

}  // namespace norma::lab::judge
