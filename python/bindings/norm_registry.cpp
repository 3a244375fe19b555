#include "python/bindings/bindings.h"

#include "nn/norm/factory.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

namespace norma::python {

namespace {

/// A layer of a class of Python as it stands in networks. What it returns is checked, so that a mistake is said where
/// it is made.
class CheckedNorm final : public nn::Module {
 public:
  CheckedNorm(std::string name, const std::shared_ptr<nn::Module>& layer) : name_(std::move(name)), layer_(layer) {
    for (const auto& [parameter, x] : layer_->named_parameters()) {
      register_parameter(parameter, x);
    }
    for (const auto& [buffer, x] : layer_->named_buffers()) {
      register_buffer(buffer, x);
    }
  }
  Tensor forward(const Tensor& x) override {
    layer_->train(is_training());
    const Tensor y = (*layer_)(x);
    check(y.defined() && y.sizes() == x.sizes(), name_,
          "forward: expected a tensor of sizes {}, as the input's, got {}", to_string(x.sizes()),
          y.defined() ? "sizes " + to_string(y.sizes()) : "None");
    return norma::to(y, x.dtype());  // float32 parameters have made float32 of 16 bits
  }
  [[nodiscard]] std::string name() const override { return layer_->name(); }

 private:
  std::string name_;
  std::shared_ptr<nn::Module> layer_;
};

using LayerClass = nb::typed<nb::callable, nn::Module(...)>;

/// "0.5" as a number, "true" as a bool, anything else as text.
nb::object value_of(const nn::NormChoice& choice, const std::string& option) {
  const std::string text = choice.options.at(option);
  if (text == "true" || text == "false") {
    return nb::bool_(text == "true");
  }
  try {
    return nb::float_(choice.number(option, 0));
  } catch (const Error&) {
    return nb::str(text.c_str());
  }
}

std::shared_ptr<nn::Module> make_layer(const std::string& name, const LayerClass& layer_class,
                                       const nn::NormChoice& choice, int64_t channels) {
  const nb::gil_scoped_acquire gil;
  nb::dict options;
  for (const auto& [option, text] : choice.options) {
    options[option.c_str()] = value_of(choice, option);
  }
  const nb::object layer = layer_class(channels, **options);
  check(nb::isinstance<nn::Module>(layer), name, "expected a class derived from norma.nn.Module, got {}",
        nb::cast<std::string>(layer.type().attr("__name__")));
  return std::make_shared<CheckedNorm>(name, nb::cast<std::shared_ptr<nn::Module>>(layer));
}

}  // namespace

void add_norm_registry(nb::module_& m) {
  m.def("norm_names", &nn::norm_names, doc("norm_names"));
  m.def(
      "make_norm", [](const std::string& spec, int64_t channels) { return nn::make_norm(spec, channels); },
      nb::arg("spec"), nb::arg("channels"), doc("make_norm"));
  m.def(
      "_register_norm",
      [](const std::string& name, const LayerClass& layer_class, const std::vector<std::string>& options) {
        nn::register_norm(name, {.make =
                                     [name, layer_class](const nn::NormChoice& choice, int64_t channels) {
                                       return make_layer(name, layer_class, choice, channels);
                                     },
                                 .options = options});
      },
      nb::arg("name"), nb::arg("layer_class"), nb::arg("options"));
}

}  // namespace norma::python
