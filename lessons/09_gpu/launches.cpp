#include "launches.h"

#include "kernels.h"

using namespace norma::kernels::emulated;  // NOLINT: a lesson reads better without prefixes

namespace {
constexpr size_t kNoShared = 0;
constexpr size_t kOneNumberAWarp = 32 * sizeof(float);  // at most 32 warps
}  // namespace

void run_who_am_i(int64_t blocks, int threads, int* to) {
  launch(blocks, threads, kNoShared, current_stream(), who_am_i, to);
}
void run_butterfly(const float* x, float* steps) {
  launch(1, 32, kNoShared, current_stream(), butterfly, x, steps);
}
void run_mean_of_rows(int64_t rows, int length, const float* x, float* mean, bool with_barrier) {
  launch(rows, length, kOneNumberAWarp, current_stream(), mean_of_rows, x, mean, with_barrier);
}
void run_variance_of_rows(int64_t rows, int length, const float* x, float* var, bool with_barrier) {
  launch(rows, length, kOneNumberAWarp, current_stream(), variance_of_rows, x, var, with_barrier);
}
void run_half_a_barrier(int threads, float* x) {
  launch(1, threads, kNoShared, current_stream(), half_a_barrier, x);
}
