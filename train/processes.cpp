#include "train/processes.h"

#include "base/lists.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/norm/batch_norm.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"
#include "train/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <new>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

volatile std::sig_atomic_t asking_signal = 0;  // its number
bool is_shared = false;
std::atomic<int> settled_signal = 0;  // which the processes have agreed on

using Clock = std::chrono::steady_clock;

/// The text of what `work` throws; "" if it does not.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an error without a text" : error.what();
  }
  return "";
}

/// True iff the first process goes on with its work. All know of a signal then that came to one.
bool goes_on(parallel::ProcessGroup& group, bool first_does) {
  const Tensor x = zeros({2}, {.dtype = DType::float64, .device = kCpu});
  auto* const values = x.data<double>();
  values[0] = group.is_first() && first_does ? 1 : 0;
  values[1] = StopFlag::is_pending() ? 1 : 0;
  group.all_reduce(x);
  StopFlag::settle(values[1] > 0);
  return values[0] > 0;
}

/// Tells the others from time to time that this process works, so that they do not take it for lost.
class Beat {
 public:
  explicit Beat(parallel::ProcessGroup& group)
      : thread_([this, &group](const std::stop_token& stop) {
          constexpr std::chrono::milliseconds kBetween{200};
          try {
            std::unique_lock lock(mutex_);
            while (!changed_.wait_for(lock, stop, kBetween, [&] { return stop.stop_requested(); })) {
              goes_on(group, true);
            }
          } catch (...) {
            error_ = std::current_exception();
          }
        }) {}
  /// Throws where another process is lost.
  void stop() {
    thread_.request_stop();
    thread_.join();
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::exception_ptr error_;
  std::jthread thread_;
};

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
  if (!run.ema) {
    return {};
  }
  const nn::NamedTensors statistics = own_statistics(*run.model);
  return filtered(run.ema->averages(), [&](const auto& average) {
    return is_in(statistics, average.first, &nn::NamedTensors::value_type::first);
  });
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
  explicit Kept(nn::NamedTensors live)
      : live_(std::move(live)), before_(mapped(live_, [](const auto& one) { return copy_of(one.second.detach()); })) {}
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

bool interrupted() {
  return interrupting_signal() != 0;
}

int interrupting_signal() {
  return is_shared ? settled_signal.load() : asking_signal;
}

bool StopFlag::ask(int signal) {
  if (asking_signal != 0) {
    return false;
  }
  asking_signal = signal;
  return true;
}

void StopFlag::withdraw() {
  asking_signal = 0;
}

bool StopFlag::is_pending() {
  return asking_signal != 0;
}

void StopFlag::share(bool together) {
  settled_signal = 0;
  is_shared = together;
}

void StopFlag::settle(bool any) {
  if (any && settled_signal == 0) {
    settled_signal = asking_signal != 0 ? asking_signal : SIGTERM;
  }
}

std::string first_text(parallel::ProcessGroup& group, const std::string& text) {
  if (group.size() == 1) {
    return text;
  }
  const std::vector<std::string> all = group.all_gather_text(text);
  const auto found = std::ranges::find_if(all, [](const std::string& one) { return !one.empty(); });
  return found == all.end() ? "" : *found;
}

std::string text_of_first(parallel::ProcessGroup& group, const std::string& text) {
  return first_text(group, group.is_first() ? text : "");
}

bool of_first(parallel::ProcessGroup& group, bool value) {
  return group.size() == 1 ? value : !text_of_first(group, value ? "true" : "").empty();
}

void rethrow_unless_agreed(const parallel::ProcessGroup& group) {
  if (group.size() == 1) {
    return;
  }
  try {
    throw;
  } catch (const AgreedError&) {
  }
}

void do_together(parallel::ProcessGroup& group, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  if (const std::string error = first_text(group, error_of(work)); !error.empty()) {
    throw AgreedError(error);
  }
}

void do_in_first(parallel::ProcessGroup& group, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  std::string error;
  if (group.is_first()) {
    Beat beat(group);
    error = error_of(work);
    beat.stop();
    goes_on(group, false);
  } else {
    // Waiting for a message takes some of the processor, which the first one works with.
    const Clock::time_point start = Clock::now();
    while (goes_on(group, false)) {
      std::this_thread::sleep_for(std::min<Clock::duration>((Clock::now() - start) / 4, std::chrono::seconds(1)));
    }
  }
  error = first_text(group, error);
  if (!error.empty()) {
    throw Error(error);
  }
}

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
