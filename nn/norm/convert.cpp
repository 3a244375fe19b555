#include "nn/norm/convert.h"

#include "base/not_copied.h"
#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/conv.h"
#include "nn/hooks.h"
#include "nn/module.h"
#include "nn/norm/norm.h"
#include "nn/norm/options.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <typeinfo>

namespace norma::nn {
namespace {

/// The dtype of the first floating one of the tensors; `otherwise` if there is none.
DType dtype_of(const NamedTensors& tensors, DType otherwise) {
  for (const auto& [name, x] : tensors) {
    if (is_floating(x.dtype())) {
      return x.dtype();
    }
  }
  return otherwise;
}

/// True iff `norm` is of the kind that the spec `from` makes: of the same class and, if the spec has groups or options,
/// with the same name(), which includes them.
bool is_of_kind(const Norm& norm, const NormChoice& from) {
  const bool any = !from.groups && !from.channels_per_group && from.options.empty();
  if (norm.channels() % least_channels(from) != 0) {
    return false;
  }
  const std::shared_ptr<Module> made = make_norm(from, norm.channels());
  const Module& known = *made;
  const Module& own = norm;
  return typeid(own) == typeid(known) && (any || own.name() == known.name());
}

/// A convolution and the batch norm that reads its output.
struct FoldPair {
  Conv2d* conv;
  Norm* norm;
  std::string path;  ///< of the norm
};

/// Keeps all 16-bit tensors of a model in float32, and restores them at the end of the scope.
class Widened : NotCopied {
 public:
  explicit Widened(const Module& model) {
    for (const NamedTensors& tensors : {model.named_parameters(), model.named_buffers()}) {
      for (const auto& [name, x] : tensors) {
        const Tensor narrow = x.detach();
        const Tensor wide = to(narrow, compute_dtype(narrow.dtype()));
        if (wide.dtype() != narrow.dtype()) {
          narrow_.emplace_back(x, narrow);
          replace_data(x, wide);
        }
      }
    }
  }
  ~Widened() {
    for (const auto& [x, narrow] : narrow_) {
      replace_data(x, narrow);
    }
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> narrow_;
};

/// Finds, in a forward pass, whose output is `result`, the batch norm that reads each convolution's output.
std::vector<FoldPair> find_pairs(Module& model, const Tensor& example, Tensor& result) {
  std::vector<std::pair<Conv2d*, Tensor>> outputs;
  std::map<const Module*, FoldPair> pairs;
  Hooks hooks;
  for (const auto& [path, module] : model.named_modules()) {
    if (auto* conv = dynamic_cast<Conv2d*>(module)) {
      hooks.add(*conv,
                [&outputs, conv](const Module&, const Tensor&, const Tensor& y) { outputs.emplace_back(conv, y); });
    } else if (auto* norm = dynamic_cast<Norm*>(module); norm != nullptr && norm->evaluation()) {
      hooks.add(*norm, [&outputs, &pairs, norm, path = path](const Module&, const Tensor& x, const Tensor&) {
        for (const auto& [from, y] : outputs) {
          if (y.is_same(x)) {
            pairs.emplace(norm, FoldPair{from, norm, path});
          }
        }
      });
    }
  }
  result = model(example);
  std::vector<FoldPair> in_order;
  for (const auto& [path, module] : model.named_modules()) {
    if (const auto found = pairs.find(module); found != pairs.end()) {
      in_order.push_back(found->second);
    }
  }
  return in_order;
}

struct Folded {
  Tensor weight;
  Tensor bias;
};

Folded fold(const Conv2d& conv, const BatchEvaluation& norm) {
  const auto values = [](const Tensor& x, size_t count, double otherwise) {
    return x.defined() ? x.to_vector<double>() : std::vector<double>(count, otherwise);
  };
  const auto channels = static_cast<size_t>(conv.weight().size(0));
  const std::vector<double> mean = norm.mean.to_vector<double>();
  const std::vector<double> var = norm.var.to_vector<double>();
  const std::vector<double> weight = values(norm.weight, channels, 1);
  const std::vector<double> shift = values(norm.bias, channels, 0);
  const std::vector<double> bias = values(conv.bias(), channels, 0);
  std::vector<double> conv_weight = conv.weight().to_vector<double>();
  const size_t per_channel = conv_weight.size() / channels;
  std::vector<double> folded_bias(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double scale = weight[c] / std::sqrt(var[c] + norm.eps);
    for (size_t i = 0; i < per_channel; ++i) {
      conv_weight[c * per_channel + i] *= scale;
    }
    folded_bias[c] = (bias[c] - mean[c]) * scale + shift[c];
  }
  const TensorOptions options{.dtype = conv.weight().dtype(), .device = conv.weight().device()};
  Folded result{.weight = empty_strided(conv.weight().sizes(), conv.weight().strides(), options),
                .bias = empty({conv.weight().size(0)}, options)};
  copy_into(from_vector(conv_weight, conv.weight().sizes(), {.dtype = DType::float64, .device = kCpu}), result.weight);
  copy_into(from_vector(folded_bias, result.bias.sizes(), {.dtype = DType::float64, .device = kCpu}), result.bias);
  return result;
}

/// Largest difference, relative to the largest value; infinite on NaN.
double relative_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>();
  const std::vector<double> y = b.to_vector<double>();
  double largest = 0;
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(x[i]));
    const double difference = std::abs(x[i] - y[i]);
    worst = difference <= worst ? worst : std::isnan(difference) ? INFINITY : difference;
  }
  return worst == 0 ? 0 : worst / largest;
}

}  // namespace

std::shared_ptr<Module> converted_norm(const Module& model, const Norm& norm, const NormChoice& to) {
  check(norm.channels() > 0, "convert_norm", "norm: expected a norm of (N, channels, …), got {}", norm.name());
  std::shared_ptr<Module> result = make_norm(to, norm.channels());
  // Parameters and buffers may differ: parameters_to() leaves running statistics in float32.
  const NamedTensors parameters = model.named_parameters();
  const NamedTensors buffers = model.named_buffers();
  const DType dtype = dtype_of(norm.named_parameters(), dtype_of(parameters, dtype_of(buffers, DType::float32)));
  result->to(dtype_of(norm.named_buffers(), dtype_of(buffers, dtype)));
  result->parameters_to(dtype);
  result->to(model.device());
  result->take_mode(norm);
  // A weight that is no factor of the output, as global response norm's, means something else.
  const bool same_meaning = norm.weight_is_factor() == weight_is_factor(*result);
  const NamedTensors before = same_meaning ? norm.state_dict() : NamedTensors{};
  for (const auto& [name, x] : result->state_dict()) {
    for (const auto& [old_name, old] : before) {
      if (old_name == name && old.sizes() == x.sizes()) {
        const double moved = name == "weight" ? norm.weight_offset() - weight_offset(*result) : 0;
        copy_into(moved == 0 ? old : add(old.detach(), moved), x);
      }
    }
  }
  for (auto& [name, parameter] : result->named_parameters()) {
    for (const auto& [old_name, old] : norm.named_parameters()) {
      if (old_name == name) {
        Tensor(parameter).set_requires_grad(old.requires_grad());
      }
    }
  }
  return result;
}

int64_t convert_norm(Module& model, const std::string& from, const std::string& to) {
  const NormChoice from_choice = parse_norm(from);
  const NormChoice to_choice = parse_norm(to);
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> replacements;
  for (const auto& [path, module, slot] : model.replaceable_modules()) {
    const auto* norm = dynamic_cast<const Norm*>(module);
    if (norm != nullptr && norm->channels() > 0 && is_of_kind(*norm, from_choice)) {
      check(!slot.one_pixel || !norm_definition(to_choice.name).needs_pixels, "convert_norm",
            "to: expected a norm for the single pixel of {}, got {}; a norm policy can leave that layer as it is", path,
            to_choice.name);
      replacements.emplace_back(path, converted_norm(model, *norm, to_choice));
    }
  }
  check(!replacements.empty(), "convert_norm", "from: expected a norm of the model, got '{}', which it has none of",
        from);
  for (auto& [path, norm] : replacements) {
    model.replace_module(path, std::move(norm));
  }
  return static_cast<int64_t>(replacements.size());
}

int64_t fold_batch_norm(Module& model, const Tensor& input) {
  const NoGradGuard no_grad;
  Modes modes(model);
  model.eval();
  std::map<const Module*, DType> dtypes;
  for (const auto& [path, module] : model.named_modules()) {
    dtypes.emplace(module, dtype_of(module->state_dict(), DType::float32));
  }
  // 16 bits round too much to tell a right fold from a wrong one.
  const AutocastOff no_autocast;
  const Widened wide(model);
  const Tensor example = to(input, compute_dtype(input.dtype()));
  Tensor before;
  const std::vector<FoldPair> pairs = find_pairs(model, example, before);
  constexpr std::string_view op = "fold_batch_norm";
  check(before.numel() > 0, op, "example: expected an image, got sizes {}", example.sizes());
  check(!pairs.empty(), op, "model: expected a batch norm behind a convolution, got none");
  for (const FoldPair& pair : pairs) {
    const BatchEvaluation norm = *pair.norm->evaluation();
    check(norm.mean.defined() && norm.var.defined(), op, "model: expected running statistics in '{}', got none",
          pair.path);
    const int64_t channels = pair.conv->weight().size(0);
    for (const Tensor& x : {norm.mean, norm.var, norm.weight, norm.bias}) {
      check(!x.defined() || x.numel() == channels, op, "model: expected {} numbers in each tensor of '{}', got {}",
            channels, pair.path, x.defined() ? x.numel() : 0);
    }
  }

  struct Old {
    Tensor weight;
    Tensor bias;
    std::shared_ptr<Module> norm;
  };
  std::vector<Old> olds;
  try {
    for (const FoldPair& pair : pairs) {
      const Folded folded = fold(*pair.conv, *pair.norm->evaluation());
      const int64_t channels = pair.norm->channels();
      olds.push_back({pair.conv->weight(), pair.conv->bias(),
                      model.replace_module(pair.path, std::make_shared<FoldedNorm>(channels))});
      pair.conv->set_parameters(folded.weight, folded.bias);
    }
    // Rounding grows by a small factor from layer to layer; a wrong fold changes everything.
    const double tolerance = before.dtype() == DType::float64 ? 1e-9 : 1e-3;
    const double difference = relative_difference(before, model(example));
    check(difference <= tolerance, op,
          "model: expected the same output without the norms, got one that differs by {:.2g}: the output of a "
          "convolution goes elsewhere too",
          difference);
  } catch (...) {
    for (size_t i = olds.size(); i-- > 0;) {  // backwards, since two norms may have been folded into one convolution
      pairs[i].conv->set_parameters(olds[i].weight, olds[i].bias);
      model.replace_module(pairs[i].path, olds[i].norm);
    }
    throw;
  }
  for (const FoldPair& pair : pairs) {
    pair.conv->to(dtypes.at(pair.conv));
  }
  modes.forget();
  return static_cast<int64_t>(pairs.size());
}

}  // namespace norma::nn
