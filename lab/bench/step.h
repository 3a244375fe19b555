#pragma once

#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "parallel/gradient_reducer.h"
#include "train/recipe.h"

#include <memory>
#include <string_view>

namespace norma::lab::bench {

enum class Mode { infer, train };
/// "infer", "train"
std::string_view to_string(Mode mode);

struct StepOptions {
  train::Recipe recipe;  ///< network, image size, batch size, format, precision, optimizer
  int64_t num_classes = 1000;
  Mode mode = Mode::train;
  bool fold = false;   ///< inference: fold batch norms into the convolutions before them
  Tensor images = {};  ///< float32 (N, 3, H, W) in the recipe's format; undefined: random ones
  Tensor labels = {};  ///< int64 (N); undefined if the images are
  /// Training: each process has its share of the recipe's batch, and gradients travel. Null: this process alone.
  std::shared_ptr<parallel::ProcessGroup> group = {};
};

/// Seconds of one step. Inference has only a forward part.
struct StepParts {
  double forward = 0;  ///< with the loss
  double backward = 0;
  double exposed = 0;  ///< from the end of the backward pass until the gradients of all processes are there
  double optimizer = 0;
  double messages = 0;  ///< of the gradients' messages, beside the parts above; ProcessGroup::message_seconds()

  [[nodiscard]] double total() const { return forward + backward + exposed + optimizer; }
};

/// One training step, or one forward pass. All that it needs is made before the first run. A run times only dropping
/// the old gradients, forward, loss, backward and the update.
class Step {
 public:
  explicit Step(const StepOptions& options);

  StepParts run();

  [[nodiscard]] const nn::Module& model() const { return *model_; }
  /// The number of batch norms that were folded.
  [[nodiscard]] int64_t folded() const { return folded_; }

 private:
  Tensor logits();

  StepOptions options_;
  train::Precision precision_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<parallel::GradientReducer> reducer_;  // with several processes
  double share_ = 1;                                    // of the batch that this process has
  Tensor images_;
  Tensor labels_;
  int64_t folded_ = 0;
};

}  // namespace norma::lab::bench
