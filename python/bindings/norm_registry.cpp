#include "python/bindings/bindings.h"

#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>

namespace norma::python {

namespace {

/// Calls f, which runs code of Python. In a command, what that raises becomes an Error in one line.
template <class F>
auto in_one_line(const std::string& name, F&& f) {
  try {
    return f();
  } catch (const nb::python_error& error) {
    if (!InCommand::lives()) {
      throw;
    }
    const nb::gil_scoped_acquire gil;
    std::string text = nb::cast<std::string>(nb::str(error.value()));
    text = text.substr(0, text.find('\n'));
    fail(name, "{}: {}", nb::cast<std::string>(error.type().attr("__name__")), text);
  }
}

/// A layer of a class of Python as it stands in networks, under the names that it has there. What it returns is
/// checked, so that a mistake is said where it is made.
class CheckedNorm final : public nn::Norm {
 public:
  CheckedNorm(std::string name, const std::shared_ptr<nn::Module>& layer) : name_(std::move(name)), layer_(layer) {
    for (const auto& [parameter, x] : layer_->own_parameters()) {
      register_parameter(parameter, x);
    }
    for (const auto& [buffer, x] : layer_->own_buffers()) {
      register_buffer(buffer, x);
    }
    for (const auto& [child, module] : layer_->children()) {
      register_module(child, module);
    }
  }
  Tensor forward_act(const Tensor& x, const ActOptions& then) override {
    layer_->train(is_training());
    const Tensor y = in_one_line(name_, [&] { return (*layer_)(x); });
    check(y.sizes() == x.sizes(), name_, "forward: expected a tensor of sizes {}, as the input's, got sizes {}",
          to_string(x.sizes()), to_string(y.sizes()));
    return activate(norma::to(y, x.dtype()), then);  // float32 parameters have made float32 of 16 bits
  }
  [[nodiscard]] nn::Invariance invariance() const override {
    constexpr std::string_view kNames[] = {"none", "scale", "scale_and_shift"};  // in the order of nn::Invariance
    const std::string name = answer<std::string>("invariance").value_or("none");
    const auto found = std::ranges::find(kNames, name);
    check(found != std::end(kNames), name_, "invariance: expected none, scale or scale_and_shift, got '{}'", name);
    return static_cast<nn::Invariance>(found - std::begin(kNames));
  }
  [[nodiscard]] std::optional<nn::Bend> bend() const override {
    const auto found = answer<std::tuple<double, double, double>>("bend");
    return found ? std::optional(std::make_from_tuple<nn::Bend>(*found)) : std::nullopt;
  }
  [[nodiscard]] std::vector<std::string> decaying() const override {
    return answer<std::vector<std::string>>("decaying").value_or(std::vector<std::string>());
  }
  [[nodiscard]] std::string name() const override { return layer_->name(); }

 private:
  /// The result of a method of the class in Python; none if it has no such method.
  template <class T>
  [[nodiscard]] std::optional<T> answer(const char* method) const {
    const nb::gil_scoped_acquire gil;
    const nb::object layer = nb::cast(layer_);
    return in_one_line(name_, [&] {
      return nb::hasattr(layer, method) ? std::optional(nb::cast<T>(layer.attr(method)())) : std::nullopt;
    });
  }

  std::string name_;
  std::shared_ptr<nn::Module> layer_;
};

using LayerClass = nb::typed<nb::callable, nn::Module(...)>;

/// A class of Python that C++ may copy, and forget, without the GIL.
std::shared_ptr<LayerClass> shared(const LayerClass& layer_class) {
  return {new LayerClass(layer_class), [](LayerClass* pointer) {
            if (nb::is_alive()) {  // the registry outlives the interpreter
              const nb::gil_scoped_acquire gil;
              delete pointer;
            }
          }};
}

/// `layer_class` gets the options as texts.
std::shared_ptr<nn::Module> make_layer(std::string name, const LayerClass& layer_class, const nn::NormChoice& choice,
                                       int64_t channels) {
  const nb::gil_scoped_acquire gil;
  nb::dict options;
  for (const auto& [option, text] : choice.options) {
    options[option.c_str()] = nb::str(text.c_str());
  }
  const nb::object layer = in_one_line(name, [&] { return nb::object(layer_class(channels, **options)); });
  auto module = nb::cast<std::shared_ptr<nn::Module>>(layer);
  return std::make_shared<CheckedNorm>(std::move(name), module);
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
        nn::register_norm(name, {.make = [name, kept = shared(layer_class)](
                                             const nn::NormChoice& choice,
                                             int64_t channels) { return make_layer(name, *kept, choice, channels); },
                                 .options = options});
      },
      nb::arg("name"), nb::arg("layer_class"), nb::arg("options"));
}

}  // namespace norma::python
