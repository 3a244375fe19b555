#include "base/error.h"
#include "base/lists.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "data/safetensors.h"
#include "lab/judge/norms.h"
#include "lab/judge/subject.h"
#include "nn/norm/factory.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::lab {

namespace {

constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.to_vector<double>() == b.to_vector<double>();
}

/// Throws Error unless y, or dx, has the sizes, dtype and device of x, and is finite.
void check_like(std::string_view what, const Tensor& x, const Tensor& y) {
  check(y.defined(), what, "expected a tensor, got none");
  check(y.sizes() == x.sizes(), what, "expected sizes {}, got {}", to_string(x.sizes()), to_string(y.sizes()));
  check(y.dtype() == x.dtype(), what, "expected dtype {}, got {}", to_string(x.dtype()), to_string(y.dtype()));
  check(y.device() == x.device(), what, "expected device {}, got {}", to_string(x.device()), to_string(y.device()));
  for (const double value : y.to_vector<double>()) {
    check(std::isfinite(value), what, "expected finite numbers, got {} for input {}",
          std::isnan(value) ? "nan" : "infinity",  // without the sign of NaN, which depends on the processor
          to_string(x.sizes()));
  }
}

/// The mean of |a - b| over that of |b|: at a norm's kink, single gradients may come from the other side.
double mean_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> of_a = a.to_vector<double>();
  const std::vector<double> of_b = b.to_vector<double>();
  double difference = 0;
  double size = 1e-30;
  for (size_t i = 0; i < of_b.size(); ++i) {
    difference += std::abs(of_a[i] - of_b[i]);
    size += std::abs(of_b[i]);
  }
  return difference / size;
}

/// The elements of x, in every second place of a larger tensor.
Tensor with_gaps(const Tensor& x) {
  Sizes sizes = x.sizes();
  sizes.push_back(2);
  const Tensor wide = zeros(sizes);
  Strides strides = wide.strides();
  strides.erase(strides.size() - 1);
  const Tensor view = alias(wide, x.sizes(), strides, 0);
  copy_into(x, view);
  return view;
}

/// Compares results in a dtype with those in float64.
void check_dtype(const Subject& subject, const Sizes& sizes, DType dtype, DType parameters) {
  const Tensor x = copy_of(random_input(sizes), MemoryFormat::preserve, dtype);
  const Results exact = apply_norm(subject, copy_of(x, MemoryFormat::preserve, DType::float64), DType::float64);
  const Results results = apply_norm(subject, x, parameters);
  const std::string what = fmt::format("{}, input {}", to_string(dtype), to_string(sizes));
  const double of_y = largest_difference(results.y, exact.y) / std::max(1.0, largest(exact.y));
  const double most = 8 * judge::step_of(dtype);
  check(of_y <= most, what, "expected an output within {:.1e} of float64's, got {:.1e} (parameters {})", most, of_y,
        to_string(parameters));
  const double of_dx = mean_difference(results.dx, exact.dx);
  check(of_dx <= 2 * most, what,
        "expected a gradient of x within {:.1e} of float64's in the mean, got {:.1e} (parameters {})", 2 * most, of_dx,
        to_string(parameters));
}

/// Whether the layer has audit's parameters: one that somebody registered under a known name may have others.
bool has_parameters(const Subject& subject, const judge::Inputs& inputs) {
  const nn::NamedTensors own = nn::make_norm(subject.choice, inputs.x.size(1))->named_parameters();
  return own.size() == inputs.parameters.size() && std::ranges::all_of(inputs.parameters, [&](const auto& wanted) {
           return std::ranges::any_of(own, [&](const auto& one) {
             return one.first == wanted.first && one.second.sizes() == wanted.second.sizes();
           });
         });
}

/// The errors of a norm that audit has, on audit's inputs.
std::vector<HardInput> on_hard_inputs(const Subject& subject) {
  std::vector<HardInput> found;
  const std::optional<judge::Norm> norm = judge::find_norm(nn::to_string(subject.choice));
  for (const judge::Case& one : norm ? judge::all_cases() : std::vector<judge::Case>()) {
    if (why_not_taken(one, *norm).empty() && why_not_held(one, DType::float32).empty()) {
      const judge::Inputs inputs = make_inputs(one, *norm, DType::float32, /* quick= */ true);
      if (!has_parameters(subject, inputs)) {
        return {};
      }
      const judge::Results results = apply(*norm, inputs, Statistics::stable, judge::Layout::contiguous);
      found.push_back({one.name, worst_in_steps(judge::Truth(*norm, inputs).accuracy(results), DType::float32)});
    }
  }
  return found;
}

/// "; audit's inputs: output within 4.3 steps of float32 (offset_1e2), dx within 2.6e+04 (offset_1e6)", or "".
std::string worst_of(const std::vector<HardInput>& inputs) {
  std::string text;
  for (const char* result : {"output", "dx"}) {
    const auto worst = std::ranges::max_element(inputs, {}, [&](const HardInput& one) { return one.steps.at(result); });
    if (worst != inputs.end()) {
      text += fmt::format("{} {} within {:.2g}{} ({})", text.empty() ? "; audit's inputs:" : ",", result,
                          worst->steps.at(result), text.empty() ? " steps of float32" : "", worst->name);
    }
  }
  return text;
}

/// The buffer of this name with a number for each channel; undefined if there is none.
Tensor buffer_of(const nn::Module& layer, const std::string& wanted, int64_t channels) {
  const Tensor buffer = data::tensor_named(layer.named_buffers(), wanted);
  return buffer.defined() && buffer.sizes() == Sizes{channels} ? buffer : Tensor();
}

/// Throws Error unless a buffer has moved from `old` to old + share · (batch - old).
void check_moved(const std::string& name, const std::vector<double>& old, const std::vector<double>& now,
                 const std::vector<double>& batch, double share) {
  for (size_t c = 0; c < old.size(); ++c) {
    const double expected = old[c] + share * (batch[c] - old[c]);
    check(std::abs(now[c] - expected) <= 1e-4 * (std::abs(expected) + std::abs(batch[c]) + 1), name,
          "channel {}: expected {:.4g} = {:.4g} + {:.3g} · ({:.4g} of the batch - {:.4g}), got {:.4g}", c, expected,
          old[c], share, batch[c], old[c], now[c]);
  }
}

/// "running_ms: evaluation comes within 2 % of training", or "" where training moves no buffer. Throws Error where
/// evaluation gives something else than training and comes no nearer, however often the norm sees one batch.
std::string check_that_evaluation_follows(const Subject& subject, const Tensor& x) {
  const auto layer = subject.make(x);
  const nn::NamedTensors buffers = layer->named_buffers();
  const auto at_first = mapped(buffers, [](const auto& buffer) { return copy_of(buffer.second); });
  const auto distance_after = [&](int passes) {
    Tensor in_training;
    layer->train();
    for (; passes > 0; --passes) {
      in_training = (*layer)(x);
    }
    layer->eval();
    return largest_difference((*layer)(x), in_training) / std::max(1e-30, largest(in_training));
  };
  constexpr int kPasses = 300;
  const double first = distance_after(1);
  const double last = distance_after(kPasses);
  std::string moved;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& [name, buffer] = buffers[i];
    if (is_floating(buffer.dtype()) && largest_difference(buffer, at_first[i]) > 0) {
      moved += (moved.empty() ? "" : ", ") + name;
    }
  }
  check(!moved.empty() || first <= 1e-3, "evaluation",
        "expected the output of training, or buffers that training moves; got an output that is {:.0f} % of the "
        "largest number away, and no buffer moves",
        100 * first);
  check(last <= 0.1 || last < first, "evaluation",
        "expected to come nearer to training's output while the norm sees one batch, got {:.0f} % of the largest "
        "number away after one pass and {:.0f} % after {} (training moves {})",
        100 * first, 100 * last, kPasses + 1, moved);
  return moved.empty() ? "" : fmt::format("{}: evaluation comes within {:.0f} % of training", moved, 100 * last);
}

}  // namespace

std::shared_ptr<nn::Module> Subject::make_new(const Tensor& x) const {
  std::shared_ptr<nn::Module> layer = nn::make_norm(choice, channels);
  if (nn::norm_definition(choice.name).lazy) {
    const NoGradGuard guard;
    nn::make_lazy_parameters(*layer, x.sizes());
  }
  return layer;
}

std::shared_ptr<nn::Module> Subject::make(const Tensor& x, DType dtype, uint64_t seed) const {
  std::shared_ptr<nn::Module> layer = make_new(x);
  const NoGradGuard guard;
  Generator random(seed);
  for (const auto& [name, parameter] : layer->named_parameters()) {
    uniform_(parameter, 0.5, 1.5, random);
  }
  if (dtype == DType::float64) {
    layer->to(dtype);
  } else {
    layer->parameters_to(dtype);  // statistics stay in float32
  }
  return layer;
}

Tensor random_input(const Sizes& sizes, MemoryFormat format, double mean) {
  Generator random(11);
  const Tensor x = randn(sizes, {}, random);
  const NoGradGuard guard;
  return copy_of(mean == 0 ? x : x + mean, format);
}

double largest(const Tensor& x) {
  double largest = 0;
  for (const double value : x.to_vector<double>()) {
    largest = std::isnan(value) ? std::numeric_limits<double>::infinity() : std::max(largest, std::abs(value));
  }
  return largest;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> of_a = a.to_vector<double>();
  const std::vector<double> of_b = b.to_vector<double>();
  double largest = of_a.size() == of_b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i) {
    const double difference = std::abs(of_a[i] - of_b[i]);
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
  }
  return largest;
}

Results apply_norm(nn::Module& layer, const Tensor& x) {
  Tensor input = x.detach();
  input.set_requires_grad();
  const Tensor y = layer(input);
  check_like("output", x, y);
  Generator random(13);
  const Tensor dy = empty_like(y);
  copy_into(randn(y.sizes(), {}, random), dy);
  check(y.requires_grad(), "output", "expected one that a gradient goes back from, got one off the tape");
  layer.zero_grad();
  backward(y, dy);
  check_like("gradient of x", x, input.grad());
  return {y.detach(), input.grad()};
}

Results apply_norm(const Subject& subject, const Tensor& x, DType parameters) {
  return apply_norm(*subject.make(x, parameters), x);
}

int64_t set_size(const Subject& subject) {
  Tensor x = random_input({2, subject.channels, 5, 4});
  x.set_requires_grad();
  const Tensor y = (*subject.make(x))(x);
  std::vector<float> of_one(static_cast<size_t>(y.numel()));
  of_one.front() = 1;
  const std::vector<double> dx = grad({y}, {x}, {from_vector(of_one, y.sizes())})[0].to_vector<double>();
  return std::min<int64_t>(kSetSize, std::ranges::count_if(dx, [](double slope) { return slope != 0; }));
}

Finding check_sizes(const Subject& subject) {
  std::string refused;
  for (const Sizes& sizes : {Sizes{2, subject.channels, 5, 3}, Sizes{4, subject.channels, 7, 7},
                             Sizes{2, subject.channels, 8, 16}, Sizes{3, subject.channels, 1, 6}}) {
    apply_norm(subject, random_input(sizes));
  }
  // A norm may want more than one value for each channel, or more than one pixel.
  for (const Sizes& sizes : {Sizes{1, subject.channels, 6, 6}, Sizes{2, subject.channels, 1, 1}}) {
    try {
      apply_norm(subject, random_input(sizes));
    } catch (const Error& error) {
      refused += fmt::format("; refuses {} ({})", to_string(sizes), error.what());
    }
  }
  const int64_t set = set_size(subject);
  return {
      refused.empty() ? CheckOutcome::passed : CheckOutcome::noted,
      fmt::format("{} channels: sets of {}{}{}", subject.channels, set == kSetSize ? "at least " : "", set, refused)};
}

Finding check_formats(const Subject& subject) {
  const Sizes sizes{3, subject.channels, 5, 4};
  const Results expected = apply_norm(subject, random_input(sizes));
  const double tolerance = 1e-5 * std::max(1.0, largest(expected.dx));
  const auto compare = [&](const std::string& what, const Results& results) {
    check(largest_difference(results.y, expected.y) <= tolerance, what, "expected the output of contiguous input");
    check(largest_difference(results.dx, expected.dx) <= tolerance, what, "expected the gradient of contiguous input");
  };
  for (const MemoryFormat format : kFormats) {
    const std::string name(to_string(format));
    const Results results = apply_norm(subject, random_input(sizes, format));
    check(results.y.is_contiguous(format), name, "expected output of this memory format, got strides {}",
          to_string(results.y.strides()));
    check(results.dx.is_contiguous(format), name, "expected a gradient of this memory format, got strides {}",
          to_string(results.dx.strides()));
    compare(name, results);
  }
  compare("input with gaps", apply_norm(subject, with_gaps(random_input(sizes))));
  // Half of the channels of one image: dense, with the stride of a larger one along the axis of images.
  const Sizes one{1, subject.channels, 5, 4};
  const Tensor wide = random_input({1, 2 * subject.channels, 5, 4});
  const Tensor half = alias(wide, one, wide.strides(), 0);
  const Results dense = apply_norm(subject, copy_of(half, MemoryFormat::contiguous));
  const Results view = apply_norm(subject, half);
  check(largest_difference(view.y, dense.y) <= tolerance && largest_difference(view.dx, dense.dx) <= tolerance,
        "half of the channels of one image", "expected the results of a copy of them");
  return {};
}

Finding check_dtypes(const Subject& subject) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const DType parameters : {DType::float32, dtype}) {
      check_dtype(subject, {3, subject.channels, 5, 4}, dtype, parameters);
    }
  }
  // So many elements of each channel, pixel and image that a sum of squares in 16 bits stands still.
  Subject wide = subject;
  wide.channels = std::max<int64_t>(512, subject.channels);
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    check_dtype(wide, {2, wide.channels, 16, 16}, dtype, DType::float32);
  }
  return {};
}

Finding check_exactness(const Subject& subject) {
  const Sizes sizes{4, subject.channels, 9, 7};
  const Tensor x = random_input(sizes, MemoryFormat::contiguous, /* mean= */ 1e4);
  const Results exact = apply_norm(subject, copy_of(x, MemoryFormat::preserve, DType::float64), DType::float64);
  const Results results = apply_norm(subject, x);
  // E[x²] - E[x]² in float32 has no digit left here.
  constexpr double kMost = 1e-3;
  constexpr double kMostOfGradient = 1e-2;
  const double far = largest_difference(results.y, exact.y) / std::max(1e-30, largest(exact.y));
  check(far <= kMost, "mean 1e4, deviation 1", "expected an output within {:.0e} of float64's, got {:.1e}", kMost, far);
  const double of_dx = mean_difference(results.dx, exact.dx);
  check(of_dx <= kMostOfGradient, "mean 1e4, deviation 1",
        "expected a gradient of x within {:.0e} of float64's in the mean, got {:.1e}", kMostOfGradient, of_dx);
  apply_norm(subject, full(sizes, 3));  // throws unless it is finite
  const std::vector<HardInput> inputs = on_hard_inputs(subject);
  return {CheckOutcome::passed, fmt::format("mean 1e4, deviation 1: {:.0e} from float64{}", far, worst_of(inputs)),
          inputs};
}

Finding check_repeatability(const Subject& subject) {
  const Tensor x = random_input({4, subject.channels, 33, 31}, MemoryFormat::channels_last);
  const Results expected = apply_norm(subject, x);
  const int threads = num_threads();
  std::string wrong;
  for (const int count : {threads, 1, 2, 3}) {
    set_num_threads(count);
    try {
      const Results results = apply_norm(subject, x);
      if (wrong.empty() && (!same_bits(results.y, expected.y) || !same_bits(results.dx, expected.dx))) {
        wrong = fmt::format("other bits with {} threads than with {}", count, threads);
      }
    } catch (...) {
      set_num_threads(threads);
      throw;
    }
  }
  set_num_threads(threads);
  return {wrong.empty() ? CheckOutcome::passed : CheckOutcome::failed, wrong};
}

Finding check_evaluation(const Subject& subject) {
  const Tensor x = random_input({3, subject.channels, 5, 4});
  const auto layer = subject.make(x);
  apply_norm(*layer, x);  // running statistics move
  layer->eval();
  const NoGradGuard guard;
  const auto image_of = [](const Tensor& batch, int64_t image) {
    Sizes one = batch.sizes();
    one[0] = 1;
    return alias(batch, one, batch.strides(), batch.offset() + image * batch.stride(0));
  };
  const Tensor all = (*layer)(x);
  for (int64_t image = 0; image < x.size(0); ++image) {
    // A batch of the same size, in which sums have the same order, with other images in the other places.
    const Tensor others = random_input(x.sizes(), MemoryFormat::contiguous, /* mean= */ 1);
    copy_into(image_of(x, image), image_of(others, image));
    if (!same_bits(image_of((*layer)(others), image), image_of(all, image))) {
      // By PyTorch's option a norm says that it wants the statistics of the batch in evaluation, too.
      const auto tracked = subject.choice.options.find("track_running_stats");
      const bool wanted = tracked != subject.choice.options.end() && tracked->second == "false";
      return {wanted ? CheckOutcome::noted : CheckOutcome::failed,
              "an image's output depends on the others of its batch, in evaluation too"};
    }
  }
  return {};
}

Finding check_saving(const Subject& subject) {
  const Tensor x = random_input({3, subject.channels, 5, 4});
  const auto layer = subject.make(x);
  apply_norm(*layer, x);
  const auto loaded = subject.make(x, DType::float32, /* seed= */ 8);
  loaded->load_state_dict(layer->state_dict());
  layer->eval();
  loaded->eval();
  const NoGradGuard guard;
  check(same_bits((*layer)(x), (*loaded)(x)), "state dict",
        "expected the same output from a layer that loads it: what the norm keeps is no parameter and no buffer of it");
  return {};
}

Finding check_running_statistics(const Subject& subject) {
  // A few images with other statistics in each channel: biased and unbiased variance differ by 1/23.
  const Sizes sizes{2, subject.channels, 4, 3};
  const NoGradGuard guard;
  const Tensor spread = view(to(arange(subject.channels), DType::float32), {subject.channels, 1, 1});
  const Tensor x = random_input(sizes) * (spread * 0.1 + 1) + (spread + 2);
  const std::string moved = check_that_evaluation_follows(subject, x);
  if (!buffer_of(*subject.make(x), "running_mean", subject.channels).defined()) {
    return moved.empty() ? Finding{CheckOutcome::noted, "there are none"} : Finding{CheckOutcome::passed, moved};
  }
  const std::vector<std::string>& options = nn::norm_definition(subject.choice.name).options;
  const bool takes_momentum = is_in(options, "momentum");
  constexpr double kMomentum = 0.2;
  Subject tried = subject;
  if (takes_momentum) {
    tried.choice.options["momentum"] = fmt::format("{}", kMomentum);
  }
  const auto layer = tried.make(x);
  const Tensor mean = buffer_of(*layer, "running_mean", subject.channels);
  const Tensor var = buffer_of(*layer, "running_var", subject.channels);
  check(mean.defined() && var.defined(), "running_var", "expected one beside running_mean, got none");
  (*layer)(random_input(sizes));  // the first batch may count more than others
  const std::vector<double> old_mean = mean.to_vector<double>();
  const std::vector<double> old_var = var.to_vector<double>();
  (*layer)(x);
  const std::vector<double> now_mean = mean.to_vector<double>();
  const std::vector<double> now_var = var.to_vector<double>();
  if (now_mean == old_mean && now_var == old_var) {
    return {CheckOutcome::noted, "training does not change them"};
  }

  const std::vector<double> of_batch = norma::mean(x, {0, 2, 3}).to_vector<double>();
  const double share = (now_mean[0] - old_mean[0]) / (of_batch[0] - old_mean[0]);
  check(!takes_momentum || std::abs(share - kMomentum) < 1e-3, "running_mean",
        "with momentum {}, expected a new batch to have this share, got {:.3g}", kMomentum, share);
  check_moved("running_mean", old_mean, now_mean, of_batch, share);
  const std::vector<double> biased = norma::var(x, {0, 2, 3}, {.correction = 0}).to_vector<double>();
  try {
    check_moved("running_var", old_var, now_var, biased, share);
    return {CheckOutcome::noted,
            "running_var has the biased variance, as in Keras and Flax; PyTorch and Norma keep the unbiased one"};
  } catch (const Error&) {
    check_moved("running_var", old_var, now_var, norma::var(x, {0, 2, 3}).to_vector<double>(), share);
  }
  if (share > 0.5) {
    return {CheckOutcome::noted,
            fmt::format("a new batch has share {:.3g}: evaluation goes by the last batches", share)};
  }
  return {};
}

}  // namespace norma::lab
