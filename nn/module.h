#pragma once

#include "core/tensor.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace norma::nn {

/// Tensors by dotted name ("layer1.0.conv1.weight"), in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
  bool strict = true;  ///< missing and unexpected names are an Error
};

/// What load_state_dict() did not use, with strict = false.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, not in the dict
  std::vector<std::string> unexpected;  ///< in the dict, not in the module
};

/// A layer, or a network of layers: a function of one tensor with parameters (trained), buffers (kept, not trained)
/// and child modules. Constructors of derived classes register all three; their names and order are those of
/// the state dict, and follow PyTorch's. Modules are held by std::shared_ptr.
class Module {
 public:
  /// Sees a module's input and output after each forward pass.
  using ForwardHook = std::function<void(const Module& module, const Tensor& input, const Tensor& output)>;

  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  /// forward(), then the hooks in the order of their registration.
  Tensor operator()(const Tensor& x);
  void register_forward_hook(ForwardHook hook);
  /// For a caller that does this module's work itself, together with what follows it.
  void run_forward_hooks(const Tensor& input, const Tensor& output) const;

  /// One line for people: "BatchNorm2d(3, eps=1e-05, momentum=0.1)".
  [[nodiscard]] virtual std::string name() const = 0;

  // --- what is inside: this module's own first, then those of its children, each in the order of registration -----
  [[nodiscard]] NamedTensors named_parameters() const;
  [[nodiscard]] NamedTensors named_buffers() const;
  [[nodiscard]] Tensors parameters() const;
  /// Starts with this module, under the name "".
  [[nodiscard]] std::vector<std::pair<std::string, Module*>> named_modules();
  [[nodiscard]] std::vector<std::pair<std::string, const Module*>> named_modules() const;
  [[nodiscard]] const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  /// Elements of all parameters.
  [[nodiscard]] int64_t parameter_count() const;

  // --- modes ------------------------------------------------------------------------------------------------------
  /// Training or evaluation, here and in all children.
  void train(bool on = true);
  void eval() { train(false); }
  [[nodiscard]] bool is_training() const { return training_; }

  // --- conversion, in place: handles on the parameters held elsewhere (by an optimizer) see it ---------------------
  /// Converts floating parameters, their gradients and floating buffers. Throws Error unless `dtype` is floating.
  void to(DType dtype);
  /// Gives every parameter and buffer of rank 4, and their gradients, the strides of `format`.
  void to(MemoryFormat format);

  /// Drops the gradients of all parameters.
  void zero_grad();

  // --- saving and loading -----------------------------------------------------------------------------------------
  /// All parameters and buffers, for each module its parameters and then its buffers. They share the module's memory.
  [[nodiscard]] NamedTensors state_dict() const;
  /// Copies values into the parameters and buffers, converting the dtype; strides stay as they are. The weight of a
  /// linear layer and that of a 1x1 convolution, (O, I) and (O, I, 1, 1), stand for each other.
  /// `num_batches_tracked` may be missing or unexpected.
  /// Throws one Error that lists all missing, unexpected, repeated and misshapen names; nothing has changed then.
  LoadReport load_state_dict(const NamedTensors& dict, const LoadOptions& options = {});

 protected:
  /// Registers a parameter and makes it require a gradient. An undefined tensor (no bias) is not registered.
  Tensor register_parameter(const std::string& name, const Tensor& x);
  /// Registers a buffer; an undefined tensor is not registered.
  Tensor register_buffer(const std::string& name, const Tensor& x);
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> module) {
    add_child(name, module);
    return module;
  }

 private:
  void add_child(const std::string& name, std::shared_ptr<Module> module);
  void check_name(const std::string& name) const;
  void convert_tensors(const std::function<bool(const Tensor&)>& wanted,
                       const std::function<Tensor(const Tensor&)>& convert);

  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::vector<ForwardHook> hooks_;
  bool training_ = true;
};

/// The tree of a module and its children, a line each, indented.
std::string to_string(const Module& module);

}  // namespace norma::nn
