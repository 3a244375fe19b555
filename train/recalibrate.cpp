#include "train/recalibrate.h"

#include "core/copy.h"
#include "core/tape.h"
#include "nn/modes.h"
#include "nn/norm/batch_norm.h"

#include <memory>
#include <optional>
#include <vector>

namespace norma::train {

namespace {

/// Puts a batch norm into training with the average of all batches as momentum, and back. Batch renorm would correct
/// towards the statistics that have just been reset: its bounds are those of a batch norm meanwhile.
class Averaging {
 public:
  explicit Averaging(nn::BatchNorm& norm)
      : norm_(norm), momentum_(norm.options().momentum), renorm_(dynamic_cast<nn::BatchRenorm2d*>(&norm)) {
    if (renorm_ != nullptr) {
      r_max_ = renorm_->r_max();
      d_max_ = renorm_->d_max();
      renorm_->set_bounds(/* r_max= */ 1, /* d_max= */ 0);
    }
    norm_.reset_running_stats();
    norm_.set_momentum(std::nullopt);
    norm_.train();
  }
  ~Averaging() {
    norm_.set_momentum(momentum_);
    if (renorm_ != nullptr) {
      renorm_->set_bounds(r_max_, d_max_);
    }
  }
  Averaging(const Averaging&) = delete;
  Averaging& operator=(const Averaging&) = delete;

 private:
  nn::BatchNorm& norm_;
  std::optional<double> momentum_;
  nn::BatchRenorm2d* renorm_;  ///< the same norm, if it is one
  double r_max_ = 1;
  double d_max_ = 0;
};

}  // namespace

int64_t recalibrate(nn::Module& model, data::Loader& batches, int64_t max_batches) {
  check(max_batches >= 1, "recalibrate", "max_batches: expected at least 1, got {}", max_batches);
  const NoGradGuard no_grad;
  auto batch = batches.next();  // before the old statistics go
  check(batch.has_value(), "recalibrate", "batches: expected at least one, got none");
  const nn::Modes modes(model);
  model.eval();
  std::vector<std::unique_ptr<Averaging>> norms;
  for (const auto& [path, module] : model.named_modules()) {
    auto* norm = dynamic_cast<nn::BatchNorm*>(module);
    if (norm != nullptr && norm->running_mean().defined()) {
      norms.push_back(std::make_unique<Averaging>(*norm));
    }
  }
  check(!norms.empty(), "recalibrate", "model: expected batch norms with running statistics, got none");
  int64_t used = 0;
  for (; batch && used < max_batches; batch = batches.next()) {
    model(to_device(batch->images, model.device()));
    ++used;
  }
  return used;
}

}  // namespace norma::train
