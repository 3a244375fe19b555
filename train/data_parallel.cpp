#include "train/data_parallel.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/norm/batch_norm.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"
#include "train/agreement.h"
#include "train/stop.h"
#include "train/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

class PartsOfGroup final : public PartsOfBatch {
 public:
  explicit PartsOfGroup(std::shared_ptr<parallel::ProcessGroup> group) : group_(std::move(group)) {}
  [[nodiscard]] Tensor all_gather(const Tensor& x) const override { return group_->all_gather(x); }

 private:
  std::shared_ptr<parallel::ProcessGroup> group_;
};

/// The running statistics that each process has from its own images.
nn::NamedTensors own_statistics(const nn::Module& model) {
  Tensors same;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* const norm = dynamic_cast<const nn::BatchNorm*>(module);
    if ((norm != nullptr && norm->has_parts()) || module->has_frozen_statistics() ||
        dynamic_cast<const nn::FrozenBatchNorm2d*>(module) != nullptr) {
      for (const auto& [name, x] : module->own_buffers()) {
        same.push_back(x);
      }
    }
  }
  nn::NamedTensors own = model.named_buffers(/* remove_duplicate= */ false);  // averages have all names
  std::erase_if(own, [&](const auto& buffer) {                                // counts of batches are the same, too
    return !is_floating(buffer.second.dtype()) ||
           std::ranges::any_of(same, [&](const Tensor& x) { return x.is_same(buffer.second); });
  });
  return own;
}

/// The moving averages of such statistics, which each process has from its own, too.
nn::NamedTensors own_averages(const TrainingState& run) {
  nn::NamedTensors own;
  if (!run.ema) {
    return own;
  }
  const nn::NamedTensors statistics = own_statistics(*run.model);
  for (const auto& [name, x] : run.ema->averages()) {
    if (std::ranges::find(statistics, name, &nn::NamedTensors::value_type::first) != statistics.end()) {
      own.emplace_back(name, x);
    }
  }
  return own;
}

/// Puts the mean over all processes into x. Returns the distance of this process from it, as a share of the mean's
/// largest value.
double average_over(parallel::ProcessGroup& group, const Tensor& x) {
  const Tensor own = in_float64(to_device(x.detach(), kCpu));
  const Tensor total = copy_of(own);
  group.all_reduce(total);
  const Tensor average = div(total, group.size());
  copy_into(average, x.detach());
  x.bump_version();
  const auto largest = [](const Tensor& of) {
    double result = 0;
    for (const double value : of.to_vector<double>()) {
      result = std::max(result, std::abs(value));
    }
    return result;
  };
  const double scale = largest(average);
  return scale > 0 ? largest(sub(own, average)) / scale : 0;
}

/// Tensors of a run, which get their present values back.
class Kept {
 public:
  explicit Kept(nn::NamedTensors live) : live_(std::move(live)) {
    for (const auto& [name, x] : live_) {
      before_.push_back(copy_of(x.detach()));
    }
  }
  /// `saved` has tensors of the same names, which may share memory with these: they keep their values.
  void give_back(nn::NamedTensors& saved) const {
    for (const auto& [name, x] : live_) {  // all of them first: two names may have one memory
      const auto kept = std::ranges::find(saved, name, &nn::NamedTensors::value_type::first);
      if (kept != saved.end()) {
        kept->second = copy_of(kept->second);
      }
    }
    for (size_t i = 0; i < live_.size(); ++i) {
      copy_into(before_[i], live_[i].second.detach());
      live_[i].second.bump_version();
    }
  }

 private:
  nn::NamedTensors live_;
  std::vector<Tensor> before_;
};

}  // namespace

DataParallel::DataParallel(std::shared_ptr<parallel::ProcessGroup> group) : group_(std::move(group)) {}

void DataParallel::start(TrainingState& run) {
  if (alone()) {
    return;
  }
  check(run.recipe.batch_size >= group_->size(), "train",
        "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
        run.recipe.batch_size, group_->size());
  const NoGradGuard no_grad;
  for (const auto& [name, x] : run.model->named_buffers()) {
    group_->broadcast(x.detach());
    x.bump_version();
  }
  do_together(*group_, [&] {
    const auto parts = std::make_shared<PartsOfGroup>(group_);
    for (const auto& [name, module] : run.model->named_modules()) {
      auto* const norm = dynamic_cast<nn::BatchNorm*>(module);
      if (norm != nullptr && (run.recipe.sync_bn || dynamic_cast<nn::SyncBatchNorm2d*>(module) != nullptr)) {
        norm->set_parts(parts);
      }
    }
  });
  reducer_ = std::make_unique<parallel::GradientReducer>(*group_, run.optimizer->parameters());
}

void DataParallel::backward(const Tensor& loss, bool last) {
  if (reducer_ == nullptr || !last) {
    loss.backward();
    return;
  }
  norma::backward(loss, {},
                  {.on_leaf = [this](const Tensor& leaf, const Tensor& gradient) { reducer_->take(leaf, gradient); }});
}

Tensor DataParallel::finish_step(const Tensor& loss) {
  if (reducer_ == nullptr) {
    return loss;
  }
  reducer_->finish();
  const NoGradGuard no_grad;
  const Tensor sums = zeros({2}, {.dtype = DType::float64, .device = kCpu});
  copy_into(loss.detach(), select(sums, 0, 0));
  fill_(select(sums, 0, 1), StopFlag::is_pending() ? 1 : 0);
  group_->all_reduce(sums);
  StopFlag::settle(sums.to_vector<double>()[1] > 0);
  return to_device(select(sums, 0, 0), loss.device());
}

std::string DataParallel::average_statistics(TrainingState& run) {
  if (alone()) {
    return "";
  }
  const NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<double> distances;  // the largest of each buffer from the mean, as a share of the mean's largest value
  for (const auto& [name, x] : own_statistics(*run.model)) {
    names.push_back(name);
    distances.push_back(average_over(*group_, x));
  }
  for (const auto& [name, x] : own_averages(run)) {  // no checkpoint or evaluation has those of one process
    average_over(*group_, x);
  }
  const auto count = static_cast<int64_t>(distances.size());
  const std::vector<double> of_all =
      group_->all_gather(from_vector(distances, {count}, {.dtype = DType::float64, .device = kCpu}))
          .to_vector<double>();
  const auto most = std::ranges::max_element(of_all);
  return most == of_all.end() || *most == 0
             ? ""
             : fmt::format(
                   "running statistics: averaged over {} processes; {} had drifted apart most, by {:.2g} of its "
                   "largest value",
                   group_->size(), names[static_cast<size_t>(most - of_all.begin()) % names.size()], *most);
}

Checkpoint DataParallel::checkpoint(TrainingState& run) {
  if (alone()) {
    return run.checkpoint();
  }
  const NoGradGuard no_grad;
  const Kept statistics(own_statistics(*run.model));
  const Kept averages(own_averages(run));
  average_statistics(run);
  Checkpoint result = run.checkpoint();
  statistics.give_back(result.model);
  averages.give_back(result.ema);
  return result;
}

void DataParallel::work_alone(TrainingState& run) {
  reducer_ = nullptr;
  for (const auto& [name, module] : run.model->named_modules()) {
    if (auto* const norm = dynamic_cast<nn::BatchNorm*>(module); norm != nullptr && norm->has_parts()) {
      norm->set_parts(nullptr);
    }
  }
}

}  // namespace norma::train
