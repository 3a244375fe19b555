#include "train/recalibrate.h"

#include "core/copy.h"
#include "core/tape.h"
#include "nn/module.h"
#include "nn/norm/batch_norm.h"
#include "ops/shape/copy.h"

#include <memory>
#include <optional>
#include <vector>

namespace norma::train {

namespace {

/// Puts a batch norm into training with the average of all batches as momentum, and back. Its old statistics return
/// unless keep() is called; the number of batches, which a schedule of batch renorm follows, returns in any case. Batch
/// renorm would correct towards the statistics just reset, so it gets the bounds of a batch norm meanwhile.
class Averaging {
 public:
  explicit Averaging(nn::BatchNorm& norm)
      : norm_(norm), momentum_(norm.options().momentum), renorm_(dynamic_cast<nn::BatchRenorm2d*>(&norm)) {
    for (const auto& [name, buffer] : norm.named_buffers()) {
      before_.push_back({buffer, copy_of(buffer), name == "num_batches_tracked"});
    }
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
    for (const Buffer& buffer : before_) {
      if (buffer.is_count || !keep_) {
        copy_into(buffer.values, buffer.tensor);
      }
    }
    norm_.set_momentum(momentum_);
    if (renorm_ != nullptr) {
      renorm_->set_bounds(r_max_, d_max_);
    }
  }
  Averaging(const Averaging&) = delete;
  Averaging& operator=(const Averaging&) = delete;

  /// Keeps the new statistics.
  void keep() { keep_ = true; }

 private:
  struct Buffer {
    Tensor tensor;
    Tensor values;  ///< before
    bool is_count;
  };

  nn::BatchNorm& norm_;
  std::optional<double> momentum_;
  nn::BatchRenorm2d* renorm_;  ///< the same norm, if it is one
  double r_max_ = 1;
  double d_max_ = 0;
  std::vector<Buffer> before_;
  bool keep_ = false;
};

/// The batch norms of a model, as constant as the model. Throws Error if there are none.
template <class Norm, class Model>
std::vector<Norm*> norms_to_recalibrate(Model& model) {
  std::vector<Norm*> norms;
  bool any_frozen = false;
  for (const auto& [path, module] : model.named_modules()) {
    auto* norm = dynamic_cast<Norm*>(module);
    if (norm != nullptr && norm->has_frozen_statistics()) {
      any_frozen = true;
    } else if (norm != nullptr && norm->running_mean().defined()) {
      norms.push_back(norm);
    }
  }
  check(!norms.empty() || !any_frozen, "recalibrate",
        "model: expected batch norms whose statistics are not frozen, got none");
  check(!norms.empty(), "recalibrate", "model: expected batch norms with running statistics, got none");
  return norms;
}

}  // namespace

void check_recalibrates(const nn::Module& model) {
  norms_to_recalibrate<const nn::BatchNorm>(model);
}

int64_t recalibrate(nn::Module& model, data::Loader& batches, int64_t max_batches) {
  check(max_batches >= 1, "recalibrate", "max_batches: expected at least 1, got {}", max_batches);
  const NoGradGuard no_grad;
  auto batch = batches.next();  // before the old statistics are reset
  check(batch.has_value(), "recalibrate", "batches: expected at least one, got none");
  const nn::Modes modes(model);
  model.eval();
  std::vector<std::unique_ptr<Averaging>> norms;
  for (nn::BatchNorm* norm : norms_to_recalibrate<nn::BatchNorm>(model)) {
    norms.push_back(std::make_unique<Averaging>(*norm));
  }
  const Device device = model.device();
  const Tensors parameters = model.parameters();
  const DType dtype = parameters.empty() ? DType::float32 : parameters.front().dtype();
  int64_t used = 0;
  for (; batch && used < max_batches; batch = batches.next()) {
    model(to(data::images_on(*batch, device), dtype));
    ++used;
  }
  for (const auto& norm : norms) {
    norm->keep();
  }
  return used;
}

}  // namespace norma::train
