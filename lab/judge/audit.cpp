#include "lab/judge/audit.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "models/registry.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "session/interrupt.h"
#include "session/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <span>

namespace norma::lab::judge {

namespace {

struct WalkInput {
  const char* walk;
  Sizes sizes;
  Sizes quick_sizes;
  NormSpec spec;
};

// Each input has about a million elements, more than the inner caches hold.
const std::array kWalkInputs = {
    WalkInput{"rows", {1024, 1024}, {128, 1024}, {.reduce = {1}, .affine = {1}}},
    WalkInput{"columns", {4096, 256}, {512, 256}, {.reduce = {0}, .affine = {1}}},
    WalkInput{"runs", {16, 64, 32, 32}, {2, 64, 32, 32}, {.reduce = {0, 2, 3}, .affine = {1}}},
};
constexpr int kRounds = 11;
constexpr int kQuickRounds = 5;

double seconds_of(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias) {
  synchronize(x.device());
  const auto start = std::chrono::steady_clock::now();
  const Tensor y = normalize(x, spec, weight, bias);
  synchronize(x.device());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Layer {
  int64_t n, channels, size;
};

/// They are the 3x3 layers of ResNet-50 at batch 8.
constexpr Layer kLayers[] = {{8, 64, 56}, {8, 128, 28}, {8, 256, 14}, {8, 512, 7}};

struct Step {
  const char* model;
  const char* norm;
};

constexpr Step kSteps[] = {{"resnet18", "batch"}, {"resnet18", "group:32"}};
constexpr int64_t kImages = 8;
constexpr int64_t kPixels = 64;
constexpr int64_t kClasses = 10;

Tensor in(const Tensor& x, MemoryFormat format, DType dtype) {
  return copy_of(x, format, dtype).set_requires_grad();
}

/// Sums of squares of the differences and of `expected`, tensor by tensor.
std::vector<std::array<double, 2>> squares_of(const Tensors& actual, const Tensors& expected) {
  std::vector<std::array<double, 2>> squares;
  for (size_t i = 0; i < actual.size(); ++i) {
    const Tensor error = sub(copy_of(actual[i], MemoryFormat::preserve, DType::float64), expected[i]);
    const std::vector<double> sums = sums_of_squares({error, expected[i]}, kCpu).to_vector<double>();
    squares.push_back({sums[0], sums[1]});
  }
  return squares;
}

double ratio(const std::array<double, 2>& squares) {
  return std::sqrt(squares[0] / squares[1]);
}

/// y, dx and dweight.
Tensors run_layer(const Tensor& x, const Tensor& weight, const Tensor& dy, MemoryFormat format, DType dtype) {
  const Tensor x_in = in(x, format, dtype);
  const Tensor weight_in = in(weight, format, dtype);
  const Tensor y = conv2d(x_in, weight_in, {}, {.padding = 1});
  y.backward(copy_of(dy, format, dtype));
  return {y.detach(), x_in.grad(), weight_in.grad()};
}

/// The logits, and the gradient of each parameter.
Tensors run_step(const Step& step, uint64_t seed, DType dtype) {
  const auto model = models::create_model(step.model, {.num_classes = kClasses, .norm = step.norm, .seed = seed});
  model->to(dtype);
  model->to(MemoryFormat::channels_last);
  manual_seed(seed);
  const Tensor images =
      copy_of(randn({kImages, 3, kPixels, kPixels}, {.dtype = DType::float32}), MemoryFormat::channels_last, dtype);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kImages; ++i) {
    labels.push_back(i % kClasses);
  }
  const Tensor logits = model->forward(images);
  cross_entropy(logits, from_vector(labels, {kImages})).backward();
  Tensors results = {logits.detach()};
  for (const auto& [name, parameter] : model->named_parameters()) {
    results.push_back(parameter.grad());
  }
  return results;
}

std::array<double, 3> step_errors(const Tensors& actual, const Tensors& expected) {
  const std::vector<std::array<double, 2>> squares = squares_of(actual, expected);
  std::array<double, 2> all = {0, 0};
  for (size_t i = 1; i < squares.size(); ++i) {
    all[0] += squares[i][0];
    all[1] += squares[i][1];
  }
  double worst = 0;
  for (size_t i = 1; i < squares.size(); ++i) {
    // Some gradients are 0 but for rounding, such as that of a bias before batch norm: their ratio says nothing.
    if (squares[i][1] > 1e-20 * all[1]) {
      worst = std::max(worst, ratio(squares[i]));
    }
  }
  return {ratio(squares[0]), ratio(all), worst};
}

constexpr std::array kDtypes = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

template <class T>
std::vector<std::string> names_of(const T& values) {
  return mapped(values, [](const auto& value) { return std::string(to_string(value)); });
}

/// The given names, or all.
std::vector<std::string> chosen(std::string_view argument, std::string_view kind, const std::vector<std::string>& given,
                                const std::vector<std::string>& known) {
  check_names("audit", argument, kind, given, known);
  return given.empty() ? known : given;
}

/// The norms, cases and dtypes to measure.
struct Plan {
  std::vector<Norm> norms;
  std::vector<Statistics> statistics;
  std::vector<DType> dtypes;
  std::vector<const Case*> cases;
};

Plan plan_of(const AuditOptions& options) {
  Plan plan;
  if (options.convolutions) {
    check_convolutions();
    if (options.norms.empty()) {
      check(options.statistics.empty() && options.dtypes.empty() && options.cases.empty(), "audit",
            "convolutions: expected norms with the choice of statistics, dtypes or cases, got none");
      return plan;
    }
  }
  plan.norms = mapped(options.norms, norm_called);
  const std::vector<std::string> names = mapped(plan.norms, &Norm::name);
  if (names.empty()) {
    plan.norms = all_norms();
  }
  chosen("norms", "norm", names, names);
  plan.statistics = mapped(chosen("statistics", "statistics", options.statistics, names_of(all_statistics())),
                           statistics_from_string);
  plan.dtypes = mapped(chosen("dtypes", "dtype", options.dtypes, names_of(kDtypes)), dtype_from_string);
  plan.cases = mapped(chosen("cases", "case", options.cases, case_names()),
                      [](const std::string& name) { return &case_called(name); });
  return plan;
}

/// Adds the measurements of one case with every kind of statistics.
void measure_case(const Case& c, const Norm& norm, DType dtype, const std::vector<Statistics>& statistics, bool quick,
                  std::vector<Measurement>& measurements) {
  const Inputs inputs = make_inputs(c, norm, dtype, quick);
  const Truth truth(norm, inputs);
  std::vector<Layout> layouts = layouts_of(inputs.x.rank());
  if (quick || c.is_published()) {
    layouts.resize(1);
  }
  for (const Statistics kind : norm.has_statistics ? statistics : std::vector{Statistics::stable}) {
    for (const Layout layout : layouts) {
      if (train::interrupted()) {
        return;
      }
      measurements.push_back({.norm = norm.name,
                              .statistics = kind,
                              .dtype = dtype,
                              .case_name = c.name,
                              .layout = layout,
                              .sizes = inputs.x.sizes(),
                              .accuracy = truth.accuracy(apply(norm, inputs, kind, layout))});
    }
  }
}

/// Adds `what`, once.
void omit(Audit& audit, const std::string& what, const std::string& reason) {
  if (!is_in(audit.omissions, what, &Omission::what)) {
    audit.omissions.push_back({what, reason});
  }
}

}  // namespace

std::vector<Cost> measure_costs(DType dtype, const std::vector<Statistics>& statistics, bool quick) {
  std::vector<Statistics> kinds = statistics;
  std::erase(kinds, Statistics::stable);
  kinds.insert(kinds.begin(), Statistics::stable);
  std::vector<Cost> costs;
  for (const WalkInput& input : kWalkInputs) {
    const Sizes& sizes = quick ? input.quick_sizes : input.sizes;
    Generator generator(0);
    const Tensor x = copy_of(randn(sizes, {}, generator), MemoryFormat::contiguous, dtype);
    const Sizes affine = {sizes[input.spec.affine[0]]};
    const Tensor weight = ones(affine, {.dtype = dtype});
    const Tensor bias = zeros(affine, {.dtype = dtype});
    // All kinds take turns, so that a slow moment of the machine meets all; the first round only warms up.
    std::vector<std::vector<double>> seconds(kinds.size());
    for (int round = 0; round <= (quick ? kQuickRounds : kRounds); ++round) {
      for (size_t i = 0; i < kinds.size(); ++i) {
        NormSpec spec = input.spec;
        spec.statistics = kinds[i];
        const double one = seconds_of(x, spec, weight, bias);
        if (round > 0) {
          seconds[i].push_back(one);
        }
      }
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      std::vector<double> ratios;
      for (size_t round = 0; round < seconds[i].size(); ++round) {
        ratios.push_back(seconds[i][round] / seconds[0][round]);
      }
      costs.push_back({.dtype = dtype,
                       .walk = input.walk,
                       .sizes = sizes,
                       .statistics = kinds[i],
                       .seconds = train::median(seconds[i]),
                       .relative = train::median(ratios)});
    }
  }
  return costs;
}

const std::vector<std::string>& convolution_implementations() {
  static const std::vector<std::string> names = {"exact", "winograd_2x2", "winograd_4x4", "fast"};
  return names;
}

const std::array<std::string, 3>& layer_quantities() {
  static const std::array<std::string, 3> names = {"output", "dx", "dweight"};
  return names;
}

const std::array<std::string, 3>& step_quantities() {
  static const std::array<std::string, 3> names = {"logits", "dparameters", "dparameter_worst"};
  return names;
}

void check_convolutions() {
  const std::vector<std::string> known = conv2d_implementations();
  check(is_in(known, "winograd_4x4"), "audit", "convolutions: expected a device with Winograd's convolutions, got {}",
        to_string(default_device()));
}

std::vector<ConvolutionErrors> measure_convolutions(bool quick,
                                                    const std::function<void(const std::string&)>& progress) {
  check_convolutions();
  std::vector<MemoryFormat> formats = {MemoryFormat::channels_last, MemoryFormat::contiguous};
  formats.resize(quick ? 1 : 2);
  std::vector<ConvolutionErrors> found;
  for (const Layer& layer : kLayers) {
    if (train::interrupted()) {
      break;
    }
    const Sizes sizes = {layer.n, layer.channels, layer.size, layer.size};
    const std::string what = fmt::format("{}x{}x{}x{}", layer.n, layer.channels, layer.size, layer.size);
    progress(what);
    manual_seed(0);
    const Tensor x = relu(randn(sizes, {.dtype = DType::float32}));
    const Tensor weight = randn({layer.channels, layer.channels, 3, 3}, {.dtype = DType::float32});
    const Tensor dy = randn(sizes, {.dtype = DType::float32});
    const Tensors expected = run_layer(x, weight, dy, MemoryFormat::channels_last, DType::float64);
    for (const MemoryFormat format : formats) {
      for (const std::string& implementation : convolution_implementations()) {
        const Conv2dImplementationGuard guard(implementation, kCpu);
        const auto squares = squares_of(run_layer(x, weight, dy, format, DType::float32), expected);
        found.push_back({what, format, implementation, {ratio(squares[0]), ratio(squares[1]), ratio(squares[2])}});
      }
    }
  }
  return found;
}

std::vector<ConvolutionErrors> measure_steps(bool quick, const std::function<void(const std::string&)>& progress) {
  check_convolutions();
  std::vector<ConvolutionErrors> found;
  for (const Step& step : std::span(kSteps).first(quick ? 1 : std::size(kSteps))) {
    const std::string what = fmt::format("{} {} {}x3x{}x{}", step.model, step.norm, kImages, kPixels, kPixels);
    progress(what);
    const std::vector<std::string>& implementations = convolution_implementations();
    std::vector<std::array<std::vector<double>, 3>> errors(implementations.size());
    for (uint64_t seed = 0; seed < (quick ? 5 : 9); ++seed) {
      if (train::interrupted()) {
        return found;
      }
      const Tensors expected = run_step(step, seed, DType::float64);
      for (size_t i = 0; i < implementations.size(); ++i) {
        const Conv2dImplementationGuard guard(implementations[i], kCpu);
        const std::array<double, 3> of_seed = step_errors(run_step(step, seed, DType::float32), expected);
        for (size_t quantity = 0; quantity < 3; ++quantity) {
          errors[i][quantity].push_back(of_seed[quantity]);
        }
      }
    }
    for (size_t i = 0; i < implementations.size(); ++i) {
      found.push_back({what, MemoryFormat::channels_last, implementations[i], {}});
      for (size_t quantity = 0; quantity < 3; ++quantity) {
        std::vector<double>& of_seeds = errors[i][quantity];
        std::ranges::sort(of_seeds);
        found.back().errors[quantity] = of_seeds[of_seeds.size() / 4];
      }
    }
  }
  return found;
}

void check_options(const AuditOptions& options) {
  (void)plan_of(options);
}

Audit run_audit(const AuditOptions& options) {
  const Plan plan = plan_of(options);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto say = [&](const std::string& text) {
    if (options.progress) {
      options.progress(text);
    }
  };
  Audit audit{.environment = train::environment(),
              .command = options.command,
              .date = train::local_time(),
              .quick = options.quick};
  for (const DType dtype : plan.dtypes) {
    for (const Norm& norm : plan.norms) {
      for (const Case* c : plan.cases) {
        if (train::interrupted()) {
          break;
        }
        if (const std::string reason = why_not_taken(*c, norm); !reason.empty()) {
          if (!c->is_published()) {
            omit(audit, norm.name + " " + c->name, reason);
          }
        } else if (const std::string too_much = why_not_held(*c, dtype); !too_much.empty()) {
          omit(audit, fmt::format("{} {}", to_string(dtype), c->name), too_much);
        } else {
          measure_case(*c, norm, dtype, plan.statistics, options.quick, audit.measurements);
        }
      }
      say(fmt::format("{} {}: {} measurements so far, {:.0f} s", to_string(dtype), norm.name, audit.measurements.size(),
                      seconds()));
    }
  }
  for (const DType dtype : plan.dtypes) {
    if (train::interrupted()) {
      break;
    }
    const std::vector<Cost> costs = measure_costs(dtype, plan.statistics, options.quick);
    audit.costs.insert(audit.costs.end(), costs.begin(), costs.end());
    say(fmt::format("{}: timed, {:.0f} s", to_string(dtype), seconds()));
  }
  if (options.convolutions) {
    const auto measuring = [&](const std::string& what) {
      say(fmt::format("convolutions: {}, {:.0f} s", what, seconds()));
    };
    audit.layers = measure_convolutions(options.quick, measuring);
    audit.steps = measure_steps(options.quick, measuring);
  }
  audit.complete = !train::interrupted();
  audit.seconds = seconds();
  return audit;
}

}  // namespace norma::lab::judge
