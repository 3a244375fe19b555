#include "train/evaluate.h"

#include "core/copy.h"
#include "core/tape.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "train/interrupt.h"

#include <chrono>
#include <vector>

namespace norma::train {

namespace {

/// Evaluation mode while it lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Module& model) : model_(model), before_(model.is_training()) { model_.eval(); }
  ~EvaluationMode() { model_.train(before_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  nn::Module& model_;
  bool before_;
};

int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  const std::vector<int64_t> answers = argmax(logits, 1).to_vector<int64_t>();
  const std::vector<int64_t> truth = labels.to_vector<int64_t>();
  int64_t correct = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    correct += answers[i] == truth[i] ? 1 : 0;
  }
  return correct;
}

}  // namespace

Evaluation evaluate(nn::Module& model, data::Loader& batches, const Precision& precision) {
  const EvaluationMode mode(model);
  const NoGradGuard no_grad;
  const PrecisionScope scope(precision);
  const auto start = std::chrono::steady_clock::now();
  Evaluation result;
  int64_t correct = 0;
  double loss_sum = 0;
  const Device device = model.device();
  while (const auto batch = batches.next()) {
    const Tensor output = model(convert_input(to_device(batch->images, device), precision));
    const Tensor logits = to(output, compute_dtype(output.dtype()));
    correct += count_correct(logits, batch->labels);
    loss_sum += cross_entropy(logits, to_device(batch->labels, device), {.reduction = Reduction::sum})
                    .to_vector<double>()
                    .front();
    result.images += batch->labels.numel();
    if (interrupted()) {
      break;
    }
  }
  result.complete = !interrupted();
  const auto count = static_cast<double>(result.images);
  result.accuracy = static_cast<double>(correct) / count;
  result.loss = loss_sum / count;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace norma::train
