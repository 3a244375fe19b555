#include "nn/optim/schedule.h"

#include "error_text.h"

#include <cmath>

using namespace norma::nn;
using norma::test::error_of;

namespace {

void check_factors(const Schedule& schedule, const std::vector<double>& expected) {
  for (size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step);
    CHECK(std::abs(schedule(static_cast<int64_t>(step)) - expected[step]) <= 1e-14);
  }
}

}  // namespace

// The numbers come from
//   p = torch.zeros(1, requires_grad=True); o = torch.optim.SGD([p], lr=1.0, momentum=0.9); s = SCHEDULER(o, ...)
//   for i in range(n): print(o.param_groups[0]['lr'], o.param_groups[0]['momentum']); o.step(); s.step()
// with PyTorch 1.13.

TEST_CASE("schedule: one cycle, defaults") {  // OneCycleLR(o, max_lr=1.0, total_steps=10)
  const OneCycleOptions options{.steps = 10};
  check_factors(one_cycle_schedule(options),
                {0.040000000000000036, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
                 0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06});
  check_factors(one_cycle_momentum(options),
                {0.95, 0.8999999999999999, 0.85, 0.854951556604879, 0.8688255099070633, 0.8888739533021842,
                 0.9111260466978157, 0.9311744900929366, 0.945048443395121, 0.95});
  CHECK(one_cycle_schedule(options)(1000) == one_cycle_schedule(options)(9));
}

TEST_CASE("schedule: one cycle, all options") {
  // OneCycleLR(o, max_lr=1.0, total_steps=7, pct_start=0.5, div_factor=10, final_div_factor=100, base_momentum=0.8,
  //            max_momentum=0.9)
  const OneCycleOptions options{.steps = 7,
                                .pct_start = 0.5,
                                .div_factor = 10,
                                .final_div_factor = 100,
                                .base_momentum = 0.8,
                                .max_momentum = 0.9};
  check_factors(one_cycle_schedule(options), {0.09999999999999998, 0.41094235253127365, 0.9140576474687263,
                                              0.9505339495172583, 0.611649206511179, 0.18906684397156262, 0.001});
  check_factors(one_cycle_momentum(options), {0.9, 0.8654508497187474, 0.8095491502812526, 0.804951556604879,
                                              0.8388739533021843, 0.8811744900929367, 0.9});
}

TEST_CASE("schedule: one cycle of two steps") {  // OneCycleLR(o, max_lr=1.0, total_steps=2)
  check_factors(one_cycle_schedule({.steps = 2}), {0.811745653949763, 4e-06});
}

TEST_CASE("schedule: cosine") {  // CosineAnnealingLR(o, T_max=8, eta_min=0.1)
  const Schedule schedule = cosine_schedule({.steps = 8, .final = 0.1});
  check_factors(schedule, {1.0, 0.9657457896300791, 0.8681980515339464, 0.7222075445642905, 0.55, 0.3777924554357097,
                           0.2318019484660537, 0.134254210369921, 0.1});
  CHECK(std::abs(schedule(100) - 0.1) <= 1e-15);
}

TEST_CASE("schedule: cosine with warm-up") {
  // SequentialLR(o, [LinearLR(o, start_factor=0.01, total_iters=3), CosineAnnealingLR(o, T_max=5)], [3])
  check_factors(
      cosine_schedule({.steps = 8, .warmup_steps = 3}),
      {0.01, 0.34, 0.67, 1.0, 0.9045084971874737, 0.6545084971874737, 0.3454915028125263, 0.09549150281252632, 0.0});
}

TEST_CASE("schedule: steps") {
  // timm's MultiStepLRScheduler(o, decay_t=[3, 6], decay_rate=0.2)._get_lr(t), which is 0.2 ** bisect.bisect_right([3,
  // 6], t + 1); PyTorch's MultiStepLR(o, [2, 5], gamma=0.2); and StepLR(o, 3, gamma=0.5)
  check_factors(step_schedule({.milestones = {3, 6}, .gamma = 0.2}),
                {1.0, 1.0, 0.2, 0.2, 0.2, 0.04000000000000001, 0.04000000000000001});
  check_factors(step_schedule({.every = 3, .gamma = 0.5}), {1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25});
  // Python's t // 2.4, which is timm's.
  check_factors(step_schedule({.every = 2.4, .gamma = 0.5}),
                {1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.03125});
}

TEST_CASE("schedule: constant") {
  check_factors(constant_schedule(), {1, 1, 1});
}

TEST_CASE("schedule: poly with a power and k-decay") {
  // 0.2 + 0.8 * (1 - (t / 4) ** 2) ** 0.5 for t in range(4), and 0.2
  check_factors(poly_schedule({.steps = 4, .power = 0.5, .final = 0.2, .k_decay = 2}),
                {1.0, 0.9745966692414834, 0.8928203230275509, 0.7291502622129181, 0.2, 0.2});
}

TEST_CASE("schedule: warm-up in front of another, with and after it") {
  const Schedule falling = poly_schedule({.steps = 8, .power = 1});
  check_factors(warmup_schedule(falling, {.steps = 4, .start = 0.2}), {0.2, 0.4, 0.6, 0.8, 0.5, 0.375});
  check_factors(warmup_schedule(falling, {.steps = 4, .start = 0.2, .prefix = true}), {0.2, 0.4, 0.6, 0.8, 1.0, 0.875});
  check_factors(warmup_schedule(falling, {}), {1.0, 0.875});
  check_factors(epoch_schedule(falling, 3), {1.0, 1.0, 1.0, 0.875, 0.875, 0.875, 0.75});
}

TEST_CASE("schedule: error texts") {
  CHECK(error_of([] { poly_schedule({.steps = 0}); }) == "poly_schedule: steps: expected a positive number, got 0");
  CHECK(error_of([] { poly_schedule({.steps = 4, .power = 0}); }) ==
        "poly_schedule: power, k_decay: expected finite positive numbers, got 0, 1");
  CHECK(error_of([] { poly_schedule({.steps = 4, .final = NAN}); }) ==
        "poly_schedule: final: expected a finite number, got nan");
  CHECK(error_of([] { warmup_schedule(constant_schedule(), {.steps = -1}); }) ==
        "warmup_schedule: steps: expected a number >= 0, got -1");
  CHECK(error_of([] { warmup_schedule(constant_schedule(), {.steps = 1, .start = INFINITY}); }) ==
        "warmup_schedule: start: expected a finite number, got inf");
  CHECK(error_of([] { epoch_schedule(constant_schedule(), 0); }) ==
        "epoch_schedule: steps_per_epoch: expected a positive number, got 0");
  CHECK(error_of([] { one_cycle_schedule({.steps = 0}); }) ==
        "one_cycle_schedule: steps: expected a positive number, got 0");
  CHECK(error_of([] { one_cycle_momentum({.steps = 4, .pct_start = 1}); }) ==
        "one_cycle_momentum: pct_start: expected a value in [0, 1), got 1");
  CHECK(error_of([] { one_cycle_schedule({.steps = 4, .div_factor = 0}); }) ==
        "one_cycle_schedule: div_factor, final_div_factor: expected positive numbers, got 0, 10000");
  CHECK(error_of([] { cosine_schedule({.steps = 0}); }) == "cosine_schedule: steps: expected a positive number, got 0");
  CHECK(error_of([] { cosine_schedule({.steps = 4, .warmup_steps = 5}); }) ==
        "cosine_schedule: warmup_steps: expected a value in [0, 4], got 5");
  CHECK(error_of([] { step_schedule({.every = -1}); }) == "step_schedule: every: expected a number >= 0, got -1");
  CHECK(error_of([] { step_schedule({.gamma = NAN}); }) ==
        "step_schedule: gamma: expected a finite number of at least 0, got nan");
  CHECK(error_of([] { cosine_schedule({.steps = 4, .final = INFINITY}); }) ==
        "cosine_schedule: warmup_start, final: expected finite numbers, got 0.01, inf");
  CHECK(error_of([] { one_cycle_momentum({.steps = 4, .max_momentum = 1}); }) ==
        "one_cycle_momentum: base_momentum, max_momentum: expected values in [0, 1), got 0.85, 1");
  CHECK(error_of([] { one_cycle_schedule({.steps = 4, .div_factor = INFINITY}); }) ==
        "one_cycle_schedule: div_factor, final_div_factor: expected finite numbers, got inf, 10000");
}
