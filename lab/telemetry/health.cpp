#include "lab/telemetry/health.h"

#include "base/lists.h"
#include "core/autocast.h"
#include "core/copy.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/half.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "data/safetensors.h"
#include "lab/telemetry/visit_tape.h"
#include "nn/checkpoint.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/norm.h"
#include "ops/attention/attention.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <type_traits>

namespace norma::lab {

namespace {

template <size_t Bytes>
using Bits = std::conditional_t<Bytes == 8, uint64_t, std::conditional_t<Bytes == 4, uint32_t, uint16_t>>;

/// The result of one pass over the bits of a tensor. The bits of absolute values have the order of the values, with
/// infinity and NaN above all others, so whole numbers are compared.
struct Extremes {
  double largest = 0;
  int64_t non_finite = 0;
  int64_t dead = 0;  ///< number of dead channels
};

/// Raises largest[c] to the largest absolute value of the channel's elements, as bits, and counts non-finite ones.
template <class B>
struct BitScan {
  B magnitude;  ///< all bits but the sign's
  B infinity;

  int64_t run(const B* x, int64_t count, B& largest) const {  // for one channel
    B most = largest;
    int64_t bad = 0;
    for (int64_t i = 0; i < count; ++i) {
      const B bits = x[i] & magnitude;
      most = std::max(most, bits);
      bad += bits >= infinity ? 1 : 0;
    }
    largest = most;
    return bad;
  }
  int64_t pixel(const B* x, int64_t channels, B* largest) const {  // for all channels
    int64_t bad = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const B bits = x[c] & magnitude;
      largest[c] = std::max(largest[c], bits);
      bad += bits >= infinity ? 1 : 0;
    }
    return bad;
  }
};

/// x is dense: contiguous or channels_last, in host memory.
template <class T>
Extremes extremes_of(const Tensor& x) {
  using B = Bits<sizeof(T)>;
  const BitScan<B> scan{.magnitude = static_cast<B>(std::numeric_limits<B>::max() >> 1),
                        .infinity = std::bit_cast<B>(static_cast<T>(std::numeric_limits<compute_t<T>>::infinity()))};
  const auto* elements = static_cast<const B*>(x.raw_data());
  const int64_t images = x.size(0);
  const int64_t channels = x.size(1);
  const int64_t pixels = x.numel() / (images * channels);
  std::vector<B> largest(static_cast<size_t>(channels), 0);
  int64_t non_finite = 0;
  std::mutex mutex;
  if (x.is_contiguous()) {
    const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (images * pixels));
    parallel_for(0, channels, grain, [&](int64_t first, int64_t last) {
      int64_t bad = 0;
      for (int64_t image = 0; image < images; ++image) {
        for (int64_t c = first; c < last; ++c) {
          bad += scan.run(elements + (image * channels + c) * pixels, pixels, largest[static_cast<size_t>(c)]);
        }
      }
      const std::lock_guard lock(mutex);
      non_finite += bad;
    });
  } else {
    const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / channels);
    parallel_for(0, images * pixels, grain, [&](int64_t first, int64_t last) {
      std::vector<B> own(static_cast<size_t>(channels), 0);
      int64_t bad = 0;
      for (int64_t pixel = first; pixel < last; ++pixel) {
        bad += scan.pixel(elements + pixel * channels, channels, own.data());
      }
      const std::lock_guard lock(mutex);
      non_finite += bad;
      for (size_t c = 0; c < own.size(); ++c) {
        largest[c] = std::max(largest[c], own[c]);
      }
    });
  }
  const B most = *std::ranges::max_element(largest);
  return {.largest = non_finite > 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : static_cast<double>(static_cast<compute_t<T>>(std::bit_cast<T>(most))),
          .non_finite = non_finite,
          .dead = std::ranges::count(largest, B{0})};
}

/// All axes but the channels'.
Axes axes_within_channel(const Tensor& x) {
  return axes_from(0, x.rank()).without(1);
}

struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> var;  ///< biased
};

ChannelStatistics channel_statistics(const Tensor& x) {
  const NormStatistics statistics = norm_statistics(x, {.reduce = axes_within_channel(x)});
  return {.mean = statistics.mean.to_vector<double>(), .var = statistics.var.to_vector<double>()};
}

/// All elements of a tensor.
struct Elements {
  double mean = 0;
  double deviation = 0;
};
Elements elements_of(const ChannelStatistics& channels) {
  const auto count = static_cast<double>(channels.mean.size());
  const double mean = sum_of(channels.mean, [&](double one) { return one / count; });
  double var = 0;
  for (size_t c = 0; c < channels.mean.size(); ++c) {
    var += (channels.var[c] + (channels.mean[c] - mean) * (channels.mean[c] - mean)) / count;
  }
  return {.mean = mean, .deviation = std::sqrt(var)};
}

Extremes extremes_on_host(const Tensor& x) {
  const Tensor there = to_device(x, kCpu);
  const bool dense = there.is_contiguous() || there.is_contiguous(MemoryFormat::channels_last);
  const Tensor scanned = dense ? there : copy_of(there, MemoryFormat::contiguous);
  return dispatch_any_floating("telemetry", x.dtype(), [&](auto zero) { return extremes_of<decltype(zero)>(scanned); });
}

Extremes extremes_by_ops(const Tensor& x) {
  const std::vector<double> largest = max(abs(x), axes_within_channel(x)).to_vector<double>();
  if (!std::ranges::all_of(largest, [](double value) { return std::isfinite(value); })) {
    return extremes_on_host(x);
  }
  return {.largest = *std::ranges::max_element(largest), .non_finite = 0, .dead = std::ranges::count(largest, 0.0)};
}

ParameterSpread spread_of(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  const auto [least, most] = std::ranges::minmax_element(values);
  const auto count = static_cast<double>(values.size());
  const double mean = sum_of(values, [&](double value) { return value / count; });
  const double squares = sum_of(values, [&](double value) { return (value - mean) * (value - mean); });
  return {.min = *least, .max = *most, .mean = mean, .deviation = std::sqrt(squares / count)};
}

BatchGap gap_of(const nn::BatchNorm& norm, const Tensor& input, const ChannelStatistics& batch) {
  const std::vector<double> mean = norm.running_mean().to_vector<double>();
  const std::vector<double> var = norm.running_var().to_vector<double>();
  const int64_t elements = input.numel() / input.size(1);
  const auto count = static_cast<double>(elements);
  const double unbiased = norm.options().biased_running_var || count < 2 ? 1 : count / (count - 1);
  double means = 0;
  double deviations = 0;
  double total = 0;
  for (size_t c = 0; c < mean.size(); ++c) {
    const double deviation = std::sqrt(batch.var[c] * unbiased) - std::sqrt(var[c]);
    means += (batch.mean[c] - mean[c]) * (batch.mean[c] - mean[c]);
    deviations += deviation * deviation;
    total += var[c];
  }
  return {.mean = std::sqrt(means / total), .deviation = std::sqrt(deviations / total)};
}

/// The spread of γ or β: a parameter of this name in the layer itself.
std::optional<ParameterSpread> spread_of(const nn::Module& module, std::string_view parameter) {
  const Tensor x = data::tensor_named(module.named_parameters(), parameter);
  return x.defined() && x.numel() > 0 ? std::optional(spread_of(x)) : std::nullopt;
}

bool can_be_looked_at(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && x.rank() >= 2 && x.numel() > 0;
}

}  // namespace

Look look_at(const Tensor& x) {
  return look_at(x, host_clock_will_do(x.device()) ? Scan::host : Scan::ops);
}

Look look_at(const Tensor& tensor, Scan scan) {
  const NoGradGuard no_grad;
  const AutocastOff no_autocast;
  const Tensor x = tensor.detach();
  const ChannelStatistics channels = channel_statistics(x);
  const Extremes extremes = scan == Scan::host ? extremes_on_host(x) : extremes_by_ops(x);
  const Elements elements = elements_of(channels);
  return {.health = {.mean = elements.mean,
                     .deviation = elements.deviation,
                     .largest = extremes.largest,
                     .non_finite = extremes.non_finite},
          .dead_channels = static_cast<double>(extremes.dead) / static_cast<double>(channels.mean.size())};
}

std::vector<AttentionHead> heads_of(const std::shared_ptr<Node>& node, const std::string& layer) {
  const auto* call = node->backward.target<AttentionBackward>();
  if (call == nullptr) {
    return {};
  }
  const NoGradGuard no_grad;
  const AutocastOff no_autocast;
  const BackwardContext context(node, /* needs= */ {}, /* create_graph= */ false);
  const auto [q, k, v, mask] = context.saved<4>();
  const int64_t images = q.size(0);
  const int64_t queries = q.size(2);
  const int64_t scores = q.size(1) * queries * k.size(2);
  if (images == 0 || scores == 0) {
    return {};
  }
  std::vector<AttentionHead> heads(static_cast<size_t>(q.size(1)), {.layer = layer, .entropy = 0});
  constexpr int64_t kMostScores = int64_t{1} << 22;
  const int64_t step = std::max<int64_t>(1, kMostScores / scores);
  for (int64_t first = 0; first < images; first += step) {
    const int64_t count = std::min(step, images - first);
    const bool per_image = mask.defined() && mask.rank() == 4 && mask.size(0) > 1;
    const auto [z, seen] =
        attention_scores(narrow(q, 0, first, count), narrow(k, 0, first, count),
                         per_image ? narrow(mask, 0, first, count) : mask, call->causal, call->scale);
    const Tensor log_p = log_softmax(z, -1);
    Tensor p = exp(log_p);
    if (seen.defined()) {
      p = where(seen, p, zeros_like(p));
    }
    const std::vector<double> largest = max(z, {0, 2, 3}).to_vector<double>();
    const std::vector<double> sums = sum(mul(p, log_p), {0, 2, 3}).to_vector<double>();
    for (size_t head = 0; head < heads.size(); ++head) {
      AttentionHead& one = heads[head];
      one.head = static_cast<int64_t>(head);
      const bool is_more = first == 0 || std::isnan(largest[head]) || largest[head] > one.largest_logit;
      one.largest_logit = is_more ? largest[head] : one.largest_logit;
      one.entropy -= sums[head] / static_cast<double>(images * queries);
    }
  }
  return heads;
}

HealthStep::HealthStep(const LayerTable& table, int64_t step, std::function<void(HealthSample)> done,
                       std::unique_ptr<DynamicsReader> dynamics)
    : table_(table),
      done_(std::move(done)),
      dynamics_(std::move(dynamics)),
      sample_{.step = step, .layers = {}},
      calls_(table.layers().size()),
      log_(table, /* profile= */ nullptr,
           [this](size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output) {
             add(layer, module, input, output);
             if (dynamics_) {
               dynamics_->add(layer, module, input, output);
             }
           }) {}

void HealthStep::add(size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output) {
  const Layer& place = table_.layers()[layer];
  Calls& calls = calls_[layer];
  if (nn::checkpoint_pass() == nn::CheckpointPass::again) {  // the first pass has shown the output
    if (!calls.rows.empty()) {
      look_at_gradient(output, calls.rows[calls.again++ % calls.rows.size()]);
    }
    return;
  }
  const bool of_interest = place.kind == LayerKind::norm || !module.named_parameters().empty();
  if (!of_interest || !can_be_looked_at(output)) {
    return;
  }
  const Look look = look_at(output);
  const std::string name = calls.rows.empty() ? place.name : fmt::format("{} ({})", place.name, calls.rows.size() + 1);
  LayerHealth health{.layer = name, .kind = place.kind, .output = look.health, .dead_channels = look.dead_channels};
  if (place.kind == LayerKind::norm) {
    health.gamma = spread_of(module, "weight");
    health.beta = spread_of(module, "bias");
  }
  if (place.kind == LayerKind::norm && can_be_looked_at(input)) {
    const NoGradGuard no_grad;
    const AutocastOff no_autocast;
    const ChannelStatistics batch = channel_statistics(input.detach());
    health.input_deviation = elements_of(batch).deviation;
    const auto* batch_norm = dynamic_cast<const nn::BatchNorm*>(&module);
    if (batch_norm != nullptr && batch_norm->running_mean().defined()) {
      health.gap = gap_of(*batch_norm, input.detach(), batch);
    }
  }
  calls.rows.push_back(std::ssize(sample_.layers));
  look_at_gradient(output, calls.rows.back());
  sample_.layers.push_back(std::move(health));
}

void HealthStep::look_at_gradient(const Tensor& output, int64_t layer) {
  if (output.is_leaf()) {
    return;
  }
  output.register_hook([this, layer](const Tensor& gradient) {
    if (can_be_looked_at(gradient)) {
      TensorHealth health = look_at(gradient).health;
      health.mean /= grad_scale_;
      health.deviation /= grad_scale_;
      health.largest /= grad_scale_;
      sample_.layers[static_cast<size_t>(layer)].gradient = health;
    }
    return Tensor();
  });
}

size_t HealthStep::maker_of_queries(const Node& attention) const {
  for (const Node* node = &attention; node != nullptr;) {
    const size_t layer = log_.layer_of_node(node->sequence);
    if (table_.layers()[layer].is_whole) {
      return layer;
    }
    node = node->inputs.empty() ? nullptr : node->inputs.front().node.get();
  }
  return table_.none();
}

void HealthStep::after_forward(const Tensor& loss, double grad_scale) {
  grad_scale_ = grad_scale;
  visit_tape({loss}, [this](const Tape& tape) {
    for (const std::shared_ptr<Node>& node : tape.nodes()) {
      const size_t layer = maker_of_queries(*node);
      const std::string& name = table_.layers()[layer].name;
      std::ranges::move(heads_of(node, name.substr(0, name.rfind('.'))), std::back_inserter(heads_[layer]));
    }
  });
  if (dynamics_) {
    dynamics_->after_forward(loss, log_);
  }
}

void HealthStep::after_backward() {
  if (dynamics_) {
    dynamics_->after_backward(grad_scale_);
    sample_.dynamics = dynamics_->take();
  }
}

void HealthStep::after_update() {
  for (auto& [layer, heads] : heads_) {
    std::ranges::move(heads, std::back_inserter(sample_.attention));
  }
  done_(std::move(sample_));
}

}  // namespace norma::lab
