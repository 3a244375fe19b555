#include "ops/norm/cpu/walks.h"

#include "core/half.h"
#include "ops/norm/statistics.h"

// The table of the norms' CPU kernels.

namespace norma::kernels {

namespace cpu {

namespace {

bool can_write_bits(const NormProblem& problem) {
  // Threads must not share a byte, so every place where a loop begins is a multiple of eight elements.
  const NormShape& shape = problem.shape;
  switch (problem.walk) {
    case Walk::rows: return shape.reduce_inner % 8 == 0;
    case Walk::runs: return (shape.set_is_one_run() ? problem.affine.segment : shape.reduce_inner) % 8 == 0;
    case Walk::columns: return shape.kept * shape.reduce_inner % 8 == 0;
  }
  return false;
}

/// Brings the running statistics up to date with the statistics that `arrays` has now.
void update_running_sets(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    const NormArrays<decltype(s)> typed(problem, arrays);
    for (int64_t set = 0; set < problem.shape.sets(); ++set) {
      update_running_set(typed.running, set, typed.mean[set], typed.var[set]);
    }
  });
}

void compute_forward(DType dtype, const NormProblem& wanted, const NormPointers& arrays) {
  NormProblem problem = wanted;
  if (is_textbook(problem)) {
    dispatch_any_floating("normalize", dtype,
                          [&](auto s) { textbook_statistics(problem, NormArrays<decltype(s)>(problem, arrays)); });
    problem.fixed_stats = true;
  }
  if (problem.fixed_stats && arrays.y == nullptr) {
    return;
  }
  switch (problem.walk) {
    case Walk::rows: return rows_forward(dtype, problem, arrays);
    case Walk::runs: return runs_forward(dtype, problem, arrays);
    case Walk::columns: return columns_forward(dtype, problem, arrays);
  }
}

void forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NormPointers without_running = arrays;
  without_running.running = {};
  compute_forward(dtype, problem, without_running);
  if (arrays.running.mean != nullptr) {
    update_running_sets(dtype, problem, arrays);
  }
}

void backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  switch (problem.walk) {
    case Walk::rows: return rows_backward(dtype, problem, arrays);
    case Walk::runs: return runs_backward(dtype, problem, arrays);
    case Walk::columns: return columns_backward(dtype, problem, arrays);
  }
}

}  // namespace

}  // namespace cpu

constinit const NormKernels norm_cpu{.forward = cpu::forward,
                                     .backward = cpu::backward,
                                     .can_write_bits = cpu::can_write_bits,
                                     .positive_bits = cpu::positive_bits,
                                     .mask_by_bits = cpu::mask_by_bits,
                                     .rstd = cpu::rstd_of,
                                     .power_of_two = cpu::power_of_two,
                                     .update_running = cpu::update_running,
                                     .renorm = cpu::renorm};

}  // namespace norma::kernels
