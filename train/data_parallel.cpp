#include "train/data_parallel.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/factory.h"
#include "core/sha256.h"
#include "core/tape.h"
#include "core/version.h"
#include "nn/norm/batch_norm.h"
#include "ops/norm/parts_of_batch.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"
#include "train/agreement.h"
#include "train/environment.h"
#include "train/interrupt.h"
#include "train/recipe_option.h"
#include "train/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>
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

/// The SHA-256 of some images over the whole data set, with their labels.
std::string fingerprint(const data::Dataset& images) {
  constexpr int64_t kSamples = 16;
  const int64_t size = images.info().size;
  std::string bytes;
  data::Image image;
  for (int64_t i = 0; i < std::min(kSamples, size); ++i) {
    const int64_t label = images.load(i * size / std::min(kSamples, size), image);
    bytes += fmt::format("{} {} {} ", label, image.height, image.width);
    bytes.append(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size());
  }
  return sha256(bytes);
}

std::string fingerprint(const nn::NamedTensors& tensors) {
  std::string of_each;
  for (const auto& [name, x] : tensors) {
    const Tensor here = to_device(x.detach(), kCpu);
    if (is_non_overlapping_and_dense(here)) {
      of_each += sha256(
          {static_cast<const char*>(here.device_pointer()), static_cast<size_t>(here.numel()) * size_of(here.dtype())});
    }
  }
  return sha256(of_each);
}

/// The running statistics that each process has from its own images.
nn::NamedTensors own_statistics(const nn::Module& model) {
  Tensors same;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* const norm = dynamic_cast<const nn::BatchNorm*>(module);
    if ((norm != nullptr && norm->has_parts()) || dynamic_cast<const nn::FrozenBatchNorm2d*>(module) != nullptr) {
      for (const auto& [name, x] : module->named_buffers()) {
        same.push_back(x);
      }
    }
  }
  nn::NamedTensors own = model.named_buffers();
  std::erase_if(own, [&](const auto& buffer) {  // counts of batches are the same, too
    return !is_floating(buffer.second.dtype()) ||
           std::ranges::any_of(same, [&](const Tensor& x) { return x.is_same(buffer.second); });
  });
  return own;
}

/// What has to be the same in all processes: a line each, "name<tab>value".
std::string facts(const TrainingState& run) {
  std::vector<std::pair<std::string, std::string>> all{
      {"version", std::string(version())},
      {"libraries", versions_json()},
      {"byte order", std::endian::native == std::endian::little ? "little endian" : "big endian"},
      {"training images", fmt::format("{} of {}", run.train_set->info().size, run.train_set->info().name)},
      {"contents of the training images", fingerprint(*run.train_set)},
      {"contents of the test images", fingerprint(*run.test_set)},
      {"step", std::to_string(run.step)},
      {"weights", fingerprint(run.model->named_parameters())}};
  std::istringstream recipe(to_toml(run.recipe));
  for (std::string line; std::getline(recipe, line);) {
    if (const size_t sign = line.find(" = "); sign != std::string::npos && !line.starts_with("data-dir")) {
      all.emplace_back("--" + line.substr(0, sign), line.substr(sign + 3));
    }
  }
  std::string text;
  for (const auto& [name, value] : all) {
    text += fmt::format("{}\t{}\n", name, value);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> parsed(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = std::min(line.find('\t'), line.size() - 1);
    result.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return result;
}

/// The first line of `other` that differs from `first`: "--lr: expected 0.1, as rank 0 has, got 0.2".
std::string difference(const std::string& first, const std::string& other) {
  const auto expected = parsed(first);
  const auto got = parsed(other);
  for (const auto& [name, value] : expected) {
    const auto found = std::ranges::find(got, name, &std::pair<std::string, std::string>::first);
    if (found == got.end() || found->second != value) {
      return fmt::format("{}: expected {}, as rank 0 has, got {}", name, excerpt(value),
                         found == got.end() ? "none" : excerpt(found->second));
    }
  }
  for (const auto& [name, value] : got) {
    if (std::ranges::find(expected, name, &std::pair<std::string, std::string>::first) == expected.end()) {
      return fmt::format("{}: expected none, as rank 0 has, got {}", name, excerpt(value));
    }
  }
  return "";
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<parallel::ProcessGroup> group) : group_(std::move(group)) {}

void DataParallel::check_same(TrainingState& run) const {
  const std::vector<std::string> all = group_->all_gather_text(facts(run));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::string other = difference(all[0], all[rank]);
    check(other.empty(), "train", "rank {}: {}", rank, other);
  }
}

void DataParallel::start(TrainingState& run) {
  if (alone()) {
    return;
  }
  check(run.recipe.batch_size >= group_->size(), "train",
        "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
        run.recipe.batch_size, group_->size());
  check_same(run);
  const NoGradGuard no_grad;
  for (const auto& [name, x] : run.model->named_buffers()) {  // the parameters are the same, as check_same() saw
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
  fill_(select(sums, 0, 1), SharedInterrupts::is_pending() ? 1 : 0);
  group_->all_reduce(sums);
  SharedInterrupts::settle(sums.to_vector<double>()[1] > 0);
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
    const Tensor own = in_float64(to_device(x.detach(), kCpu));
    const Tensor total = copy_of(own);
    group_->all_reduce(total);
    const Tensor average = div(total, group_->size());
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
    names.push_back(name);
    distances.push_back(scale > 0 ? largest(sub(own, average)) / scale : 0);
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
  const nn::NamedTensors live = own_statistics(*run.model);
  std::vector<Tensor> before;
  for (const auto& [name, x] : live) {
    before.push_back(copy_of(x.detach()));
  }
  average_statistics(run);
  Checkpoint result = run.checkpoint();
  for (size_t i = 0; i < live.size(); ++i) {
    const auto kept = std::ranges::find(result.model, live[i].first, &nn::NamedTensors::value_type::first);
    if (kept != result.model.end()) {
      kept->second = copy_of(kept->second);
    }
    copy_into(before[i], live[i].second.detach());
    live[i].second.bump_version();
  }
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
