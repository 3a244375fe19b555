#include "train/training_step.h"

#include "base/error.h"
#include "base/lists.h"
#include "core/allocator.h"
#include "core/anomaly.h"
#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "nn/optim/optimizer.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/random/batch_part.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "train/memory_use.h"
#include "train/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <vector>

namespace norma::train {

namespace {

/// The loss of a batch with the tape that leads to it.
Tensor forward(TrainingState& run, const data::Batch& batch) {
  std::optional<BatchPartGuard> part;
  if (!run.processes.alone()) {
    part.emplace(BatchPart{.first = batch.first, .images = batch.labels.numel(), .total = batch.total});
  }
  const Device device = run.model->device();
  const Tensor logits = (*run.model)(convert_input(data::images_on(batch, device), run.precision));
  const DType dtype = compute_dtype(logits.dtype());
  const Tensor target = batch.targets.defined() ? to(to_device(batch.targets, device), dtype)  // of mixed images
                                                : to_device(batch.labels, device);
  const Tensor loss = training_loss(run.recipe, to(logits, dtype), target);
  // The mean over the whole batch is the sum of the parts' shares in it.
  return part ? mul(loss, static_cast<double>(batch.labels.numel()) / static_cast<double>(batch.total)) : loss;
}

/// The running statistics, which a step changes before its update.
Tensors buffers_of(const nn::Module& model) {
  return mapped(model.named_buffers(), [](const auto& buffer) { return buffer.second.detach(); });
}

/// If a run's batches do not fit into memory: the first batch size of half the images, a quarter, … that fits, found by
/// steps whose only trace is the changed network. `step` trains on a batch. Returns the end of an error text, ";
/// --batch-size 16 --grad-accum-steps 8 would fit, with as many images in an update", or the reason why none fits; ""
/// if a signal came.
std::string largest_batch_text(const Recipe& recipe, int workers, Device device,
                               const std::function<void(const data::Batch&)>& step) {
  for (int64_t count = recipe.batch_size / 2; count > 0; count /= 2) {
    if (interrupted()) {
      return "";
    }
    try {
      allocator(device).empty_cache();
      const data::Batch waiting = batch_of_zeros(recipe, count * prefetched_batches(workers));  // the loader's batches
      step(batch_of_zeros(recipe, count));
      if (recipe.batch_size % count != 0) {
        return fmt::format("; --batch-size {} would fit", count);
      }
      return fmt::format("; --batch-size {} --grad-accum-steps {} would fit, with as many images in an update", count,
                         recipe.grad_accum_steps * (recipe.batch_size / count));
    } catch (const OutOfMemory&) {
    } catch (const std::bad_alloc&) {
    } catch (const Error&) {  // one image may be too few for batch statistics
      return 2 * count < recipe.batch_size ? fmt::format("; {} did not fit either", 2 * count) : "";
    }
  }
  return "; a single one did not fit either";
}

}  // namespace

data::Batch batch_of_zeros(const Recipe& recipe, int64_t images) {
  const MemoryFormat format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  return {.images =
              zeros({images, kImageChannels, recipe.image_size, recipe.image_size}, {.device = kCpu, .format = format}),
          .labels = zeros({images}, {.dtype = DType::int64, .device = kCpu}),
          .total = images};
}

Tensor accumulate_gradients(TrainingState& run, int64_t batches, const NextBatch& next, StepObserver* observer,
                            std::unique_ptr<ObservedStep>* seen) {
  const Tf32Guard tf32(run.precision.tf32);  // backward too
  Tensor total;
  for (int64_t i = 0; i < batches; ++i) {
    const data::Batch batch = next();
    ObservedStep* observed = nullptr;
    if (observer != nullptr && i + 1 == batches) {  // its forward and backward are those of one batch
      *seen = observer->begin_step(run.step + 1);
      observed = seen->get();
    }
    Tensor loss;
    {
      const PrecisionScope scope(run.precision, &run.casts);
      const RemakeGuard remake(run.recipe.recompute_norms);
      loss = forward(run, batch);
    }
    if (batches > 1) {  // gradients add up to that of the mean
      loss = div(loss, static_cast<double>(batches));
    }
    if (observed != nullptr) {
      observed->after_forward(loss, run.scaler ? run.scaler->factor() : 1);
    }
    run.processes.backward(run.scaler ? run.scaler->scale(loss) : loss, /* last= */ i + 1 == batches);
    if (observed != nullptr) {
      observed->after_backward();
    }
    const Tensor part = batches > 1 ? to(loss.detach(), DType::float64) : loss.detach();
    total = total.defined() ? add(total, part) : part;
  }
  return run.processes.finish_step(total);
}

Tensor loss_of_first_batch(TrainingState& run) {
  const Tf32Guard exact(false);
  const AutocastOff no_autocast;
  default_generator() = Generator(run.recipe.seed);
  data::Loader loader = make_train_loader(run.recipe, run.train_set, /* workers= */ 0, /* first_step= */ 0,
                                          run.model->device(), run.processes.part());
  return forward(run, loader.next().value());
}

void set_schedules(TrainingState& run) {
  run.optimizer->set_lr(run.lr(run.step));
  if (run.schedules.momentum) {
    run.optimizer->set_momentum(run.schedules.momentum(run.step));
  }
}

StepResult train_step(TrainingState& run, StepFaults& faults, int64_t batches, const NextBatch& next,
                      StepObserver* observer) {
  set_schedules(run);
  faults.begin_step();
  run.optimizer->zero_grad();
  default_generator() = run.random;  // other code may have drawn from it since the step before
  std::unique_ptr<ObservedStep> seen;
  const Tensor loss = accumulate_gradients(run, batches, next, observer, &seen);
  const StepResult result = faults.judge(faults.look_at(loss));
  if (result.outcome != StepOutcome::updated) {
    return result;
  }
  clip_gradients(run.recipe, *run.model, *run.optimizer);
  run.optimizer->step();
  if (run.ema) {
    run.ema->update(run.wide_state(), run.optimizer->steps());
  }
  if (seen) {
    seen->after_update();
  }
  run.random = default_generator();
  return result;
}

std::string find_fault(const nn::Module& model, const std::function<void()>& forward_and_backward) {
  LayerNodes layers(model);
  for (const auto& [name, x] : model.named_parameters()) {
    try {
      check_forward_is_finite(name, {x.detach()});
    } catch (const NotFinite&) {
      return fmt::format("the update before made {} infinite or NaN", name);
    }
  }
  try {
    const AnomalyGuard search;
    forward_and_backward();
  } catch (const NotFinite& found) {
    const std::string layer = found.node() ? layers.layer_of(*found.node()) : layers.failed();
    return fmt::format("{}{}", layer.empty() ? "" : layer + ": ", found.what());
  } catch (const Error&) {  // what the step without a fault does not have, as memory that the search takes
  } catch (const std::bad_alloc&) {
  }
  return "";
}

void StepFaults::begin_step() {
  if (!steps_may_be_left_out()) {
    return;
  }
  const Tensors buffers = buffers_of(*run_.model);
  buffers_.resize(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers_[i].defined()) {
      buffers_[i] = empty_like(buffers[i]);
    }
  }
  copy_all_into(buffers, buffers_);
}

StepResult StepFaults::judge(const Tensor& seen) {
  // The host waits for the device only here in a step. The update must come after it, or look at what was seen: a fault
  // can be found only with the weights that made it.
  if (before_waiting_) {
    before_waiting_();
  }
  const std::vector<double> values = seen.to_vector<double>();
  // The sign of a NaN is random, and would be printed.
  const double value = std::isnan(values[0]) ? std::numeric_limits<double>::quiet_NaN() : values[0];
  const bool finite = std::isfinite(value) && std::isfinite(values[1]);
  const bool scaled = run_.scaler && std::isfinite(value);
  if (scaled) {
    run_.optimizer->set_grad_scale(run_.scaler->factor());
    run_.scaler->update(finite);
  }
  if (finite) {
    run_.left_out_in_row = 0;
    return {.loss = value, .outcome = StepOutcome::updated};
  }
  const Generator before = std::exchange(run_.random, default_generator());
  if (steps_may_be_left_out()) {
    copy_all_into(buffers_, buffers_of(*run_.model));
  }
  run_.optimizer->zero_grad();
  if (scaled) {
    constexpr double kLeastLossScale = 1e-6;  // gradients infinite at this scale would be so without one
    run_.left_out_in_row = 0;
    ++run_.overflows;
    if (run_.scaler->factor() < kLeastLossScale) {
      run_.random = before;
      const std::string fault = find_fault_of_step();
      throw AgreedError(
          fmt::format("train: the gradients stay infinite or NaN at step {}, however small the loss scale is{}; a "
                      "smaller learning rate may help (it is {})",
                      run_.step + 1, fault.empty() ? "" : ": " + fault, base_lr(run_.recipe)));
    }
    return {.loss = value, .outcome = StepOutcome::overflow};
  }
  ++run_.left_out;
  ++run_.left_out_in_row;
  if (!run_.recipe.skip_nonfinite || run_.left_out_in_row >= run_.recipe.max_nonfinite) {
    run_.random = before;
    const std::string fault = find_fault_of_step();
    throw AgreedError(fmt::format(
        "train: {} at step {}{}{}{}; a smaller learning rate may help (it is {})",
        std::isfinite(value) ? "a gradient became infinite or NaN" : fmt::format("the loss became {}", value),
        run_.step + 1,
        run_.left_out_in_row > 1 ? fmt::format(", as in the {} steps before", run_.left_out_in_row - 1) : "",
        fault.empty() ? "" : ": " + fault,
        run_.recipe.skip_nonfinite ? "" : "; --skip-nonfinite leaves out single steps like this one",
        base_lr(run_.recipe)));
  }
  return {.loss = value, .outcome = StepOutcome::left_out};
}

Tensor StepFaults::look_at(const Tensor& loss) const {
  const NoGradGuard no_grad;
  Tensors parameters = run_.optimizer->parameters();
  if (!steps_may_be_left_out() && !parameters.empty()) {
    // A NaN from backward reaches the earlier layers: checking the first one that is trained finds it, at no cost.
    parameters = run_.model->parameters();
    parameters = {*std::ranges::find_if(parameters, [](const Tensor& x) { return x.requires_grad(); })};
  }
  const Tensors gradients = nn::gradients_of(parameters);
  const Tensor both = zeros({2}, {.dtype = DType::float64, .device = loss.device()});
  copy_into(loss.detach(), select(both, 0, 0));
  if (!gradients.empty()) {  // no float64 sum of squares of 32-bit numbers overflows
    copy_into(sum(sums_of_squares(gradients, loss.device())), select(both, 0, 1));
  }
  return both;
}

std::string StepFaults::find_fault_of_step() {
  run_.optimizer->zero_grad();
  default_generator() = run_.random;
  data::Loader loader =
      make_train_loader(run_.recipe, run_.train_set, /* workers= */ 0, run_.plan.batches_before(run_.step),
                        run_.model->device(), run_.processes.part());
  run_.processes.work_alone(run_);  // a process that finds the fault does not come to where the others would wait
  const std::string own = find_fault(*run_.model, [&] {
    accumulate_gradients(run_, run_.plan.batches_of(run_.step), [&] { return loader.next().value(); });
  });
  return first_text(run_.processes.group(), own);
}

void StepFaults::explain_memory(int workers, bool resumed, const std::function<void()>& steps) {
  try {
    steps();
  } catch (const OutOfMemory& error) {
    if (!run_.processes.alone()) {
      throw;  // a search for what fits would take all processes
    }
    fail_for_memory(workers, resumed, error.what());
  } catch (const std::bad_alloc&) {
    if (!run_.processes.alone()) {
      throw;
    }
    fail_for_memory(workers, resumed, "the system has none left");
  }
}

void StepFaults::fail_for_memory(int workers, bool resumed, const std::string& reason) {
  ActivationObserver seen(*run_.model);
  int64_t images = 0;
  const auto fits = [&](const data::Batch& batch) {
    run_.optimizer->zero_grad();
    train_step(
        run_, *this, 1, [&] { return batch; }, &seen);
    images = batch.labels.numel();
  };
  std::string largest = largest_batch_text(run_.recipe, workers, run_.model->device(), fits);
  if (images > 0 && resumed) {
    largest += ", in a new run: one that goes on keeps its batch size";
  }
  MemoryUse use = memory_use(*run_.model, *run_.optimizer, run_.ema);
  use.images = images;
  use.activations = images > 0 ? seen.activations() : std::vector<LayerBytes>();
  throw OutOfMemory(fmt::format("train: batch-size: {} images do not fit into memory ({}){}; a step holds {}",
                                run_.recipe.batch_size, reason, largest,
                                to_string(use.for_images(run_.recipe.batch_size))));
}

}  // namespace norma::train
