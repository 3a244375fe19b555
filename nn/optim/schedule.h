#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace norma::nn {

/// The factor on the base learning rate (or the momentum itself) for update number `step`, from 0. It is a pure
/// function, so resuming needs nothing but the step.
using Schedule = std::function<double(int64_t step)>;

Schedule constant_schedule();

struct CosineOptions {
  int64_t steps = 1;         ///< in all, warm-up included
  int64_t warmup_steps = 0;  ///< from warmup_start to 1 in equal steps
  double warmup_start = 0.01;
  double final = 0;  ///< the factor at `steps` and from there on
};
/// Linear warm-up, then half a period of the cosine from 1 to `final`.
Schedule cosine_schedule(const CosineOptions& options);

struct OneCycleOptions {
  int64_t steps = 1;
  double pct_start = 0.3;         ///< share of the steps in which the rate rises
  double div_factor = 25;         ///< the first factor is 1 / div_factor
  double final_div_factor = 1e4;  ///< the last is 1 / (div_factor · final_div_factor)
  double base_momentum = 0.85;    ///< at the highest rate (one_cycle_momentum)
  double max_momentum = 0.95;     ///< at the lowest
};
/// PyTorch's OneCycleLR (Smith and Topin, "Super-convergence", 2018) with two cosine phases. The highest factor is 1.
Schedule one_cycle_schedule(const OneCycleOptions& options);
/// The momentum of one_cycle_schedule(): from max_momentum down to base_momentum and back.
Schedule one_cycle_momentum(const OneCycleOptions& options);

struct StepOptions {
  /// Steps counted from 1, as in timm's MultiStepLRScheduler: {3} multiplies the factor by gamma from the third step
  /// (number 2) on. PyTorch's MultiStepLR counts from 0, and would have 2 for it.
  std::vector<int64_t> milestones;
  double every = 0;  ///< also by gamma after every so many steps (0: never); 2.4 means at steps 3, 5, 8, …, from 0
  double gamma = 0.1;
};
Schedule step_schedule(const StepOptions& options);

struct PolyOptions {
  int64_t steps = 1;
  double power = 0.5;
  double final = 0;    ///< the factor at `steps` and from there on
  double k_decay = 1;  ///< Zhang and Li, "k-decay", 2020: the share of the steps done is (step / steps)^k
};
/// timm's PolyLRScheduler with one cycle: final + (1 - final) · (1 - (step / steps)^k_decay)^power.
Schedule poly_schedule(const PolyOptions& options);

struct WarmupOptions {
  int64_t steps = 0;    ///< 0: none
  double start = 0;     ///< the factor of the first step; it rises in equal steps to 1
  bool prefix = false;  ///< the schedule begins after the warm-up; false: at step 0, hidden by the warm-up
};
/// timm's warm-up before any schedule: start + step · (1 - start) / steps as long as step < steps.
Schedule warmup_schedule(Schedule schedule, const WarmupOptions& options);

/// One factor for all steps of an epoch: `by_epoch` counts epochs, as timm's without --sched-on-updates.
Schedule epoch_schedule(Schedule by_epoch, int64_t steps_per_epoch);

}  // namespace norma::nn
