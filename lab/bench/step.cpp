#include "lab/bench/step.h"

#include "core/copy.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "core/share.h"
#include "core/tape.h"
#include "nn/norm/convert.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "train/freeze.h"

#include <algorithm>

namespace norma::lab::bench {

std::string_view to_string(Mode mode) {
  return mode == Mode::train ? "train" : "infer";
}

Step::Step(const StepOptions& options) : options_(options), precision_(train::precision_of(options.recipe)) {
  const train::Recipe& recipe = options_.recipe;
  const MemoryFormat format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  Generator random(recipe.seed);
  int64_t images = recipe.batch_size;
  if (options_.group != nullptr && options_.group->size() > 1) {
    images = share_of(images, options_.group->rank(), options_.group->size()).count;
    share_ = static_cast<double>(images) / static_cast<double>(recipe.batch_size);
  }
  images_ = options_.images.defined() ? train::convert_input(to_device(options_.images, default_device()), precision_)
                                      : copy_of(randn({images, 3, recipe.image_size, recipe.image_size}, {}, random),
                                                format, precision_.dtype);
  if (options_.mode == Mode::train) {
    model_ = train::make_model(recipe, options_.num_classes);
    train::freeze(*model_, recipe);
    labels_ = options_.labels.defined() ? to_device(options_.labels, default_device())
                                        : randint(0, options_.num_classes, {images}, {.dtype = DType::int64}, random);
    optimizer_ = train::make_optimizer(recipe, *model_);
    if (share_ < 1) {
      reducer_ = std::make_unique<parallel::GradientReducer>(*options_.group, optimizer_->parameters());
    }
  } else {
    model_ = train::make_model(train::in_full_precision(recipe), options_.num_classes);
    model_->eval();
    if (options_.fold) {
      folded_ = nn::fold_batch_norm(*model_, to(images_, compute_dtype(images_.dtype())));
    }
    train::convert_model(*model_, precision_);
  }
  if (options_.cuda_graph != train::GraphMode::off) {
    const std::string obstacle =
        train::StepGraph::obstacle(default_device(), optimizer_.get(), recipe, /* alone= */ reducer_ == nullptr);
    wants_graph_ = obstacle.empty();
    check(wants_graph_ || options_.cuda_graph != train::GraphMode::on, "bench",
          "cuda-graph: expected steps that become a graph, but {}", obstacle);
    if (make_device_graph(default_device()) != nullptr) {
      graph_obstacle_ = obstacle;
    }
  }
}

Tensor Step::logits() {
  const Tensor logits = (*model_)(images_);
  return to(logits, compute_dtype(logits.dtype()));
}

Tensor Step::loss() {
  const train::PrecisionScope scope(precision_);
  const RemakeGuard remake(options_.recipe.recompute_norms);
  return cross_entropy(logits(), labels_, {.label_smoothing = options_.recipe.smoothing});
}

void Step::forward() {
  const NoGradGuard no_grad;
  const train::PrecisionScope scope(precision_);
  logits();
}

StepParts Step::run() {
  if (wants_graph_ && graph_ == nullptr) {
    for (int64_t i = 0; i < train::StepGraph::kWarmUp; ++i) {
      run_parts();
    }
    make_graph();
  }
  return graph_ ? launch() : run_parts();
}

void Step::make_graph() {
  std::unique_ptr<DeviceGraph> graph = make_device_graph(default_device());
  try {
    if (optimizer_) {
      optimizer_->set_numbers();
    }
    const Tensor finite = zeros({2}, {.dtype = DType::float64});
    graph->record([&] {
      if (options_.mode == Mode::infer) {
        forward();
        return;
      }
      const Tf32Guard tf32(precision_.tf32);
      optimizer_->zero_grad();
      backward(loss());
      train::clip_gradients(options_.recipe, *model_, *optimizer_);
      optimizer_->record_step(finite);
    });
    guard_ = finite;
    graph_ = std::move(graph);
    graph_size_ = graph_->size();
  } catch (const Error& error) {  // work that asks the host, or too little memory for a graph
    if (options_.cuda_graph == train::GraphMode::on) {
      throw;
    }
    wants_graph_ = false;
    graph_obstacle_ = error.what();
  }
}

void Step::release_graph() {
  wants_graph_ = false;
  graph_ = nullptr;
  guard_ = {};
}

StepParts Step::launch() {
  Event start;
  Event end;
  synchronize(default_device());
  start.record();
  if (optimizer_) {
    optimizer_->set_numbers();
  }
  graph_->launch();
  end.record();
  const double seconds = end.seconds_since(start);
  if (optimizer_) {
    optimizer_->count_launched_step();
  }
  return {.whole = seconds};
}

StepParts Step::run_parts() {
  // Events mark the device's time: waiting for it between the parts would leave it without work.
  Event start;
  Event forward_end;
  Event backward_end;
  Event gradients_there;
  Event end;
  synchronize(default_device());  // ends the work before
  const double messages_before = reducer_ ? options_.group->message_seconds() : 0;
  start.record();
  if (options_.mode == Mode::infer) {
    forward();
    end.record();
    return {.forward = end.seconds_since(start)};
  }
  {
    const Tf32Guard tf32(precision_.tf32);  // backward too
    const FlushDenormalGuard flush;
    optimizer_->zero_grad();
    const Tensor value = loss();
    forward_end.record();
    if (reducer_) {
      backward(mul(value, share_), {},
               {.on_leaf = [this](const Tensor& leaf, const Tensor& g) { reducer_->take(leaf, g); }});
      backward_end.record();
      reducer_->finish();
    } else {
      backward(value);
      backward_end.record();
    }
    gradients_there.record();
    train::clip_gradients(options_.recipe, *model_, *optimizer_);
    optimizer_->step();
  }  // the tape is taken apart within the step
  end.record();
  return {.forward = forward_end.seconds_since(start),
          .backward = backward_end.seconds_since(forward_end),
          .exposed = gradients_there.seconds_since(backward_end),
          .optimizer = end.seconds_since(gradients_there),
          .messages = reducer_ ? options_.group->message_seconds() - messages_before : 0};
}

}  // namespace norma::lab::bench
