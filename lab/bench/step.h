#pragma once

#include "core/device_graph.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "parallel/gradient_reducer.h"
#include "train/loop.h"
#include "train/recipe.h"

#include <memory>
#include <string>
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
  /// Whether a step, as those of `norma train`, is one launch of a CUDA graph. `automatic`: where it can be one.
  train::GraphMode cuda_graph = train::GraphMode::off;
};

/// Seconds of one step. Inference has only a forward part.
struct StepParts {
  double whole = 0;    ///< of a launched graph, whose parts nobody knows; else 0
  double forward = 0;  ///< with the loss
  double backward = 0;
  double exposed = 0;  ///< from the end of the backward pass until the gradients of all processes are there
  double optimizer = 0;
  double messages = 0;  ///< of the gradients' messages, which overlap the parts above; ProcessGroup::message_seconds()

  [[nodiscard]] double total() const { return whole + forward + backward + exposed + optimizer; }
};

/// One training step, or one forward pass. All that it needs is made before the first run. A run times only dropping
/// the old gradients, forward, loss, backward and the update.
class Step {
 public:
  /// Throws Error if the options want a graph (GraphMode::on) that cannot be.
  explicit Step(const StepOptions& options);

  /// A step, or the launch of its graph. The first launch needs some ordinary steps before it, which are not timed.
  StepParts run();
  /// An ordinary step, into which an OpProfile can look.
  StepParts run_parts();

  /// Gives the graph's memory back. Steps are ordinary ones from now on.
  void release_graph();
  /// The kernels and copies of the graph that steps are, or were; 0 without one.
  [[nodiscard]] int64_t graph_size() const { return graph_size_; }
  /// Why steps are not graphs although StepOptions::cuda_graph asked for them; "" if they are, on a device without
  /// graphs, and before the first run if only a recording can tell.
  [[nodiscard]] const std::string& graph_obstacle() const { return graph_obstacle_; }
  [[nodiscard]] const nn::Module& model() const { return *model_; }
  [[nodiscard]] const train::Precision& precision() const { return precision_; }
  /// The number of batch norms that were folded.
  [[nodiscard]] int64_t folded() const { return folded_; }

 private:
  Tensor logits();
  Tensor loss();
  void forward();
  void make_graph();
  StepParts launch();

  StepOptions options_;
  train::Precision precision_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<parallel::GradientReducer> reducer_;  // with several processes
  double share_ = 1;                                    // of the batch that this process has
  Tensor images_;
  Tensor labels_;
  int64_t folded_ = 0;
  bool wants_graph_ = false;
  std::unique_ptr<DeviceGraph> graph_;
  int64_t graph_size_ = 0;
  Tensor guard_;  // two finite numbers, for Optimizer::record_step()
  std::string graph_obstacle_;
};

}  // namespace norma::lab::bench
