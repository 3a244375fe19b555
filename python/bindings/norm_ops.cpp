#include "python/bindings/bindings.h"

#include "ops/map_norm/norms.h"
#include "ops/norm/norm.h"

namespace norma::python {

namespace {

constexpr const char* kStable = "stable";

/// The arguments that all norms share, behind their own. A value for each comes with every call.
#define NORMA_AFFINE nb::arg("weight") = nb::none(), nb::arg("bias") = nb::none(), nb::kw_only()
#define NORMA_THEN nb::arg("activation") = "identity", nb::arg("residual") = nb::none()

void add_norms_of_statistics(nb::module_& m) {
  m.def(
      "layer_norm",
      [](const Tensor& x, const Sizes& normalized_shape, const Optional& weight, const Optional& bias, double eps,
         const std::string& statistics, const std::string& activation, const Optional& residual) {
        return layer_norm(x, normalized_shape, tensor_or_none(weight), tensor_or_none(bias),
                          {.eps = eps, .statistics = statistics_from_string(statistics)}, then(activation, residual));
      },
      nb::arg("input"), nb::arg("normalized_shape"), NORMA_AFFINE, nb::arg("eps") = LayerNormOptions{}.eps,
      nb::arg("statistics") = kStable, NORMA_THEN, Released(), doc("layer_norm"));
  m.def(
      "layer_norm_2d",
      [](const Tensor& x, const Optional& weight, const Optional& bias, double eps, const std::string& statistics,
         const std::string& activation, const Optional& residual) {
        return layer_norm_2d(x, tensor_or_none(weight), tensor_or_none(bias),
                             {.eps = eps, .statistics = statistics_from_string(statistics)},
                             then(activation, residual));
      },
      nb::arg("input"), NORMA_AFFINE, nb::arg("eps") = LayerNorm2dOptions{}.eps, nb::arg("statistics") = kStable,
      NORMA_THEN, Released(), doc("layer_norm_2d"));
  m.def(
      "group_norm",
      [](const Tensor& x, int64_t num_groups, const Optional& weight, const Optional& bias, double eps,
         const std::string& statistics, const std::string& activation, const Optional& residual) {
        return group_norm(x, num_groups, tensor_or_none(weight), tensor_or_none(bias),
                          {.eps = eps, .statistics = statistics_from_string(statistics)}, then(activation, residual));
      },
      nb::arg("input"), nb::arg("num_groups"), NORMA_AFFINE, nb::arg("eps") = GroupNormOptions{}.eps,
      nb::arg("statistics") = kStable, NORMA_THEN, Released(), doc("group_norm"));
  m.def(
      "instance_norm",
      [](const Tensor& x, const Optional& weight, const Optional& bias, double eps, const std::string& statistics,
         const std::string& activation, const Optional& residual) {
        return instance_norm(x, tensor_or_none(weight), tensor_or_none(bias),
                             InstanceNormOptions{.eps = eps, .statistics = statistics_from_string(statistics)},
                             then(activation, residual));
      },
      nb::arg("input"), NORMA_AFFINE, nb::arg("eps") = InstanceNormOptions{}.eps, nb::arg("statistics") = kStable,
      NORMA_THEN, Released(), doc("instance_norm"));
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

void add_norms_without_mean(nb::module_& m) {
  m.def(
      "rms_norm",
      [](const Tensor& x, const Sizes& normalized_shape, const Optional& weight, std::optional<double> eps,
         const std::string& activation, const Optional& residual) {
        return rms_norm(x, normalized_shape, tensor_or_none(weight), {.eps = eps}, then(activation, residual));
      },
      nb::arg("input"), nb::arg("normalized_shape"), nb::arg("weight") = nb::none(), nb::kw_only(),
      nb::arg("eps") = nb::none(), NORMA_THEN, Released(), doc("rms_norm"));
  m.def(
      "rms_norm_2d",
      [](const Tensor& x, const Optional& weight, double eps, const std::string& activation, const Optional& residual) {
        return rms_norm_2d(x, tensor_or_none(weight), {.eps = eps}, then(activation, residual));
      },
      nb::arg("input"), nb::arg("weight") = nb::none(), nb::kw_only(), nb::arg("eps") = RmsNorm2dOptions{}.eps,
      NORMA_THEN, Released(), doc("rms_norm_2d"));
  m.def(
      "simple_norm_2d",
      [](const Tensor& x, const Optional& weight, double eps, const std::string& activation, const Optional& residual) {
        return simple_norm_2d(x, tensor_or_none(weight), {.eps = eps}, then(activation, residual));
      },
      nb::arg("input"), nb::arg("weight") = nb::none(), nb::kw_only(), nb::arg("eps") = SimpleNormOptions{}.eps,
      NORMA_THEN, Released(), doc("simple_norm_2d"));
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

}  // namespace

void add_norm_ops(nb::module_& m) {
  add_norms_of_statistics(m);
  add_norms_without_mean(m);
  add_map_norms(m);
}

}  // namespace norma::python
