#include "nn/layers.h"

#include "python/bindings/bindings.h"

#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"

namespace norma::python {

namespace {

template <class M>
using Layer = nb::class_<M, nn::Module>;

/// A norm made of First…, eps and affine.
template <class Class, class Options, class... First, class... Argument>
void add_norm(nb::module_& m, const char* name, const Argument&... first) {
  nb::class_<Class, nn::Norm>(m, name, doc(name))
      .def(
          "__init__",
          [](Class* self, const First&... sizes, double eps, bool affine) {
            new (self) Class(sizes..., Options{.eps = eps, .affine = affine});
          },
          first..., nb::kw_only(), nb::arg("eps") = Options{}.eps, nb::arg("affine") = Options{}.affine);
}

void add_norm_layers(nb::module_& m) {
  using namespace nn;
  nb::class_<Norm, Module> norm(m, "Norm", doc("Norm"));
  norm.def(
      "forward_act",
      [](Norm& self, const Tensor& x, const std::string& activation, const Optional& residual) {
        return self.forward_act(x, then(activation, residual));
      },
      nb::arg("input"), nb::kw_only(), nb::arg("activation") = "identity", nb::arg("residual") = nb::none(), Released(),
      "activation(norm(x) + residual) in one op.");
  nb::class_<BatchNorm2d, Norm>(m, "BatchNorm2d", doc("BatchNorm2d"))
      .def(
          "__init__",
          [](BatchNorm2d* self, int64_t channels, double eps, std::optional<double> momentum, bool affine,
             bool track_running_stats) {
            new (self) BatchNorm2d(
                channels,
                {.eps = eps, .momentum = momentum, .affine = affine, .track_running_stats = track_running_stats});
          },
          nb::arg("num_features"), nb::kw_only(), nb::arg("eps") = BatchNormLayerOptions{}.eps,
          nb::arg("momentum") = 0.1, nb::arg("affine") = true, nb::arg("track_running_stats") = true);
  add_norm<LayerNorm, NormOptions, Sizes>(m, "LayerNorm", nb::arg("normalized_shape"));
  add_norm<LayerNorm2d, LayerNorm2dLayerOptions, int64_t>(m, "LayerNorm2d", nb::arg("num_channels"));
  add_norm<GroupNorm, NormOptions, int64_t, int64_t>(m, "GroupNorm", nb::arg("num_groups"), nb::arg("num_channels"));
  add_norm<InstanceNorm2d, InstanceNormLayerOptions, int64_t>(m, "InstanceNorm2d", nb::arg("num_features"));
  add_norm<RMSNorm2d, RmsNorm2dLayerOptions, int64_t>(m, "RMSNorm2d", nb::arg("num_channels"));
}

}  // namespace

void add_layers(nb::module_& m) {
  using namespace nn;
  Layer<Linear>(m, "Linear", doc("Linear"))
      .def(
          "__init__",
          [](Linear* self, int64_t in, int64_t out, bool bias) { new (self) Linear(in, out, {.bias = bias}); },
          nb::arg("in_features"), nb::arg("out_features"), nb::kw_only(), nb::arg("bias") = true)
      .def_prop_ro("weight", &Linear::weight)
      .def_prop_ro("bias", [](const Linear& self) { return none_if_undefined(self.bias()); });
  Layer<Conv2d>(m, "Conv2d", doc("Conv2d"))
      .def(
          "__init__",
          [](Conv2d* self, int64_t in, int64_t out, const PairArgument& kernel, const PairArgument& stride,
             const PairArgument& padding, const PairArgument& dilation, int64_t groups, bool bias) {
            new (self) Conv2d(in, out, pair_of(kernel),
                              {.stride = pair_of(stride),
                               .padding = pair_of(padding),
                               .dilation = pair_of(dilation),
                               .groups = groups,
                               .bias = bias});
          },
          nb::arg("in_channels"), nb::arg("out_channels"), nb::arg("kernel_size"), nb::kw_only(), nb::arg("stride") = 1,
          nb::arg("padding") = 0, nb::arg("dilation") = 1, nb::arg("groups") = 1, nb::arg("bias") = true)
      .def_prop_ro("weight", &Conv2d::weight)
      .def_prop_ro("bias", [](const Conv2d& self) { return none_if_undefined(self.bias()); });
  Layer<ReLU>(m, "ReLU", "relu().").def(nb::init<>());
  Layer<GELU>(m, "GELU", "gelu().").def(nb::init<>());
  Layer<SiLU>(m, "SiLU", "silu().").def(nb::init<>());
  Layer<Identity>(m, "Identity", doc("Identity")).def(nb::init<>());
  Layer<Flatten>(m, "Flatten", doc("Flatten"))
      .def(nb::init<int64_t, int64_t>(), nb::arg("start_dim") = 1, nb::arg("end_dim") = -1);
  Layer<Dropout>(m, "Dropout", doc("Dropout")).def(nb::init<double>(), nb::arg("p") = 0.5);
  Layer<MaxPool2d>(m, "MaxPool2d", "max_pool2d().")
      .def(
          "__init__",
          [](MaxPool2d* self, const PairArgument& kernel, const PairArgument& stride, const PairArgument& padding) {
            new (self) MaxPool2d({.kernel = pair_of(kernel), .stride = pair_of(stride), .padding = pair_of(padding)});
          },
          nb::arg("kernel_size"), nb::kw_only(), nb::arg("stride") = 0, nb::arg("padding") = 0);
  Layer<AdaptiveAvgPool2d>(m, "AdaptiveAvgPool2d", "adaptive_avg_pool2d().")
      .def(
          "__init__",
          [](AdaptiveAvgPool2d* self, const PairArgument& output) { new (self) AdaptiveAvgPool2d(pair_of(output)); },
          nb::arg("output_size"));
  Layer<Sequential>(m, "Sequential", doc("Sequential"))
      .def(
          "__init__",
          [](Sequential* self, const nb::args& modules) {
            new (self) Sequential();
            for (const nb::handle module : modules) {
              self->push_back(nb::cast<std::shared_ptr<Module>>(module));
            }
          },
          nb::sig("def __init__(self, *modules: Module) -> None"))
      .def("append", &Sequential::push_back, nb::arg("module"));
  add_norm_layers(m);
}

}  // namespace norma::python
