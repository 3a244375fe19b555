#include "ops/attention/attention.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"
#include "python/bindings/bindings.h"

namespace norma::python {

namespace {

constexpr const char* kStable = "stable";

/// The arguments that all norms share, behind their own. A value for each comes with every call.
#define NORMA_AFFINE nb::arg("weight") = nb::none(), nb::arg("bias") = nb::none(), nb::kw_only()
#define NORMA_THEN nb::arg("activation") = "identity", nb::arg("residual") = nb::none()

/// f of x, First…, weight and bias, of a norm whose options are eps and the algorithm of its statistics.
template <class Options, class... First, class F, class... Argument>
void add_norm(nb::module_& m, const char* name, F f, const Argument&... first) {
  m.def(
      name,
      [f](const Tensor& x, const First&... sizes, const Optional& weight, const Optional& bias, double eps,
          const std::string& statistics, const std::string& activation, const Optional& residual) {
        return f(x, sizes..., tensor_or_none(weight), tensor_or_none(bias),
                 Options{.eps = eps, .statistics = statistics_from_string(statistics)}, then(activation, residual));
      },
      nb::arg("input"), first..., NORMA_AFFINE, nb::arg("eps") = Options{}.eps, nb::arg("statistics") = kStable,
      NORMA_THEN, Released(), doc(name));
}

void add_norms_of_statistics(nb::module_& m) {
  add_norm<LayerNormOptions, Sizes>(m, "layer_norm", &layer_norm, nb::arg("normalized_shape"));
  add_norm<LayerNorm2dOptions>(m, "layer_norm_2d", &layer_norm_2d);
  add_norm<GroupNormOptions, int64_t>(m, "group_norm", &group_norm, nb::arg("num_groups"));
  add_norm<InstanceNormOptions>(m, "instance_norm", [](const auto&... x) { return instance_norm(x...); });
  m.def(
      "batch_norm",
      [](const Tensor& x, const Optional& running_mean, const Optional& running_var, const Optional& weight,
         const Optional& bias, bool training, double momentum, double eps, const std::string& statistics,
         const std::string& activation, const Optional& residual) {
        return batch_norm(
            x, tensor_or_none(running_mean), tensor_or_none(running_var), tensor_or_none(weight), tensor_or_none(bias),
            {.training = training, .momentum = momentum, .eps = eps, .statistics = statistics_from_string(statistics)},
            then(activation, residual));
      },
      nb::arg("input"), nb::arg("running_mean") = nb::none(), nb::arg("running_var") = nb::none(), NORMA_AFFINE,
      nb::arg("training") = BatchNormOptions{}.training, nb::arg("momentum") = BatchNormOptions{}.momentum,
      nb::arg("eps") = BatchNormOptions{}.eps, nb::arg("statistics") = kStable, NORMA_THEN, Released(),
      doc("batch_norm"));
}

template <class Options>
void add_norm_2d(nb::module_& m, const char* name,
                 Tensor (*f)(const Tensor&, const Tensor&, const Options&, const ActOptions&)) {
  m.def(
      name,
      [f](const Tensor& x, const Optional& weight, double eps, const std::string& activation,
          const Optional& residual) { return f(x, tensor_or_none(weight), {.eps = eps}, then(activation, residual)); },
      nb::arg("input"), nb::arg("weight") = nb::none(), nb::kw_only(), nb::arg("eps") = Options{}.eps, NORMA_THEN,
      Released(), doc(name));
}

void add_norms_without_mean(nb::module_& m) {
  m.def(
      "rms_norm",
      [](const Tensor& x, const Sizes& normalized_shape, const Optional& weight, std::optional<double> eps,
         const std::string& activation, const Optional& residual) {
        return rms_norm(x, normalized_shape, tensor_or_none(weight), {.eps = eps}, then(activation, residual));
      },
      nb::arg("input"), nb::arg("normalized_shape"), nb::arg("weight") = nb::none(), nb::kw_only(),
      nb::arg("eps") = nb::none(), NORMA_THEN, Released(), doc("rms_norm"));
  add_norm_2d<RmsNorm2dOptions>(m, "rms_norm_2d", &rms_norm_2d);
  add_norm_2d<SimpleNormOptions>(m, "simple_norm_2d", &simple_norm_2d);
  m.def(
      "standardize_weight",
      [](const Tensor& weight, const Optional& gain, double eps, std::optional<double> gamma) {
        return standardize_weight(weight, tensor_or_none(gain), {.eps = eps, .gamma = gamma});
      },
      nb::arg("weight"), nb::arg("gain") = nb::none(), nb::kw_only(), nb::arg("eps") = StandardizeWeightOptions{}.eps,
      nb::arg("gamma") = nb::none(), Released(), doc("standardize_weight"));
}

void add_map_norms(nb::module_& m) {
  m.def(
      "dynamic_tanh",
      [](const Tensor& x, const Tensor& alpha, const Optional& weight, const Optional& bias, int64_t axis) {
        return dynamic_tanh(x, alpha, tensor_or_none(weight), tensor_or_none(bias), {.axis = axis});
      },
      nb::arg("input"), nb::arg("alpha"), NORMA_AFFINE, nb::arg("dim") = 1, Released(), doc("dynamic_tanh"));
  m.def(
      "dynamic_erf",
      [](const Tensor& x, const Tensor& alpha, const Tensor& shift, const Optional& weight, const Optional& bias,
         int64_t axis) {
        return dynamic_erf(x, alpha, shift, tensor_or_none(weight), tensor_or_none(bias), {.axis = axis});
      },
      nb::arg("input"), nb::arg("alpha"), nb::arg("shift"), NORMA_AFFINE, nb::arg("dim") = 1, Released(),
      doc("dynamic_erf"));
  m.def(
      "seed_norm",
      [](const Tensor& x, const Tensor& weight, const Tensor& alpha, const Tensor& beta, int64_t axis, double eps) {
        return seed_norm(x, weight, alpha, beta, {.eps = eps, .axis = axis});
      },
      nb::arg("input"), nb::arg("weight"), nb::arg("alpha"), nb::arg("beta"), nb::arg("dim") = 1, nb::kw_only(),
      nb::arg("eps") = SeedNormOptions{}.eps, Released(), doc("seed_norm"));
  m.def(
      "filter_response_norm",
      [](const Tensor& x, const Optional& weight, const Optional& bias, const Optional& tau, double eps) {
        return filter_response_norm(x, tensor_or_none(weight), tensor_or_none(bias), tensor_or_none(tau), {.eps = eps});
      },
      nb::arg("input"), nb::arg("weight") = nb::none(), nb::arg("bias") = nb::none(), nb::arg("tau") = nb::none(),
      nb::kw_only(), nb::arg("eps") = FilterResponseNormOptions{}.eps, Released(), doc("filter_response_norm"));
  m.def(
      "global_response_norm",
      [](const Tensor& x, const Optional& weight, const Optional& bias, double eps) {
        return global_response_norm(x, tensor_or_none(weight), tensor_or_none(bias), {.eps = eps});
      },
      nb::arg("input"), NORMA_AFFINE, nb::arg("eps") = GlobalResponseNormOptions{}.eps, Released(),
      doc("global_response_norm"));
  m.def(
      "evo_norm_s0",
      [](const Tensor& x, int64_t num_groups, const Tensor& v, const Optional& weight, const Optional& bias,
         double eps) {
        return evo_norm_s0(x, num_groups, v, tensor_or_none(weight), tensor_or_none(bias), {.eps = eps});
      },
      nb::arg("input"), nb::arg("num_groups"), nb::arg("v"), NORMA_AFFINE, nb::arg("eps") = EvoNormS0Options{}.eps,
      Released(), doc("evo_norm_s0"));
  m.def(
      "local_response_norm",
      [](const Tensor& x, int64_t size, double alpha, double beta, double k) {
        return local_response_norm(x, size, {.alpha = alpha, .beta = beta, .k = k});
      },
      nb::arg("input"), nb::arg("size"), nb::kw_only(), nb::arg("alpha") = LocalResponseNormOptions{}.alpha,
      nb::arg("beta") = LocalResponseNormOptions{}.beta, nb::arg("k") = LocalResponseNormOptions{}.k, Released(),
      doc("local_response_norm"));
}

Reduction reduction_named(std::string_view op, std::string_view name) {
  return value_named<Reduction>(op, "reduction", name,
                                {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}});
}

Conv2dOptions geometry(const PairArgument& stride, const PairArgument& padding, const PairArgument& dilation,
                       int64_t groups) {
  return {.stride = pair_of(stride), .padding = pair_of(padding), .dilation = pair_of(dilation), .groups = groups};
}

}  // namespace

void add_norm_ops(nb::module_& m) {
  add_norms_of_statistics(m);
  add_norms_without_mean(m);
  add_map_norms(m);
}

void add_layers_ops(nb::module_& m) {
  m.def(
      "linear",
      [](const Tensor& x, const Tensor& weight, const Optional& bias) {
        return linear(x, weight, tensor_or_none(bias));
      },
      nb::arg("input"), nb::arg("weight"), nb::arg("bias") = nb::none(), Released(), doc("linear"));
  m.def(
      "conv2d",
      [](const Tensor& x, const Tensor& weight, const Optional& bias, const PairArgument& stride,
         const PairArgument& padding, const PairArgument& dilation, int64_t groups) {
        return conv2d(x, weight, tensor_or_none(bias), geometry(stride, padding, dilation, groups));
      },
      nb::arg("input"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(), nb::arg("stride") = 1,
      nb::arg("padding") = 0, nb::arg("dilation") = 1, nb::arg("groups") = 1, Released(), doc("conv2d"));
  m.def(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, const Optional& mask, bool causal,
         std::optional<double> scale) {
        return scaled_dot_product_attention(q, k, v, {.scale = scale, .causal = causal, .mask = tensor_or_none(mask)});
      },
      nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("attn_mask") = nb::none(), nb::kw_only(),
      nb::arg("is_causal") = false, nb::arg("scale") = nb::none(), Released(), doc("scaled_dot_product_attention"));
  const auto pool = [&](const char* name, Tensor (*f)(const Tensor&, const Pool2dOptions&)) {
    m.def(
        name,
        [f](const Tensor& x, const PairArgument& kernel, const PairArgument& stride, const PairArgument& padding,
            bool ceil_mode) {
          return f(x, {.kernel = pair_of(kernel),
                       .stride = pair_of(stride),
                       .padding = pair_of(padding),
                       .ceil_mode = ceil_mode});
        },
        nb::arg("input"), nb::arg("kernel_size") = 2, nb::kw_only(), nb::arg("stride") = 0, nb::arg("padding") = 0,
        nb::arg("ceil_mode") = false, Released(), doc(name));
  };
  pool("max_pool2d", &max_pool2d);
  pool("avg_pool2d", &avg_pool2d);
  m.def(
      "adaptive_avg_pool2d",
      [](const Tensor& x, const PairArgument& output) { return adaptive_avg_pool2d(x, pair_of(output)); },
      nb::arg("input"), nb::arg("output_size"), Released(), doc("adaptive_avg_pool2d"));
  m.def(
      "dropout", [](const Tensor& x, double rate) { return dropout(x, rate, true); }, nb::arg("input"),
      nb::arg("p") = 0.5, Released(), doc("dropout"));
  m.def("softmax", &softmax, nb::arg("input"), nb::arg("dim") = -1, Released(), doc("softmax"));
  m.def("log_softmax", &log_softmax, nb::arg("input"), nb::arg("dim") = -1, Released(), doc("log_softmax"));
  m.def(
      "cross_entropy",
      [](const Tensor& logits, const Tensor& target, double label_smoothing, const std::string& reduction,
         const Optional& weight, int64_t ignore_index) {
        return cross_entropy(logits, target,
                             {.label_smoothing = label_smoothing,
                              .reduction = reduction_named("cross_entropy", reduction),
                              .weight = tensor_or_none(weight),
                              .ignore_index = ignore_index});
      },
      nb::arg("input"), nb::arg("target"), nb::kw_only(), nb::arg("label_smoothing") = 0.0,
      nb::arg("reduction") = "mean", nb::arg("weight") = nb::none(), nb::arg("ignore_index") = -100, Released(),
      doc("cross_entropy"));
  m.def(
      "binary_cross_entropy_with_logits",
      [](const Tensor& logits, const Tensor& target, double label_smoothing, const Optional& weight,
         const Optional& pos_weight, const std::string& reduction) {
        return binary_cross_entropy_with_logits(
            logits, target,
            {.label_smoothing = label_smoothing,
             .weight = tensor_or_none(weight),
             .pos_weight = tensor_or_none(pos_weight),
             .reduction = reduction_named("binary_cross_entropy_with_logits", reduction)});
      },
      nb::arg("input"), nb::arg("target"), nb::kw_only(), nb::arg("label_smoothing") = 0.0,
      nb::arg("weight") = nb::none(), nb::arg("pos_weight") = nb::none(), nb::arg("reduction") = "mean", Released(),
      doc("binary_cross_entropy_with_logits"));
}

}  // namespace norma::python
