#include "nn/optim/schedule.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace norma::nn {
namespace {

// Goes from `start` at 0 to `end` at 1 along half a period of the cosine.
double cosine(double start, double end, double position) {
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * std::clamp(position, 0.0, 1.0)));
}

// Two cosine phases: low → high until step pct_start · steps - 1, high → last until step steps - 1.
double two_phases(const OneCycleOptions& options, int64_t step, double low, double high, double last) {
  const double top = options.pct_start * static_cast<double>(options.steps) - 1;
  const double end = static_cast<double>(options.steps) - 1;
  const auto now = static_cast<double>(step);
  if (now <= top) {
    return cosine(low, high, top > 0 ? now / top : 1);
  }
  return cosine(high, last, (now - top) / (end - top));
}

void check_one_cycle(std::string_view op, const OneCycleOptions& options) {
  check(options.steps > 0, op, "steps: expected a positive number, got {}", options.steps);
  check(options.pct_start >= 0 && options.pct_start < 1, op, "pct_start: expected a value in [0, 1), got {}",
        options.pct_start);
  check(options.div_factor > 0 && options.final_div_factor > 0, op,
        "div_factor, final_div_factor: expected positive numbers, got {}, {}", options.div_factor,
        options.final_div_factor);
  check(std::isfinite(options.div_factor) && std::isfinite(options.final_div_factor), op,
        "div_factor, final_div_factor: expected finite numbers, got {}, {}", options.div_factor,
        options.final_div_factor);
  for (const double momentum : {options.base_momentum, options.max_momentum}) {
    check(momentum >= 0 && momentum < 1, op, "base_momentum, max_momentum: expected values in [0, 1), got {}, {}",
          options.base_momentum, options.max_momentum);
  }
}

}  // namespace

Schedule constant_schedule() {
  return [](int64_t) { return 1.0; };
}

Schedule cosine_schedule(const CosineOptions& options) {
  check(options.steps > 0, "cosine_schedule", "steps: expected a positive number, got {}", options.steps);
  check(options.warmup_steps >= 0 && options.warmup_steps <= options.steps, "cosine_schedule",
        "warmup_steps: expected a value in [0, {}], got {}", options.steps, options.warmup_steps);
  check(std::isfinite(options.warmup_start) && std::isfinite(options.final), "cosine_schedule",
        "warmup_start, final: expected finite numbers, got {}, {}", options.warmup_start, options.final);
  return [options](int64_t step) {
    if (step < options.warmup_steps) {
      const double position = static_cast<double>(step) / static_cast<double>(options.warmup_steps);
      return options.warmup_start + (1 - options.warmup_start) * position;
    }
    const auto length = static_cast<double>(std::max<int64_t>(options.steps - options.warmup_steps, 1));
    return cosine(1, options.final, static_cast<double>(step - options.warmup_steps) / length);
  };
}

Schedule one_cycle_schedule(const OneCycleOptions& options) {
  check_one_cycle("one_cycle_schedule", options);
  return [options](int64_t step) {
    const double first = 1 / options.div_factor;
    return two_phases(options, step, first, 1, first / options.final_div_factor);
  };
}

Schedule one_cycle_momentum(const OneCycleOptions& options) {
  check_one_cycle("one_cycle_momentum", options);
  return [options](int64_t step) {
    return two_phases(options, step, options.max_momentum, options.base_momentum, options.max_momentum);
  };
}

Schedule step_schedule(const StepOptions& options) {
  check(std::isfinite(options.every) && options.every >= 0, "step_schedule", "every: expected a number >= 0, got {}",
        options.every);
  check(std::isfinite(options.gamma) && options.gamma >= 0, "step_schedule",
        "gamma: expected a finite number of at least 0, got {}", options.gamma);
  return [options](int64_t step) {
    auto times = static_cast<double>(std::count_if(options.milestones.begin(), options.milestones.end(),
                                                   [&](int64_t milestone) { return step + 1 >= milestone; }));
    if (options.every > 0) {
      // Computed as Python's //: rounding the quotient could make it a step early.
      const auto t = static_cast<double>(step);
      times += std::round((t - std::fmod(t, options.every)) / options.every);
    }
    return std::pow(options.gamma, times);
  };
}

Schedule poly_schedule(const PolyOptions& options) {
  check(options.steps > 0, "poly_schedule", "steps: expected a positive number, got {}", options.steps);
  check(std::isfinite(options.final), "poly_schedule", "final: expected a finite number, got {}", options.final);
  for (const double exponent : {options.power, options.k_decay}) {
    check(std::isfinite(exponent) && exponent > 0, "poly_schedule",
          "power, k_decay: expected finite positive numbers, got {}, {}", options.power, options.k_decay);
  }
  return [options](int64_t step) {
    if (step >= options.steps) {
      return options.final;
    }
    const double done = std::pow(static_cast<double>(step) / static_cast<double>(options.steps), options.k_decay);
    return options.final + (1 - options.final) * std::pow(1 - done, options.power);
  };
}

Schedule warmup_schedule(Schedule schedule, const WarmupOptions& options) {
  check(options.steps >= 0, "warmup_schedule", "steps: expected a number >= 0, got {}", options.steps);
  check(std::isfinite(options.start), "warmup_schedule", "start: expected a finite number, got {}", options.start);
  if (options.steps == 0) {
    return schedule;
  }
  return [schedule = std::move(schedule), options](int64_t step) {
    if (step < options.steps) {
      return options.start + static_cast<double>(step) * (1 - options.start) / static_cast<double>(options.steps);
    }
    return schedule(options.prefix ? step - options.steps : step);
  };
}

Schedule epoch_schedule(Schedule by_epoch, int64_t steps_per_epoch) {
  check(steps_per_epoch > 0, "epoch_schedule", "steps_per_epoch: expected a positive number, got {}", steps_per_epoch);
  return [by_epoch = std::move(by_epoch), steps_per_epoch](int64_t step) { return by_epoch(step / steps_per_epoch); };
}

}  // namespace norma::nn
