#include "python/bindings/bindings.h"

#include "ops/attention/attention.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"

namespace norma::python {

namespace {

Reduction reduction_named(std::string_view op, std::string_view name) {
  return value_named<Reduction>(op, "reduction", name,
                                {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}});
}

Conv2dOptions geometry(const PairArgument& stride, const PairArgument& padding, const PairArgument& dilation,
                       int64_t groups) {
  return {.stride = pair_of(stride), .padding = pair_of(padding), .dilation = pair_of(dilation), .groups = groups};
}

}  // namespace

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
