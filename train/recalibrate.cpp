#include "train/recalibrate.h"

#include "core/copy.h"
#include "core/tape.h"
#include "nn/hooks.h"
#include "nn/module.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/changed_norms.h"
#include "ops/shape/copy.h"

#include <memory>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

/// Puts a batch norm into training, and collects mean and variance of its inputs. At the end its buffers return: those
/// before, or after keep() the new statistics. The number of batches, which a schedule of batch renorm follows, is that
/// before in any case. Batch renorm would correct towards other statistics, so it gets the bounds of a batch norm.
class Population {
 public:
  explicit Population(nn::BatchNorm& norm) : norm_(norm), renorm_(dynamic_cast<nn::BatchRenorm2d*>(&norm)) {
    for (const auto& [name, buffer] : norm.named_buffers()) {
      returning_.emplace_back(buffer, copy_of(buffer));
    }
    if (renorm_ != nullptr) {
      r_max_ = renorm_->r_max();
      d_max_ = renorm_->d_max();
      renorm_->set_bounds(/* r_max= */ 1, /* d_max= */ 0);
    }
    norm_.train();
    hooks_.add(norm, [this](const nn::Module&, const Tensor& x, const Tensor&) { moments_.add(x); });
  }
  ~Population() {
    for (const auto& [buffer, values] : returning_) {
      copy_into(values, buffer);
    }
    if (renorm_ != nullptr) {
      renorm_->set_bounds(r_max_, d_max_);
    }
  }
  Population(const Population&) = delete;
  Population& operator=(const Population&) = delete;

  void keep() {
    for (const auto& [buffer, values] : returning_) {
      if (buffer.is_same(norm_.running_mean())) {
        nn::write(moments_.mean(), values);
      } else if (buffer.is_same(norm_.running_var())) {
        nn::write(moments_.var(/* correction= */ norm_.options().biased_running_var ? 0 : 1), values);
      }
    }
  }

 private:
  nn::BatchNorm& norm_;
  nn::BatchRenorm2d* renorm_;  ///< the same norm, if it is one
  double r_max_ = 1;
  double d_max_ = 0;
  std::vector<std::pair<Tensor, Tensor>> returning_;  ///< buffers, and the values that they get at the end
  nn::ChannelMoments moments_;
  nn::Hooks hooks_;
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
  std::vector<std::unique_ptr<Population>> norms;
  for (nn::BatchNorm* norm : norms_to_recalibrate<nn::BatchNorm>(model)) {
    norms.push_back(std::make_unique<Population>(*norm));
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
