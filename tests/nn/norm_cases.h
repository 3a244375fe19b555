#pragma once

#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/map_norms.h"
#include "nn/norm/norm.h"
#include "ops/formula_values.h"
#include "ops/norm_reference.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

namespace norma::test {

/// One layer of the catalogue with its options, for inputs of some sizes.
/// Not every kind has every option. frozen: weight and bias are there always; without `affine` they stay at 1 and 0.
/// response: has no parameters. evonorm_b0, evonorm_s0, frn, grn and dyt: only the functions can do without weight,
/// bias, tau and running_var, and then a FunctionLayer calls them. std_conv and scaled_std_conv: `affine` is the bias
/// alone. evonorm_s0, frn, grn, dyt and the convolutions do the same in training and in evaluation.
struct NormCase {
  std::string kind;  ///< "batch1d", …, as make_layer() lists them
  Sizes sizes;
  Sizes shape = {};  ///< of layer, rms and simple: the last sizes
  int64_t groups = 1;
  int64_t sub_batch = 2;
  double r_max = 1.5;
  double d_max = 0.5;
  int64_t window = 5;  ///< of response, as the next one
  LocalResponseNormOptions response = {};
  int64_t axis = 1;          ///< of dyt's channels
  bool threshold = true;     ///< of frn
  int64_t out_channels = 6;  ///< of the convolutions, as the next ones
  Pair kernel = 3;
  Pair stride = 1;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool bias = true;
  bool track_running_stats = true;
  bool training = true;
};

inline std::string to_string(const NormCase& c) {
  return fmt::format(
      "{} {} groups={} shape={} window={} alpha={} beta={} k={} axis={} threshold={} out={} kernel={}x{} stride={}x{} "
      "eps={} momentum={} affine={} bias={} track={} training={}",
      c.kind, norma::to_string(c.sizes), c.groups, norma::to_string(c.shape), c.window, c.response.alpha,
      c.response.beta, c.response.k, c.axis, c.threshold, c.out_channels, c.kernel.h, c.kernel.w, c.stride.h,
      c.stride.w, c.eps, c.momentum ? fmt::format("{}", *c.momentum) : "none", c.affine, c.bias, c.track_running_stats,
      c.training);
}

inline bool is_convolution(const NormCase& c) {
  return c.kind == "std_conv" || c.kind == "scaled_std_conv";
}

inline constexpr double kScaledGamma = 1.7;  ///< of scaled_std_conv

/// As timm pads.
inline Conv2dOptions convolution_of(const NormCase& c) {
  return {.stride = c.stride,
          .padding = Pair((c.stride.h - 1 + c.kernel.h - 1) / 2, (c.stride.w - 1 + c.kernel.w - 1) / 2),
          .groups = c.groups};
}

/// Whether the kind is one of map_norms.h with parameters.
inline bool is_composed(const NormCase& c) {
  return c.kind == "evonorm_b0" || c.kind == "evonorm_s0" || c.kind == "frn" || c.kind == "grn" || c.kind == "dyt";
}

/// The parameter besides weight and bias; "" for most kinds.
inline std::string own_parameter(const NormCase& c) {
  return c.kind == "evonorm_b0" || c.kind == "evonorm_s0" ? "v"
         : c.kind == "frn" && c.threshold                 ? "tau"
         : c.kind == "dyt"                                ? "alpha"
         : c.kind == "scaled_std_conv"                    ? "gain"
                                                          : "";
}

inline int64_t channels_of(const NormCase& c) {
  return c.axis < 0 ? c.sizes[c.sizes.size() + c.axis] : c.sizes.size() > 1 ? c.sizes[1] : 0;
}

/// Undefined where the case has none.
struct NormInputs {
  Tensor x;
  Tensor dy;
  Tensor weight = {};
  Tensor bias = {};
  Tensor running_mean = {};
  Tensor running_var = {};
  Tensor own = {};  ///< of own_parameter()
};

/// "y", "dx", "dweight", "dbias", "running_mean", "running_var" of one forward and backward pass.
using NormResults = std::map<std::string, Tensor>;

inline bool starts_with(const NormCase& c, std::string_view prefix) {
  return c.kind.starts_with(prefix);
}

/// The function of a kind with just the tensors that the case has, as a layer.
class FunctionLayer : public nn::MapNorm {
 public:
  explicit FunctionLayer(const NormCase& c) : MapNorm(c.kind, 0, "", /* least= */ 0), c_(c) {
    apply_ = [this](const Tensor& x, Activation activation) { return apply(x, activation); };
    const Sizes sizes{test::channels_of(c)};
    weight_ = register_parameter("weight", c.affine ? ones(sizes) : Tensor());
    bias_ = register_parameter("bias", c.affine && c.bias ? zeros(sizes) : Tensor());
    if (const std::string name = own_parameter(c); !name.empty()) {
      own_ = register_parameter(name, ones(name == "alpha" ? Sizes{1} : sizes));
    }
    if (c.kind == "evonorm_b0" && c.track_running_stats) {
      running_var_ = register_buffer("running_var", ones(sizes));
    }
  }

 private:
  Tensor apply(const Tensor& x, Activation activation) {
    if (c_.kind == "evonorm_b0") {
      return evo_norm_b0(
          x, running_var_, own_, weight_, bias_,
          {.training = is_training(), .momentum = c_.momentum.value_or(0), .eps = c_.eps, .activation = activation});
    }
    if (c_.kind == "evonorm_s0") {
      return evo_norm_s0(x, c_.groups, own_, weight_, bias_, {.eps = c_.eps, .activation = activation});
    }
    if (c_.kind == "frn") {
      return filter_response_norm(x, weight_, bias_, own_, {.eps = c_.eps, .activation = activation});
    }
    if (c_.kind == "grn") {
      return global_response_norm(x, weight_, bias_, {.eps = c_.eps, .activation = activation});
    }
    return dynamic_tanh(x, own_, weight_, bias_, {.axis = c_.axis, .activation = activation});
  }

  NormCase c_;
  Tensor weight_, bias_, own_, running_var_;
};

/// Whether the kind's layer lacks what the case asks for.
inline bool is_function_alone(const NormCase& c) {
  const bool any_rank = c.kind == "grn" || c.kind == "dyt";
  return is_composed(c) &&
         (!c.affine || !c.bias || !c.threshold || !c.track_running_stats || (!any_rank && c.sizes.size() != 4));
}

inline std::shared_ptr<nn::Module> make_layer(const NormCase& c) {
  using namespace norma::nn;
  if (is_function_alone(c)) {
    return std::make_shared<FunctionLayer>(c);
  }
  const int64_t channels = channels_of(c);
  const BatchNormLayerOptions batch{.eps = c.eps,
                                    .momentum = c.momentum,
                                    .affine = c.affine,
                                    .bias = c.bias,
                                    .track_running_stats = c.track_running_stats};
  const InstanceNormLayerOptions instance{.eps = c.eps,
                                          .momentum = c.momentum.value_or(0),
                                          .affine = c.affine,
                                          .bias = c.bias,
                                          .track_running_stats = c.track_running_stats};
  const NormOptions plain{.eps = c.eps, .affine = c.affine, .bias = c.bias};
  const LayerNorm2dLayerOptions layer2d{.eps = c.eps, .affine = c.affine, .bias = c.bias};
  const SimpleNormLayerOptions simple{.eps = c.eps, .affine = c.affine};
  const RmsNorm2dLayerOptions rms2d{.eps = c.eps, .affine = c.affine};
  const RmsNormLayerOptions rms{.eps = c.eps, .affine = c.affine};
  const StdConv2dOptions std_conv{.stride = c.stride, .groups = c.groups, .bias = c.affine, .eps = c.eps};
  const ScaledStdConv2dOptions scaled{
      .stride = c.stride, .groups = c.groups, .bias = c.affine, .gamma = kScaledGamma, .eps = c.eps};
  const std::map<std::string, std::function<std::shared_ptr<Module>()>> makers = {
      {"batch1d", [&] { return std::make_shared<BatchNorm1d>(channels, batch); }},
      {"batch2d", [&] { return std::make_shared<BatchNorm2d>(channels, batch); }},
      {"batch3d", [&] { return std::make_shared<BatchNorm3d>(channels, batch); }},
      {"ghost", [&] { return std::make_shared<GhostBatchNorm2d>(channels, c.sub_batch, batch); }},
      {"renorm", [&] { return std::make_shared<BatchRenorm2d>(channels, c.r_max, c.d_max, batch); }},
      {"frozen", [&] { return std::make_shared<FrozenBatchNorm2d>(channels, c.eps); }},
      {"instance1d", [&] { return std::make_shared<InstanceNorm1d>(channels, instance); }},
      {"instance2d", [&] { return std::make_shared<InstanceNorm2d>(channels, instance); }},
      {"instance3d", [&] { return std::make_shared<InstanceNorm3d>(channels, instance); }},
      {"layer", [&] { return std::make_shared<LayerNorm>(c.shape, plain); }},
      {"layer2d", [&] { return std::make_shared<LayerNorm2d>(channels, layer2d); }},
      {"group", [&] { return std::make_shared<GroupNorm>(c.groups, channels, plain); }},
      {"rms", [&] { return std::make_shared<RMSNorm>(c.shape, rms); }},
      {"rms2d", [&] { return std::make_shared<RMSNorm2d>(channels, rms2d); }},
      {"simple", [&] { return std::make_shared<SimpleNorm>(c.shape, simple); }},
      {"simple2d", [&] { return std::make_shared<SimpleNorm2d>(channels, simple); }},
      {"response", [&] { return std::make_shared<LocalResponseNorm>(c.window, c.response); }},
      {"evonorm_b0",
       [&] {
         return std::make_shared<EvoNorm2dB0>(channels,
                                              EvoNormB0LayerOptions{.eps = c.eps, .momentum = c.momentum.value_or(0)});
       }},
      {"evonorm_s0", [&] { return std::make_shared<EvoNorm2dS0>(c.groups, channels, EvoNormS0Options{.eps = c.eps}); }},
      {"frn",
       [&] { return std::make_shared<FilterResponseNormTlu2d>(channels, FilterResponseNormOptions{.eps = c.eps}); }},
      {"grn", [&] { return std::make_shared<GlobalResponseNorm>(channels, GlobalResponseNormOptions{.eps = c.eps}); }},
      {"dyt", [&] { return std::make_shared<DynamicTanh>(channels, DynamicTanhLayerOptions{.axis = c.axis}); }},
      {"std_conv", [&] { return std::make_shared<StdConv2d>(channels, c.out_channels, c.kernel, std_conv); }},
      {"scaled_std_conv",
       [&] { return std::make_shared<ScaledStdConv2d>(channels, c.out_channels, c.kernel, scaled); }},
  };
  const auto found = makers.find(c.kind);
  REQUIRE_MESSAGE(found != makers.end(), c.kind);
  return found->second();
}

/// A layer with parameters and statistics of these values, the floating ones in `dtype`, in the mode of the case.
inline std::shared_ptr<nn::Module> make_layer(const NormCase& c, const NormInputs& in, DType dtype) {
  const std::shared_ptr<nn::Module> layer = make_layer(c);
  layer->to(dtype);
  nn::NamedTensors values;
  for (const auto& [name, value] : {std::pair(std::string("weight"), in.weight),
                                    {"bias", in.bias},
                                    {own_parameter(c), in.own},
                                    {"running_mean", in.running_mean},
                                    {"running_var", in.running_var}}) {
    if (value.defined()) {
      values.emplace_back(name, value);
    }
  }
  layer->load_state_dict(values, {.strict = false});
  layer->train(c.training);
  return layer;
}

inline NormResults run_layer(nn::Module& layer, const NormInputs& in, Layout layout) {
  Tensor x = in_layout(in.x, layout);
  x.set_requires_grad();
  layer.zero_grad();
  const Tensor y = layer(x);
  y.backward(in_layout(in.dy, layout));
  NormResults results{{"y", y}, {"dx", x.grad()}};
  for (const auto& [name, parameter] : layer.named_parameters()) {
    results["d" + name] = parameter.grad();
  }
  for (const auto& [name, buffer] : layer.named_buffers()) {
    if (name.starts_with("running_")) {
      results[name] = buffer;
    }
  }
  CHECK(y.dtype() == in.x.dtype());
  const bool is_norm = dynamic_cast<const nn::Norm*>(&layer) != nullptr;
  CHECK(y.strides() ==
        (is_norm ? preserved_strides(x.sizes(), x.strides()) : strides_for(y.sizes(), x.suggest_memory_format())));
  CHECK(x.grad().dtype() == in.x.dtype());
  return results;
}

// --- the definitions ------------------------------------------------------------------------------------------------

inline NormSpec spec_of(const NormCase& c) {
  const int64_t rank = c.sizes.size();
  NormSpec spec{.affine = {1}, .groups = c.groups, .eps = c.eps};
  int64_t first = 2;  // instance, and batch with axis 0
  if (c.kind == "layer" || c.kind == "rms" || c.kind == "simple") {
    first = rank - c.shape.size();
  } else if (c.kind.ends_with("2d") && !starts_with(c, "batch") && !starts_with(c, "instance")) {
    spec.reduce = {1};
    first = rank;
  } else if (c.kind == "group") {
    first = 1;
  } else if (!starts_with(c, "instance")) {
    spec.reduce = {0};
  }
  for (int64_t axis = first; axis < rank; ++axis) {
    spec.reduce.push_back(axis);
  }
  if (!c.shape.empty()) {
    spec.affine = spec.reduce;
  }
  spec.centring = starts_with(c, "rms")      ? Centring::none
                  : starts_with(c, "simple") ? Centring::deviation
                                             : Centring::mean;
  spec.correction = starts_with(c, "simple") ? 1 : 0;
  return spec;
}

inline void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// Averages, over the sets of each channel, of the batch's mean and of its unbiased variance.
inline std::pair<std::vector<double>, std::vector<double>> channel_statistics(const Tensor& x, const NormSpec& spec,
                                                                              const ReferenceNorm& norm) {
  const ElementPlaces places = places_of(x, spec);
  const auto channels = static_cast<size_t>(x.size(1));
  std::vector<double> mean(channels), var(channels), elements(channels);
  double in_a_set = 1;
  for (const int64_t axis : spec.reduce) {
    in_a_set *= static_cast<double>(x.size(axis));
  }
  for (size_t i = 0; i < norm.y.size(); ++i) {
    mean[places.channel[i]] += norm.mean[i];
    var[places.channel[i]] += norm.var[i] * in_a_set / (in_a_set - 1);
    elements[places.channel[i]] += 1;
  }
  for (size_t c = 0; c < channels; ++c) {
    mean[c] /= elements[c];
    var[c] /= elements[c];
  }
  return {mean, var};
}

inline std::vector<double> running(const Tensor& old, const std::vector<double>& now, double momentum) {
  std::vector<double> result = old.to_vector<double>();
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = (1 - momentum) * result[i] + momentum * now[i];
  }
  return result;
}

inline void insert(NormValues& values, const ReferenceNorm& norm) {
  values.insert(
      {{"y", norm.y}, {"dx", norm.dx}, {"dweight", norm.dweight}, {"dbias", norm.dbias}, {"terms", norm.terms}});
}

/// The formula of a composed norm, or of local response norm, for the statistics of `in`.
inline formula::Formula formula_of(const NormCase& c, const NormInputs& in) {
  if (c.kind == "response") {
    return formula::local_response_norm(c.window, c.response);
  }
  if (c.kind == "evonorm_b0") {
    const bool uses_running = !c.training && in.running_var.defined();
    return formula::evo_norm_b0(uses_running ? in.running_var.to_vector<double>() : std::vector<double>());
  }
  return c.kind == "evonorm_s0" ? formula::evo_norm_s0(c.groups)
         : c.kind == "frn"      ? formula::filter_response_norm()
         : c.kind == "grn"      ? formula::global_response_norm()
                                : formula::dynamic_tanh();
}

/// definition() of what has a formula of its own. Where a formula has two branches, x must meet both.
inline NormValues composed_definition(const NormCase& c, const NormInputs& in) {
  if (is_convolution(c)) {
    return std_conv_values(in.x, in.dy, in.weight, in.bias, in.own, convolution_of(c),
                           in.own.defined() ? std::optional(kScaledGamma) : std::nullopt, c.eps);
  }
  formula::BranchEdge edge;
  const NamedParameters parameters{{"weight", in.weight}, {"bias", in.bias}, {own_parameter(c), in.own}};
  NormValues result = values_of(formula_of(c, in), in.x, in.dy, parameters, c.eps, c.axis, &edge);
  if (c.kind == "evonorm_b0" || (c.kind == "frn" && c.threshold)) {
    CAPTURE(to_string(c));
    CHECK(edge.below);
    CHECK(edge.above);
    CHECK(edge.nearest > 1e-6);
  }
  if (in.running_var.defined()) {
    const auto in_channel = static_cast<double>(in.x.numel() / in.x.size(1));
    const ReferenceNorm of_channels = reference_norm(in.x, spec_of({.kind = "batch", .sizes = c.sizes}));
    std::vector<double> now = in.running_var.to_vector<double>();
    for (size_t channel = 0; channel < now.size() && c.training; ++channel) {
      const size_t element = channel * static_cast<size_t>(in.x.numel() / in.x.size(0) / in.x.size(1));
      const double unbiased = of_channels.var[element] * in_channel / (in_channel - 1);
      now[channel] += c.momentum.value_or(0) * (unbiased - now[channel]);
    }
    result["running_var"] = now;
  }
  return result;
}

/// What the layer should give for `in`, as plain loops in float64; "terms": what dx is a difference of. Momentum none:
/// that of a first batch, 1.
inline NormValues definition(const NormCase& c, const NormInputs& in) {
  if (c.kind == "response" || is_composed(c) || is_convolution(c)) {
    return composed_definition(c, in);
  }
  const NormSpec spec = spec_of(c);
  const bool tracked = in.running_mean.defined();
  NormValues values;
  if (tracked) {
    values["running_mean"] = in.running_mean.to_vector<double>();
    values["running_var"] = in.running_var.to_vector<double>();
  }
  if (tracked && (!c.training || c.kind == "frozen")) {
    const ReferenceNorm norm =
        reference_norm(in.x, spec, in.weight, in.bias,
                       {.dy = in.dy, .given_mean = values["running_mean"], .given_var = values["running_var"]});
    insert(values, norm);
    return values;
  }

  std::vector<double> mean, var;  // of the batch, per channel
  if (c.kind == "ghost") {
    double sub_batches = 0;
    for (int64_t first = 0; first < c.sizes[0]; first += c.sub_batch) {
      const int64_t images = std::min(c.sub_batch, c.sizes[0] - first);
      const Tensor x = narrow(in.x, 0, first, images);
      const ReferenceNorm part = reference_norm(x, spec, in.weight, in.bias, {.dy = narrow(in.dy, 0, first, images)});
      const auto [part_mean, part_var] = channel_statistics(x, spec, part);
      append(values["y"], part.y);
      append(values["dx"], part.dx);
      append(values["terms"], part.terms);
      for (const auto& [sum, summand] : {std::pair(&values["dweight"], &part.dweight),
                                         {&values["dbias"], &part.dbias},
                                         {&mean, &part_mean},
                                         {&var, &part_var}}) {
        sum->resize(summand->size());
        for (size_t i = 0; i < summand->size(); ++i) {
          (*sum)[i] += (*summand)[i];
        }
      }
      ++sub_batches;
    }
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] /= sub_batches;
      var[i] /= sub_batches;
    }
  } else if (c.kind == "renorm") {
    // y = (xhat r + d) w + b: a batch norm with weight r w and bias d w + b, and dw = r dweight + d dbias.
    const ReferenceNorm plain = reference_norm(in.x, spec);
    std::tie(mean, var) = channel_statistics(in.x, spec, plain);
    const double n = static_cast<double>(in.x.numel()) / static_cast<double>(in.x.size(1));
    std::vector<double> r, d, w, b;
    const Sizes channels{c.sizes[1]};
    for (size_t i = 0; i < mean.size(); ++i) {
      const double s = std::sqrt(values["running_var"][i] + c.eps);
      r.push_back(std::clamp(std::sqrt(var[i] * (n - 1) / n + c.eps) / s, 1 / c.r_max, c.r_max));
      d.push_back(std::clamp((mean[i] - values["running_mean"][i]) / s, -c.d_max, c.d_max));
      const double weight = in.weight.defined() ? in.weight.to_vector<double>()[i] : 1;
      w.push_back(r[i] * weight);
      b.push_back(d[i] * weight + (in.bias.defined() ? in.bias.to_vector<double>()[i] : 0));
    }
    ReferenceNorm norm = reference_norm(in.x, spec, from_vector(w, channels), from_vector(b, channels), {.dy = in.dy});
    for (size_t i = 0; i < mean.size(); ++i) {
      norm.dweight[i] = r[i] * norm.dweight[i] + d[i] * norm.dbias[i];
    }
    insert(values, norm);
  } else {
    const ReferenceNorm norm = reference_norm(in.x, spec, in.weight, in.bias, {.dy = in.dy});
    insert(values, norm);
    if (tracked) {
      std::tie(mean, var) = channel_statistics(in.x, spec, norm);
    }
  }
  if (tracked) {
    values["running_mean"] = running(in.running_mean, mean, c.momentum.value_or(1));
    values["running_var"] = running(in.running_var, var, c.momentum.value_or(1));
  }
  return values;
}

}  // namespace norma::test
