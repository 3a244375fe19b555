#include "lab/bench/step.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/nearest_name.h"
#include "core/tape.h"
#include "lab/bench/spread.h"
#include "nn/norm/convert.h"
#include "nn/optim/clip.h"
#include "ops/loss/loss.h"
#include "ops/shape/copy.h"

#include <algorithm>

namespace norma::lab::bench {

std::string_view to_string(Mode mode) {
  return mode == Mode::train ? "train" : "infer";
}

Step::Step(const StepOptions& options) : options_(options), precision_(train::precision_of(options.recipe)) {
  const train::Recipe& recipe = options_.recipe;
  const MemoryFormat format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  Generator random(recipe.seed);
  images_ = copy_of(randn({recipe.batch_size, 3, recipe.image_size, recipe.image_size}, {}, random), format,
                    precision_.dtype);
  if (options_.mode == Mode::train) {
    model_ = train::make_model(recipe, options_.num_classes);
    labels_ = randint(0, options_.num_classes, {recipe.batch_size}, {.dtype = DType::int64}, random);
    optimizer_ = train::make_optimizer(recipe, *model_);
    return;
  }
  model_ = train::make_model(train::in_full_precision(recipe), options_.num_classes);
  model_->eval();
  if (options_.fold) {
    folded_ = nn::fold_batch_norm(*model_, to(images_, compute_dtype(images_.dtype())));
  }
  train::convert_model(*model_, precision_);
}

Tensor Step::logits() {
  const Tensor logits = (*model_)(images_);
  return to(logits, compute_dtype(logits.dtype()));
}

StepParts Step::run() {
  const Clock::time_point start = Clock::now();
  if (options_.mode == Mode::infer) {
    const NoGradGuard no_grad;
    const train::PrecisionScope scope(precision_);
    logits();
    return {.forward = seconds_between(start, Clock::now())};
  }
  Clock::time_point forward_end;
  Clock::time_point backward_end;
  {
    optimizer_->zero_grad();
    Tensor loss;
    {
      const train::PrecisionScope scope(precision_);
      loss = cross_entropy(logits(), labels_, {.label_smoothing = options_.recipe.smoothing});
    }
    forward_end = Clock::now();
    backward(loss);
    backward_end = Clock::now();
    if (options_.recipe.clip_grad > 0) {
      nn::clip_gradients_by_norm(model_->parameters(), options_.recipe.clip_grad);
    }
    optimizer_->step();
  }  // the tape is taken apart within the step
  return {.forward = seconds_between(start, forward_end),
          .backward = seconds_between(forward_end, backward_end),
          .optimizer = seconds_between(backward_end, Clock::now())};
}

}  // namespace norma::lab::bench
