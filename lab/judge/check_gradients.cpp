#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/gradcheck.h"
#include "core/op_profile.h"
#include "core/random.h"
#include "core/tape.h"
#include "lab/bench/norm_sweep.h"
#include "lab/judge/subject.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizers.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"
#include "train/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace norma::lab {

namespace {

constexpr DType kDouble = DType::float64;

Tensor gradcheck_input(const Subject& subject, MemoryFormat format) {
  Tensor x = copy_of(random_input({2, subject.channels, 3, 4}), format, kDouble);
  x.set_requires_grad();
  return x;
}

/// The layer as a function with the same result each time: its running statistics are set back before each call.
class LayerFunction {
 public:
  explicit LayerFunction(nn::Module& layer) : layer_(&layer) {
    for (const auto& [name, buffer] : layer.named_buffers()) {
      kept_.emplace_back(buffer, copy_of(buffer));
    }
  }

  Tensors operator()(const Tensors& inputs) const {
    for (const auto& [buffer, at_first] : kept_) {
      copy_into(at_first, buffer);
    }
    return {(*layer_)(inputs[0])};
  }

 private:
  nn::Module* layer_;
  std::vector<std::pair<Tensor, Tensor>> kept_;
};

double sum_of_products(const Tensor& a, const Tensor& b) {
  const std::vector<double> of_a = a.to_vector<double>();
  const std::vector<double> of_b = b.to_vector<double>();
  return std::inner_product(of_a.begin(), of_a.end(), of_b.begin(), 0.0);
}

/// The element of x at this row-major index, as a tensor.
Tensor element_of(const Tensor& x, int64_t index) {
  int64_t offset = x.offset();
  for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
    offset += index % x.size(axis) * x.stride(axis);
    index /= x.size(axis);
  }
  return alias(x, {}, {}, offset);
}

/// Far above what float64 rounds, and below what another eps does to numbers whose deviation is 0.001.
constexpr double kMost = 1e-6;

/// A layer in float64 whose parameters are as they begin: a norm without a weight is like one whose weight is 1.
std::shared_ptr<nn::Module> begin(const Subject& subject, const Tensor& x) {
  std::shared_ptr<nn::Module> layer = subject.make_new(x);
  layer->to(DType::float64);
  return layer;
}

/// A parameter of both norms.
struct Shared {
  std::string name;
  Tensor ours;
  Tensor theirs;
  bool is_offset;  ///< one of the two is 1 less
};

bool all_are(const Tensor& x, double number) {
  return std::ranges::all_of(x.to_vector<double>(), [number](double value) { return value == number; });
}

/// The parameters that both have by name and size, with the same random numbers around 1 in both. One that begins at 0
/// where the other begins at 1 stands for 1 + itself, and gets 1 less.
std::vector<Shared> shared_parameters(const nn::Module& ours, const nn::Module& theirs) {
  const NoGradGuard guard;
  Generator random(7);
  std::vector<Shared> result;
  for (const auto& [name, parameter] : ours.named_parameters()) {
    for (const auto& [other_name, other] : theirs.named_parameters()) {
      if (name == other_name && parameter.numel() == other.numel()) {
        const bool is_ours = all_are(parameter, 0) && all_are(other, 1);
        const bool is_theirs = all_are(parameter, 1) && all_are(other, 0);
        uniform_(parameter, 0.5, 1.5, random);
        copy_into(view(parameter, other.sizes()), other);
        if (is_ours || is_theirs) {
          Tensor offset = is_ours ? parameter : other;
          add_(offset, -1.0);
        }
        result.push_back({name, parameter, other, is_ours || is_theirs});
      }
    }
  }
  return result;
}

/// "; only one of the two has weight, bias; the two have gain of sizes [4] and [1]", or "".
std::string others(const nn::Module& ours, const nn::Module& theirs) {
  std::string alone;
  std::string unlike;
  const auto look_for = [&](const nn::NamedTensors& these, const nn::NamedTensors& those, bool compares) {
    for (const auto& [name, parameter] : these) {
      const auto other = std::ranges::find(those, name, [](const auto& entry) { return entry.first; });
      if (other == those.end()) {
        alone += (alone.empty() ? "; only one of the two has " : ", ") + name;
      } else if (compares && other->second.numel() != parameter.numel()) {
        unlike += fmt::format("{}{} of sizes {} and {}", unlike.empty() ? "; the two have " : ", ", name,
                              to_string(parameter.sizes()), to_string(other->second.sizes()));
      }
    }
  };
  look_for(ours.named_parameters(), theirs.named_parameters(), /* compares= */ true);
  look_for(theirs.named_parameters(), ours.named_parameters(), /* compares= */ false);
  return alone + unlike;
}

/// How far things of two norms are apart, as shares of the largest number of the second.
class Distances {
 public:
  void add(const std::string& what, const Tensor& ours, const Tensor& theirs) {
    const double distance = largest_difference(ours, theirs) / std::max(1e-6, largest(theirs));
    largest_ = std::max(largest_, distance);
    if (!(distance <= kMost)) {
      far_ += fmt::format("{}{} {:.0e}", far_.empty() ? "" : ", ", what, distance);
    }
  }
  [[nodiscard]] double largest_distance() const { return largest_; }
  [[nodiscard]] const std::string& far() const { return far_; }  ///< "output 1e-01", or ""

 private:
  double largest_ = 0;
  std::string far_;
};

/// The copies in a profile that move at least `bytes`, by pass.
std::map<OpPass, int> copies_in(const OpProfile& profile, double bytes) {
  std::map<OpPass, int> copies;
  for (const OpRecord& record : profile.records()) {
    if (record.work.op == "copy" && record.work.bytes >= bytes) {
      ++copies[record.pass];
    }
  }
  return copies;
}

/// Two steps of a network at 32x32 in channels_last.
void train_two_steps(nn::Module& model, const std::string& name) {
  nn::Sgd optimizer(nn::parameter_groups(model, /* weight_decay= */ 0), {.lr = 1e-3});
  const Tensor images = random_input({4, 3, 32, 32}, MemoryFormat::channels_last);
  const Tensor labels = arange(4);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(images), labels);
    const double value = loss.item<float>();
    check(std::isfinite(value), name, "expected a finite loss, got {} in step {}", value, step);
    loss.backward();
    optimizer.step();
  }
}

}  // namespace

Finding check_gradients(const Subject& subject) {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = gradcheck_input(subject, format);
    const auto layer = subject.make(x, kDouble);
    const GradcheckResult result = gradcheck(LayerFunction(*layer), {x});
    check(result.passed, to_string(format), "{}", result.message);
  }
  return {};
}

Finding check_parameter_gradients(const Subject& subject) {
  const Tensor x = gradcheck_input(subject, MemoryFormat::contiguous);
  const auto layer = subject.make(x, kDouble);
  const nn::NamedTensors parameters = layer->named_parameters();
  if (parameters.empty()) {
    return {CheckOutcome::noted, "there are none"};
  }
  Generator random(17);
  const LayerFunction f(*layer);
  const Tensor y = f({x})[0];
  const Tensor dy = randn(y.sizes(), {.dtype = kDouble}, random);
  backward(y, dy);
  // d(sum of dy · y) / dp = (value at p + step - value at p - step) / (2 · step)
  constexpr double kStep = 1e-6;
  const NoGradGuard guard;
  for (const auto& [name, parameter] : parameters) {
    check(parameter.grad().defined(), name, "expected a gradient, got none");
    const std::vector<double> values = parameter.to_vector<double>();
    const std::vector<double> gradient = parameter.grad().to_vector<double>();
    int64_t wrong = 0;
    double most = 0;
    std::string worst;
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      const Tensor element = element_of(parameter, i);
      const auto value_at = [&](double number) {
        copy_into(scalar(number, kDouble), element);
        return sum_of_products(f({x})[0], dy);
      };
      const double difference = (value_at(values[at] + kStep) - value_at(values[at] - kStep)) / (2 * kStep);
      copy_into(scalar(values[at], kDouble), element);
      const double error = std::abs(gradient[at] - difference);
      if (!(error <= 1e-5 + 1e-4 * std::abs(difference))) {
        ++wrong;
        if (worst.empty() || error > most || (std::isnan(error) && !std::isnan(most))) {
          most = error;
          worst = fmt::format("element {}: expected gradient {:.6g} (central difference), got {:.6g}", i, difference,
                              gradient[at]);
        }
      }
    }
    check(wrong == 0, name, "{} of {} elements are wrong; the furthest, {}", wrong, parameter.numel(), worst);
  }
  return {};
}

Finding check_second_derivatives(const Subject& subject) {
  const Tensor x = gradcheck_input(subject, MemoryFormat::contiguous);
  const auto layer = subject.make(x, kDouble);
  const GradcheckResult result = gradgradcheck(LayerFunction(*layer), {x});
  check(result.passed, "x", "{}", result.message);
  return {};
}

Finding check_likeness(const Subject& subject, const Subject& other) {
  double largest_distance = 0;
  std::string alone;
  for (const double deviation : {1.0, 1e-3}) {  // a small one shows what eps is and where it stands
    Tensor x = copy_of(random_input({3, subject.channels, 5, 4}, MemoryFormat::contiguous, /* mean= */ 2),
                       MemoryFormat::preserve, DType::float64);
    x = (x * deviation).detach();
    const auto ours = begin(subject, x);
    const auto theirs = begin(other, x);
    const std::vector<Shared> shared = shared_parameters(*ours, *theirs);
    const Results yours = apply_norm(*ours, x);
    const Results expected = apply_norm(*theirs, x);
    Distances distances;
    distances.add("output", yours.y, expected.y);
    distances.add("gradient of x", yours.dx, expected.dx);
    for (const Shared& one : shared) {
      const std::string what = "gradient of " + one.name;
      check(one.ours.grad().defined() == one.theirs.grad().defined(), what, "expected {}, got {}",
            one.theirs.grad().defined() ? "a gradient" : "none", one.ours.grad().defined() ? "one" : "none");
      if (one.ours.grad().defined()) {
        distances.add(what, one.ours.grad(), one.theirs.grad());
      }
    }
    ours->eval();
    theirs->eval();
    const NoGradGuard guard;
    distances.add("output in evaluation", (*ours)(x), (*theirs)(x));
    if (!distances.far().empty()) {
      return {CheckOutcome::failed,
              fmt::format("numbers with mean {:g} and deviation {:g}: {} away, as a share of the largest number; "
                          "expected at most {:.0e}",
                          2 * deviation, deviation, distances.far(), kMost)};
    }
    largest_distance = std::max(largest_distance, distances.largest_distance());
    alone = others(*ours, *theirs);
    for (const Shared& one : shared) {
      alone += one.is_offset ? "; " + one.name + " begins at 0 in one and at 1 in the other: taken for 1 + it" : "";
    }
  }
  return {CheckOutcome::passed, fmt::format("output and gradients within {:.0e}{}", largest_distance, alone)};
}

Finding check_copies(const Subject& subject) {
  std::string found;
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    Tensor x = random_input({4, subject.channels, 6, 5}, format);
    const auto layer = subject.make(x);
    const Tensor dy = random_input(x.sizes(), format);
    x.set_requires_grad();
    const OpProfile profile;
    Tensors inputs = layer->parameters();
    inputs.push_back(x);
    const Tensor y = (*layer)(x);
    grad({y}, inputs, {dy});  // backward() would copy a dy that comes as it is
    // A copy reads and writes. Copies of parts of x, or of one number per channel, do not count.
    for (const auto& [pass, count] : copies_in(profile, 1.5 * bytes_of(x))) {
      found += fmt::format("{}{}: {} {} of the whole input in the {} pass", found.empty() ? "" : "; ",
                           to_string(format), count, count == 1 ? "copy" : "copies", to_string(pass));
    }
  }
  return {found.empty() ? CheckOutcome::passed : CheckOutcome::failed, found};
}

Finding check_networks(const Subject& subject) {
  std::string refused;
  for (const auto& [name, patch_size] : {std::pair("resnet18", 0), {"convnext_atto", 4}, {"vit_tiny", 8}}) {
    train::Recipe recipe;
    recipe.model = name;
    recipe.norm = nn::to_string(subject.choice);
    recipe.small_stem = patch_size == 0;
    if (patch_size > 0) {
      recipe.patch_size = patch_size;
    }
    std::shared_ptr<nn::Module> model;
    try {
      model = train::make_model(recipe, /* num_classes= */ 10);
    } catch (const Error& error) {  // its groups do not divide all channels
      refused += fmt::format("{}{} cannot have it ({})", refused.empty() ? "" : "; ", recipe.model, error.what());
      continue;
    }
    train_two_steps(*model, recipe.model);
  }
  if (!refused.empty()) {
    return {CheckOutcome::noted, refused};
  }
  return {CheckOutcome::passed, "two steps of resnet18, convnext_atto and vit_tiny"};
}

Finding check_speed(const Subject& subject) {
  bench::SweepOptions options;
  options.norms = {nn::to_string(subject.choice)};
  options.dtypes = {"float32"};
  options.shapes = {"images"};
  options.batch_sizes = {16};
  options.channels = {64};
  options.image_sizes = {56};
  std::string text;
  for (const bench::SweepRow& row : bench::run_sweep(options).rows) {
    text += fmt::format("{}{} {} {:.0f} % ({:.0f} to {:.0f})", text.empty() ? "" : ", ", to_string(row.format),
                        row.backward ? "backward" : "forward", 100 * row.share(), 100 * row.share_low,
                        100 * row.share_high);
  }
  return {CheckOutcome::noted, text + " of a copy's rate (16, 64, 56, 56); in brackets half of all rounds"};
}

}  // namespace norma::lab
