#include "train/evaluate.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "data/dataset.h"
#include "nn/hooks.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/changed_norms.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "train/processes.h"
#include "train/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace norma::train {

namespace {

constexpr size_t kBitsOfByte = 8;
constexpr size_t kBitsOfDigit = 4;

constexpr int64_t kTop = 5;

/// The number of labels among the kTop largest logits of their row, in the order of argmax(): of equal ones the first
/// comes first, and NaN counts as largest.
int64_t count_in_top(const Tensor& logits, const std::vector<int64_t>& labels) {
  const auto classes = static_cast<size_t>(logits.size(1));
  const std::vector<double> values = logits.to_vector<double>();
  int64_t count = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double* row = values.data() + i * classes;
    const auto label = static_cast<size_t>(labels[i]);
    int64_t before = 0;
    for (size_t k = 0; k < classes; ++k) {
      const bool equal = row[k] == row[label] || (std::isnan(row[k]) && std::isnan(row[label]));
      const bool larger = !equal && !std::isnan(row[label]) && !(row[k] < row[label]);
      before += larger || (equal && k < label) ? 1 : 0;
    }
    count += before < kTop ? 1 : 0;
  }
  return count;
}

[[noreturn]] void fail_for_memory(const data::Loader& batches, const std::string& reason) {
  throw OutOfMemory(
      fmt::format("evaluate: batch-size: {} images do not fit into memory ({}): a smaller --batch-size may",
                  batches.batch_size(), reason));
}

/// What a process knows of a batch. All are whole numbers but `loss`.
struct BatchSums {
  double in_top = 0;  ///< labels among the largest logits
  double loss = 0;
  double images = 0;
  bool has_top = false;       ///< false where this process has no images
  std::vector<double> right;  ///< 1 or 0 for each image of the whole batch; 0 for those of other processes
};

/// Adds up what all processes know. If a signal came to any of them, all know of it then.
void add_over(parallel::ProcessGroup& group, BatchSums& sums) {
  const double signals = StopFlag::is_pending() ? 1 : 0;
  std::vector<double> all = {sums.in_top, sums.loss, sums.images, sums.has_top ? 1.0 : 0.0, signals};
  const auto first_right = static_cast<std::ptrdiff_t>(all.size());
  all.insert(all.end(), sums.right.begin(), sums.right.end());
  const Tensor x = from_vector(all, {static_cast<int64_t>(all.size())}, {.dtype = DType::float64, .device = kCpu});
  group.all_reduce(x);
  all = x.to_vector<double>();
  StopFlag::settle(all[4] > 0);
  sums = {.in_top = all[0],
          .loss = all[1],
          .images = all[2],
          .has_top = all[3] > 0,
          .right = {all.begin() + first_right, all.end()}};
}

Evaluation evaluate_all(nn::Module& model, data::Loader& batches, const Precision& precision,
                        const EvaluateOptions& options) {
  const nn::Modes modes(model);
  model.eval();
  const NoGradGuard no_grad;
  const PrecisionScope scope(precision);
  const auto start = std::chrono::steady_clock::now();
  Evaluation result;
  int64_t in_top = 0;
  bool has_top = false;
  double loss_sum = 0;
  const Device device = model.device();
  while (const auto batch = batches.next()) {
    BatchSums sums;
    sums.right.resize(static_cast<size_t>(batch->total));
    std::vector<int64_t> labels;
    std::vector<int64_t> answers;
    if (batch->labels.numel() > 0) {
      const Tensor output = model(convert_input(data::images_on(*batch, device), precision));
      const Tensor logits = to(output, compute_dtype(output.dtype()));
      labels = batch->labels.to_vector<int64_t>();
      answers = argmax(logits, 1).to_vector<int64_t>();
      for (size_t i = 0; i < labels.size(); ++i) {
        check(labels[i] >= 0 && labels[i] < logits.size(1), "evaluate",
              "labels: expected classes in [0, {}), as the network has, got {}", logits.size(1), labels[i]);
        sums.right[static_cast<size_t>(batch->first) + i] = answers[i] == labels[i] ? 1 : 0;
      }
      sums.has_top = logits.size(1) > kTop;
      sums.in_top = static_cast<double>(sums.has_top ? count_in_top(logits, labels) : 0);
      sums.loss = cross_entropy(logits, to_device(batch->labels, device), {.reduction = Reduction::sum})
                      .to_vector<double>()
                      .front();
      sums.images = static_cast<double>(labels.size());
    }
    if (options.group != nullptr) {
      add_over(*options.group, sums);
    }
    for (const double right : sums.right) {
      result.right.push_back(right > 0);
    }
    has_top = sums.has_top;
    in_top += static_cast<int64_t>(sums.in_top);
    loss_sum += sums.loss;
    if (std::isnan(loss_sum)) {  // its sign is random, and would be printed
      loss_sum = std::numeric_limits<double>::quiet_NaN();
    }
    result.images += static_cast<int64_t>(sums.images);
    if (options.on_batch) {
      options.on_batch({.labels = labels,
                        .answers = answers,
                        .images = result.images,
                        .loss = loss_sum / static_cast<double>(result.images)});
    }
    if (interrupted()) {
      break;
    }
  }
  result.complete = !interrupted();
  const auto count = static_cast<double>(result.images);
  result.accuracy = static_cast<double>(count_right(result.right)) / count;
  result.loss = loss_sum / count;
  if (has_top) {
    result.top5 = static_cast<double>(in_top) / count;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

/// Puts a batch norm into training, and collects mean and variance of its inputs. At the end its buffers return: those
/// before, or after keep() the new statistics. The number of batches, which a schedule of batch renorm follows, is that
/// before in any case. Batch renorm would correct towards other statistics, so it gets the bounds of a batch norm.
class Population : NotCopied {
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

int64_t count_right(const ImageBits& bits) {
  return std::ranges::count(bits, true);
}

std::string to_hex(const ImageBits& bits) {
  std::string digits;
  for (size_t first = 0; first < bits.size(); first += kBitsOfByte) {
    unsigned byte = 0;
    for (size_t i = first; i < first + kBitsOfByte; ++i) {
      byte = 2 * byte + (i < bits.size() && bits[i] ? 1 : 0);
    }
    digits += fmt::format("{:02x}", byte);
  }
  return digits;
}

ImageBits image_bits_from_hex(std::string_view where, int64_t images, std::string_view digits) {
  // Also keeps a damaged number from asking for much memory.
  check(images >= 1 && static_cast<uint64_t>(images) <= kBitsOfDigit * digits.size() &&
            digits.size() == 2 * ((static_cast<size_t>(images) + kBitsOfByte - 1) / kBitsOfByte),
        where, "bits: expected two digits for each eight images, got {} digits for {} images", digits.size(), images);
  ImageBits bits;
  for (const char& digit : digits) {
    const size_t value = std::string_view("0123456789abcdef").find(digit);
    check(value != std::string_view::npos, where, "bits: expected hexadecimal digits 0 to 9 and a to f, got '{}'",
          excerpt({&digit, 1}));
    for (size_t bit = kBitsOfDigit; bit-- > 0;) {
      bits.push_back((value >> bit & 1) == 1);
    }
  }
  check(std::find(bits.begin() + images, bits.end(), true) == bits.end(), where,
        "bits: expected 0 behind the last of {} images, got 1", images);
  bits.resize(static_cast<size_t>(images));
  return bits;
}

Evaluation evaluate(nn::Module& model, data::Loader& batches, const Precision& precision,
                    const EvaluateOptions& options) {
  try {
    return evaluate_all(model, batches, precision, options);
  } catch (const OutOfMemory& error) {
    fail_for_memory(batches, error.what());
  } catch (const std::bad_alloc&) {
    fail_for_memory(batches, "the system has none left");
  }
}

namespace {

Evaluation evaluate_on(TrainingState& run, nn::Module& model, const Recipe& recipe,
                       std::shared_ptr<const data::Dataset> images, int workers) {
  const DataParallel& processes = run.processes;
  data::Loader batches = make_test_loader(recipe, std::move(images), workers, model.device(), processes.part());
  return evaluate(model, batches, run.precision, {.group = processes.alone() ? nullptr : &processes.group()});
}

}  // namespace

Evaluation evaluate_on_test_images(TrainingState& run, nn::Module& model, int workers) {
  return evaluate_on(run, model, run.recipe, run.test_set, workers);
}

Evaluation evaluate_on_training_images(TrainingState& run, nn::Module& model, int64_t images, int workers) {
  Recipe recipe = run.recipe;
  recipe.test_images = 0;  // all of the part
  const int64_t count = std::min(images, run.train_set->info().size);
  return evaluate_on(run, model, recipe, data::random_subset(run.train_set, count), workers);
}

void load_averages(TrainingState& run, nn::Module& model) {
  // All steps so far may have been left out.
  model.load_state_dict(run.optimizer->steps() > 0 ? run.ema->averages() : run.wide_state());
}

std::string empty_classes_text(const data::DatasetInfo& test) {
  return test.empty_classes.empty() ? ""
                                    : fmt::format("no test images of {} of {} classes: {}", test.empty_classes.size(),
                                                  test.num_classes(), excerpt_list(test.empty_classes));
}

std::string skipped_text(const data::Dataset& dataset) {
  const std::vector<std::string> files = dataset.skipped();
  if (files.empty()) {
    return "";
  }
  const bool one = files.size() == 1;
  return fmt::format("{} image{} could not be decoded, and the next one took {} place: {}", files.size(),
                     one ? "" : "s", one ? "its" : "their", excerpt_list(files));
}

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
  const auto norms = mapped(norms_to_recalibrate<nn::BatchNorm>(model),
                            [](nn::BatchNorm* norm) { return std::make_unique<Population>(*norm); });
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
