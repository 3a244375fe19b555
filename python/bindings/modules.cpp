#include "nn/module.h"

#include "python/bindings/bindings.h"

#include "core/device.h"
#include "data/safetensors.h"
#include "models/registry.h"

#include <nanobind/trampoline.h>

#include <map>

namespace norma::python {

namespace {

/// A module whose class is written in Python.
class PythonModule : public nn::Module {
 public:
  NB_TRAMPOLINE(nn::Module, 2);

  Tensor forward(const Tensor& x) override {
    const nb::gil_scoped_acquire gil;
    const nb::object self = nb::borrow(nb_trampoline.base());
    const nb::object own = self.type().attr("forward");
    if (own.is(nb::type<nn::Module>().attr("forward"))) {
      fail_without_forward();
    }
    const nb::object y = own(self, x);
    check(nb::isinstance<Tensor>(y), class_name(), "forward: expected a Tensor, got {}",
          nb::cast<std::string>(y.type().attr("__name__")));
    return nb::cast<Tensor>(y);
  }

  /// What forward() of the base class does, which computes nothing.
  [[noreturn]] void fail_without_forward() const {
    fail(class_name(), "expected a method forward(self, x), got none, or one that calls that of Module");
  }

  /// The class, as "Derf()".
  [[nodiscard]] std::string name() const override { return class_name() + "()"; }

 private:
  [[nodiscard]] std::string class_name() const {
    const nb::gil_scoped_acquire gil;
    return nb::cast<std::string>(nb_trampoline.base().type().attr("__name__"));
  }
};

/// What Module gives to derived classes only.
class Publicist : public nn::Module {
 public:
  using Module::register_buffer;
  using Module::register_parameter;
  using Module::register_slot;
};

nn::NamedTensors named_tensors(const TensorDict& dict) {
  nn::NamedTensors result;
  for (const auto& [name, x] : dict) {
    result.emplace_back(nb::cast<std::string>(name), nb::cast<Tensor>(x));
  }
  return result;
}

using NamedModules = nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nn::Module>>;

void add_named_modules(NamedModules& list, const std::string& path, const nb::object& module) {
  list.append(nb::make_tuple(path, module));
  for (const auto& [name, child] : nb::cast<const nn::Module&>(module).children()) {
    add_named_modules(list, path.empty() ? name : path + "." + name, nb::cast(child));
  }
}

void add_contents(nb::class_<nn::Module, PythonModule>& module) {
  module
      .def("named_parameters", &nn::Module::named_parameters, nb::arg("remove_duplicate") = true,
           doc("named_parameters"))
      .def("named_buffers", &nn::Module::named_buffers, nb::arg("remove_duplicate") = true)
      .def("parameters", &nn::Module::parameters)
      .def("parameter_count", &nn::Module::parameter_count, "The number of elements in all parameters.")
      .def(
          "named_modules",
          [](const nb::object& self) {
            NamedModules result;
            add_named_modules(result, "", self);
            return result;
          },
          "This module under the name '', then all below it.")
      .def(
          "state_dict", [](const nn::Module& self) { return dict_of(self.state_dict()); },
          "All parameters and buffers by name. They share the module's memory.")
      .def(
          "load_state_dict",
          [](nn::Module& self, const TensorDict& dict, bool strict) {
            const nn::LoadReport report = self.load_state_dict(named_tensors(dict), {.strict = strict});
            return std::pair(report.missing, report.unexpected);
          },
          nb::arg("state_dict"), nb::kw_only(), nb::arg("strict") = true,
          "Copies values in; returns the missing and the unexpected names. Throws Error that lists all of them, if "
          "strict.");
}

void add_modes(nb::class_<nn::Module, PythonModule>& module) {
  module
      .def(
          "train",
          [](const std::shared_ptr<nn::Module>& self, bool mode) {
            self->train(mode);
            return self;
          },
          nb::arg("mode") = true, nb::sig("def train(self, mode: bool = True) -> typing.Self"))
      .def(
          "eval",
          [](const std::shared_ptr<nn::Module>& self) {
            self->eval();
            return self;
          },
          nb::sig("def eval(self) -> typing.Self"))
      .def_prop_ro("training", &nn::Module::is_training)
      .def("zero_grad", &nn::Module::zero_grad)
      .def_prop_ro("device", [](const nn::Module& self) { return to_string(self.device()); })
      .def(
          "to",
          [](const std::shared_ptr<nn::Module>& self, std::optional<std::variant<DType, std::string>> what,
             std::optional<DType> dtype, const std::optional<std::string>& device,
             const std::optional<std::string>& format) {
            if (what && std::holds_alternative<DType>(*what)) {
              self->to(std::get<DType>(*what));
            } else if (what) {
              self->to(device_from_string(std::get<std::string>(*what)));
            }
            if (dtype) {
              self->to(*dtype);
            }
            if (device) {
              self->to(device_from_string(*device));
            }
            if (format) {
              self->to(memory_format_named("to", *format));
            }
            return self;
          },
          nb::arg("dtype_or_device") = nb::none(), nb::kw_only(), nb::arg("dtype") = nb::none(),
          nb::arg("device") = nb::none(), nb::arg("memory_format") = nb::none(),
          nb::sig("def to(self, dtype_or_device: DType | str | None = None, *, dtype: DType | None = None, "
                  "device: str | None = None, memory_format: str | None = None) -> typing.Self"),
          "Converts or moves parameters and buffers in place.");
}

void add_models(nb::module_& m) {
  m.def(
      "create_model",
      [](const std::string& name, int64_t num_classes, int64_t in_channels, const std::string& norm,
         const std::string& conv_layer, bool small_stem, std::optional<int64_t> patch_size, bool zero_init_last,
         std::optional<double> layer_scale, double drop_path, bool grad_checkpointing,
         std::optional<int64_t> image_size, const std::string& global_pool, const std::string& qk_norm, bool qkv_bias,
         double pos_drop, uint64_t seed) {
        return models::create_model(name, {.num_classes = num_classes,
                                           .in_channels = in_channels,
                                           .norm = norm,
                                           .conv_layer = conv_layer,
                                           .small_stem = small_stem,
                                           .patch_size = patch_size,
                                           .zero_init_last = zero_init_last,
                                           .layer_scale = layer_scale,
                                           .drop_path = drop_path,
                                           .grad_checkpointing = grad_checkpointing,
                                           .image_size = image_size,
                                           .global_pool = global_pool,
                                           .qk_norm = qk_norm,
                                           .qkv_bias = qkv_bias,
                                           .pos_drop = pos_drop,
                                           .seed = seed});
      },
      nb::arg("name"), nb::kw_only(), nb::arg("num_classes") = 1000, nb::arg("in_channels") = 3, nb::arg("norm") = "",
      nb::arg("conv_layer") = "conv", nb::arg("small_stem") = false, nb::arg("patch_size") = nb::none(),
      nb::arg("zero_init_last") = false, nb::arg("layer_scale") = nb::none(), nb::arg("drop_path") = 0.0,
      nb::arg("grad_checkpointing") = false, nb::arg("image_size") = nb::none(), nb::arg("global_pool") = "",
      nb::arg("qk_norm") = "", nb::arg("qkv_bias") = true, nb::arg("pos_drop") = 0.0, nb::arg("seed") = 0,
      doc("create_model"));
  m.def("model_names", &models::model_names, doc("model_names"));
}

}  // namespace

void add_modules(nb::module_& m) {
  nb::class_<nn::Module, PythonModule> module(m, "Module", nb::dynamic_attr(), nb::is_weak_referenceable(),
                                              doc("Module"));
  module.def(nb::init<>())
      .def(
          "__call__", [](nn::Module& self, const Tensor& x) { return self(x); }, nb::arg("input"), Released())
      .def(
          "forward",
          [](nn::Module& self, const Tensor& x) {
            // A class of Python has come here by super().forward(x), and would be called again.
            if (const auto* const written_in_python = dynamic_cast<PythonModule*>(&self)) {
              written_in_python->fail_without_forward();
            }
            return self.forward(x);
          },
          nb::arg("input"), Released())
      .def(
          "register_forward_hook",
          [](const nb::object& self, std::function<void(const nb::object&, const Tensor&, const Tensor&)> hook) {
            // Weak: the module keeps the hook, and would keep itself.
            const auto weak = std::make_shared<nb::object>(nb::steal(PyWeakref_NewRef(self.ptr(), nullptr)));
            return nb::cast<nn::Module&>(self).register_forward_hook(
                [hook = std::move(hook), weak](const nn::Module& /*of*/, const Tensor& input, const Tensor& output) {
                  const nb::gil_scoped_acquire gil;
                  hook((*weak)(), input, output);
                });
          },
          nb::arg("hook"),
          "Calls hook(module, input, output) after each forward pass; module is None when Python has let go of it. "
          "Returns a number.")
      .def("remove_forward_hook", &nn::Module::remove_forward_hook, nb::arg("number"))
      .def(
          "register_parameter",
          [](nn::Module& self, const std::string& name, const Tensor& x) {
            return (self.*(&Publicist::register_parameter))(name, x);
          },
          nb::arg("name"), nb::arg("param"), doc("register_parameter"))
      .def(
          "register_buffer",
          [](nn::Module& self, const std::string& name, const Tensor& x) {
            return (self.*(&Publicist::register_buffer))(name, x);
          },
          nb::arg("name"), nb::arg("tensor"))
      .def(
          "register_module",
          [](nn::Module& self, const std::string& name, const std::shared_ptr<nn::Module>& child) {
            (self.*(&Publicist::register_slot))(name, child, {});
          },
          nb::arg("name"), nb::arg("module"), "Adds a child, which replace_module() may replace.")
      .def("replace_module", &nn::Module::replace_module, nb::arg("path"), nb::arg("module"))
      .def("__repr__", [](const nn::Module& self) { return nn::to_string(self); })
      .def(
          "__reduce__",
          [](const nb::handle& self) {
            // copy, deepcopy and pickle all come here, unless a class has its own way.
            const auto name = nb::cast<std::string>(self.type().attr("__name__"));
            fail(name,
                 "expected a tensor or a dict of tensors to copy or pickle, got a module; copy or save its "
                 "state_dict(), make another {} and call load_state_dict() of that",
                 name);
          },
          nb::sig("def __reduce__(self) -> typing.NoReturn"));
  add_contents(module);
  add_modes(module);
  add_models(m);
  m.def(
      "save_file",
      [](const TensorDict& tensors, const std::filesystem::path& file,
         const std::map<std::string, std::string>& metadata) {
        data::save_safetensors(file, named_tensors(tensors), metadata);
      },
      nb::arg("tensors"), nb::arg("filename"), nb::arg("metadata") = std::map<std::string, std::string>(),
      "Writes a safetensors file, whole or not at all.");
  m.def(
      "load_file", [](const std::filesystem::path& file) { return dict_of(data::load_safetensors(file).tensors); },
      nb::arg("filename"), "The tensors of a safetensors file, by name.");
}

}  // namespace norma::python
