#include "python/bindings/bindings.h"

#include "nn/optim/clip.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizers.h"
#include "nn/optim/schedule.h"

namespace norma::python {

namespace {

using Parameters = std::variant<std::vector<Tensor>, std::shared_ptr<nn::Module>>;

/// Tensors: all of them decay. A module: its vectors do not, as in timm.
std::vector<nn::ParameterGroup> groups_of(const Parameters& parameters, double weight_decay) {
  if (const auto* const module = std::get_if<std::shared_ptr<nn::Module>>(&parameters)) {
    return nn::parameter_groups(**module, weight_decay);
  }
  nn::ParameterGroup group{.parameters = {}, .weight_decay = weight_decay};
  for (const Tensor& x : std::get<std::vector<Tensor>>(parameters)) {
    group.parameters.emplace_back(std::to_string(group.parameters.size()), x);
  }
  return {std::move(group)};
}

constexpr const char* kParameters =
    "Tensors, all of which decay, or a module, whose norms, biases and other vectors do not.";

template <class Class, class Options>
void add_adaptive(nb::module_& m, const char* name, double weight_decay) {
  nb::class_<Class, nn::Optimizer>(m, name, doc(name))
      .def(
          "__init__",
          [](Class* self, const Parameters& params, double lr, std::pair<double, double> betas, double eps,
             double decay) {
            new (self) Class(groups_of(params, decay),
                             Options{.lr = lr, .beta1 = betas.first, .beta2 = betas.second, .eps = eps});
          },
          nb::arg("params"), nb::arg("lr") = Options{}.lr, nb::kw_only(),
          nb::arg("betas") = std::pair(Options{}.beta1, Options{}.beta2), nb::arg("eps") = Options{}.eps,
          nb::arg("weight_decay") = weight_decay, kParameters);
}

}  // namespace

void add_optimizers(nb::module_& m) {
  using namespace nn;
  nb::class_<Optimizer>(m, "Optimizer", doc("Optimizer"))
      .def("step", &Optimizer::step, Released(), "Updates every parameter once.")
      .def("zero_grad", &Optimizer::zero_grad)
      .def_prop_rw("lr", &Optimizer::lr, &Optimizer::set_lr)
      .def_prop_ro("steps", &Optimizer::steps, "The number of updates so far.")
      .def("state_dict", [](const Optimizer& self) { return dict_of(self.state_dict()); })
      .def(
          "load_state_dict",
          [](Optimizer& self, const std::map<std::string, Tensor>& dict) {
            self.load_state_dict({dict.begin(), dict.end()});
          },
          nb::arg("state_dict"));
  nb::class_<Sgd, Optimizer>(m, "SGD", doc("Sgd"))
      .def(
          "__init__",
          [](Sgd* self, const Parameters& parameters, double lr, double momentum, double dampening, double weight_decay,
             bool nesterov) {
            new (self) Sgd(groups_of(parameters, weight_decay),
                           {.lr = lr, .momentum = momentum, .dampening = dampening, .nesterov = nesterov});
          },
          nb::arg("params"), nb::arg("lr") = SgdOptions{}.lr, nb::kw_only(), nb::arg("momentum") = 0.0,
          nb::arg("dampening") = 0.0, nb::arg("weight_decay") = 0.0, nb::arg("nesterov") = false, kParameters);
  add_adaptive<AdamW, AdamWOptions>(m, "AdamW", /* weight_decay= */ 1e-2);
  add_adaptive<Lamb, LambOptions>(m, "Lamb", /* weight_decay= */ 0);
  nb::class_<Muon, Optimizer>(m, "Muon", doc("Muon"))
      .def(
          "__init__",
          [](Muon* self, const Parameters& parameters, double lr, double momentum, std::pair<double, double> betas,
             double eps, double weight_decay) {
            new (self) Muon(groups_of(parameters, weight_decay),
                            {.lr = lr, .momentum = momentum, .eps = eps, .beta1 = betas.first, .beta2 = betas.second});
          },
          nb::arg("params"), nb::arg("lr") = MuonOptions{}.lr, nb::kw_only(),
          nb::arg("momentum") = MuonOptions{}.momentum,
          nb::arg("betas") = std::pair(MuonOptions{}.beta1, MuonOptions{}.beta2), nb::arg("eps") = MuonOptions{}.eps,
          nb::arg("weight_decay") = 0.0, kParameters);
  m.def("_cosine_schedule",
        [](int64_t steps, double final) { return cosine_schedule({.steps = steps, .final = final}); });
  m.def("_one_cycle_schedule", [](int64_t steps, double pct_start, double div_factor, double final_div_factor) {
    return one_cycle_schedule(
        {.steps = steps, .pct_start = pct_start, .div_factor = div_factor, .final_div_factor = final_div_factor});
  });
  m.def("clip_grad_norm_", &clip_grad_norm_, nb::arg("parameters"), nb::arg("max_norm"), Released(),
        doc("clip_grad_norm_"));
}

}  // namespace norma::python
