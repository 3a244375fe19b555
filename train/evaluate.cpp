#include "train/evaluate.h"

#include "core/allocator.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "train/interrupt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <vector>

namespace norma::train {

namespace {

int64_t count_equal(const std::vector<int64_t>& answers, const std::vector<int64_t>& labels) {
  int64_t equal = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    equal += answers[i] == labels[i] ? 1 : 0;
  }
  return equal;
}

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

/// Adds up the sums of all processes. The last one becomes the number of processes to which a signal came, and all know
/// of it then. `has_top` is false where this one has no images; true if it is in any.
bool add_over(parallel::ProcessGroup& group, std::array<double, 5>& sums, bool has_top) {
  sums[4] = SharedInterrupts::is_pending() ? 1 : 0;
  std::vector<double> all(sums.begin(), sums.end());
  all.push_back(has_top ? 1 : 0);
  const Tensor x = from_vector(all, {static_cast<int64_t>(all.size())}, {.dtype = DType::float64, .device = kCpu});
  group.all_reduce(x);
  all = x.to_vector<double>();
  std::copy_n(all.begin(), sums.size(), sums.begin());
  SharedInterrupts::settle(sums[4] > 0);
  return all.back() > 0;
}

Evaluation evaluate_all(nn::Module& model, data::Loader& batches, const Precision& precision,
                        const EvaluateOptions& options) {
  const nn::Modes modes(model);
  model.eval();
  const NoGradGuard no_grad;
  const PrecisionScope scope(precision);
  const auto start = std::chrono::steady_clock::now();
  Evaluation result;
  int64_t correct = 0;
  int64_t in_top = 0;
  bool has_top = false;
  double loss_sum = 0;
  const Device device = model.device();
  while (const auto batch = batches.next()) {
    std::array<double, 5> sums{};  // right answers, those among the largest, loss, images, signals
    std::vector<int64_t> labels;
    std::vector<int64_t> answers;
    if (batch->labels.numel() > 0) {
      const Tensor output = model(convert_input(data::images_on(*batch, device), precision));
      const Tensor logits = to(output, compute_dtype(output.dtype()));
      labels = batch->labels.to_vector<int64_t>();
      answers = argmax(logits, 1).to_vector<int64_t>();
      has_top = logits.size(1) > kTop;
      sums = {static_cast<double>(count_equal(answers, labels)),
              static_cast<double>(has_top ? count_in_top(logits, labels) : 0),
              cross_entropy(logits, to_device(batch->labels, device), {.reduction = Reduction::sum})
                  .to_vector<double>()
                  .front(),
              static_cast<double>(labels.size())};
    }
    if (options.group != nullptr) {
      has_top = add_over(*options.group, sums, has_top);
    }
    correct += static_cast<int64_t>(sums[0]);
    in_top += static_cast<int64_t>(sums[1]);
    loss_sum += sums[2];
    if (std::isnan(loss_sum)) {  // its sign is random, and would be printed
      loss_sum = std::numeric_limits<double>::quiet_NaN();
    }
    result.images += static_cast<int64_t>(sums[3]);
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
  result.accuracy = static_cast<double>(correct) / count;
  result.loss = loss_sum / count;
  if (has_top) {
    result.top5 = static_cast<double>(in_top) / count;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace

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

}  // namespace norma::train
