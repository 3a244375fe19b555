#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::nn {

/// Tensors by dotted name ("layer1.0.conv1.weight"), in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
  bool strict = true;  ///< missing and unexpected names are an Error
};

/// Names that load_state_dict() did not use, with strict = false.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, not in the dict
  std::vector<std::string> unexpected;  ///< in the dict, not in the module
};

/// "layer1.0" and "conv1" give "layer1.0.conv1"; the path of the whole network is "".
std::string join_names(const std::string& path, const std::string& name);

/// True iff a tensor of this name in a state dict is batch norm's count of batches, on which no output depends.
bool is_counter(const std::string& name);

class Module;

/// A parent's options for a child that replace_module() may replace.
struct SlotOptions {
  bool one_pixel = false;  ///< its input has one pixel, so norms that take statistics over pixels cannot stand there
};

/// A child that replace_module() can replace.
struct ReplaceableModule {
  std::string path;
  Module* module;
  SlotOptions slot;
};

/// A child's place in its parent. It works like a pointer to the current child: replace_module() may put another one
/// there.
class ChildSlot {
 public:
  ChildSlot() = default;
  explicit operator bool() const { return parent_ != nullptr; }
  Module& operator*() const;
  Module* operator->() const { return &**this; }

 private:
  friend class Module;
  ChildSlot(const Module* parent, size_t index) : parent_(parent), index_(index) {}

  const Module* parent_ = nullptr;
  size_t index_ = 0;
};

/// A layer, or a network of layers: a function of one tensor with parameters (trained), buffers (kept, not trained) and
/// child modules. Constructors of derived classes register all three. Their names and order are those of the state
/// dict, and follow PyTorch's. Modules are held by std::shared_ptr; a child that holds its parent is an Error.
class Module : NotCopied {
 public:
  /// A function that sees a module's input and output after each forward pass.
  using ForwardHook = std::function<void(const Module& module, const Tensor& input, const Tensor& output)>;

  virtual ~Module() = default;

  virtual Tensor forward(const Tensor& x) = 0;
  /// Runs forward(), then the hooks in the order of their registration.
  Tensor operator()(const Tensor& x);
  /// From now on what forward() throws becomes an Error "norm 'NAME': …", shortened, whatever it is. For norms of
  /// plug-ins, which may throw anything.
  void name_in_errors(std::string norm) { norm_in_errors_ = std::move(norm); }
  /// Throws the exception that is being handled again in that way.
  [[noreturn]] static void rethrow_named(const std::string& norm);
  /// Returns a number for remove_forward_hook().
  int64_t register_forward_hook(ForwardHook hook);
  /// Throws Error for a number that stands for no hook of this module.
  void remove_forward_hook(int64_t number);
  [[nodiscard]] bool has_forward_hooks() const { return !hooks_.empty(); }
  /// Runs the hooks for a caller that does this module's work itself, together with the steps after it.
  void run_forward_hooks(const Tensor& input, const Tensor& output) const;

  /// A description in one line: "BatchNorm2d(3, eps=1e-05, momentum=0.1)".
  [[nodiscard]] virtual std::string name() const = 0;

  // --- contents: this module's own first, then those of its children, each in the order of registration ------------
  /// As in PyTorch: a tensor that stands in several places (tied weights, a module held twice) is there once, under its
  /// first name, as in parameters() and parameter_count(); with all its names unless remove_duplicate. state_dict() has
  /// all names.
  [[nodiscard]] NamedTensors named_parameters(bool remove_duplicate = true) const;
  [[nodiscard]] NamedTensors named_buffers(bool remove_duplicate = true) const;
  [[nodiscard]] Tensors parameters() const;
  /// The parameters, or buffers, of this module alone, without its children's.
  [[nodiscard]] const NamedTensors& own_parameters() const { return parameters_; }
  [[nodiscard]] const NamedTensors& own_buffers() const { return buffers_; }
  /// The first is this module, under the name "".
  [[nodiscard]] std::vector<std::pair<std::string, Module*>> named_modules();
  [[nodiscard]] std::vector<std::pair<std::string, const Module*>> named_modules() const;
  [[nodiscard]] const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const {
    return children_;
  }
  /// The number of elements in all parameters.
  [[nodiscard]] int64_t parameter_count() const;

  /// Puts `module` in the place of the one at the dotted `path` ("layer1.0.bn1"), in its mode (take_mode()), and
  /// returns the old one. Handles on the old module still refer to it. Throws Error for an unknown path (with the
  /// nearest known one), for a module that its parent holds itself, without a ChildSlot, and for a new one that is the
  /// parent or holds it.
  std::shared_ptr<Module> replace_module(const std::string& path, std::shared_ptr<Module> module);
  /// All modules that replace_module() can replace, with their paths.
  [[nodiscard]] std::vector<ReplaceableModule> replaceable_modules();

  // --- modes ------------------------------------------------------------------------------------------------------
  /// Sets training or evaluation, here and in all children.
  void train(bool on = true);
  void eval() { train(false); }
  [[nodiscard]] bool is_training() const { return training_ && !has_frozen_statistics_; }
  /// Keeps this module itself, not its children, in evaluation whatever train() says: a norm takes its running
  /// statistics and leaves them as they are. nn/freeze.h freezes by names.
  void freeze_statistics(bool on = true) { has_frozen_statistics_ = on; }
  [[nodiscard]] bool has_frozen_statistics() const { return has_frozen_statistics_; }
  /// Sets the training or evaluation of `other`, here and in all children, and freezes the statistics if other's are
  /// frozen.
  void take_mode(const Module& other);

  // --- conversion, in place: handles held elsewhere (by an optimizer) refer to the converted parameters -------------
  /// Converts floating parameters, their gradients and floating buffers. Throws Error unless `dtype` is floating.
  void to(DType dtype) { convert_floating("to", dtype, /* buffers= */ true); }
  /// Converts floating parameters and their gradients only: buffers, which hold statistics, keep their dtype.
  void parameters_to(DType dtype) { convert_floating("parameters_to", dtype, /* buffers= */ false); }
  /// Gives every parameter and buffer of rank 4, and their gradients, the strides of `format`.
  void to(MemoryFormat format);
  /// Moves all parameters, their gradients and buffers. An optimizer's averages follow at its next step; its master
  /// weights begin anew from the parameters. Throws Error for a device that cannot be used here.
  void to(Device device);
  /// The device of the first parameter, or else of the first buffer; the default device if there is neither.
  [[nodiscard]] Device device() const;

  /// Drops the gradients of all parameters.
  void zero_grad();

  // --- saving and loading -----------------------------------------------------------------------------------------
  /// All parameters and buffers: for each module its parameters, then its buffers. They share the module's memory.
  [[nodiscard]] NamedTensors state_dict() const;
  /// Copies values into the parameters and buffers, converting the dtype; strides stay as they are. The weight of a
  /// linear layer and that of a 1x1 convolution, (O, I) and (O, I, 1, 1), stand for each other. `num_batches_tracked`
  /// may be missing or unexpected. Throws one Error that lists all missing, unexpected (both unless LoadOptions::strict
  /// is false), repeated and misshapen names, and integers for a floating tensor or the reverse; nothing has changed
  /// then.
  LoadReport load_state_dict(const NamedTensors& dict, const LoadOptions& options = {});

 protected:
  /// Registers a parameter and makes it require a gradient. An undefined tensor (no bias) is not registered.
  Tensor register_parameter(const std::string& name, const Tensor& x);
  /// Forgets a parameter, if there is one of that name.
  void drop_parameter(const std::string& name);
  /// Registers a buffer; an undefined tensor is not registered.
  Tensor register_buffer(const std::string& name, const Tensor& x);
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> module) {
    add_child(name, module);
    return module;
  }
  /// As register_module(), for a child that replace_module() may replace: the parent must reach it only through the
  /// slot, or through children().
  ChildSlot register_slot(const std::string& name, std::shared_ptr<Module> module, const SlotOptions& options = {}) {
    add_child(name, std::move(module), options);
    return {this, children_.size() - 1};
  }

 private:
  friend class ChildSlot;
  friend class Modes;

  void add_child(const std::string& name, std::shared_ptr<Module> module, std::optional<SlotOptions> slot = {});
  void check_name(const std::string& name) const;
  void convert_floating(std::string_view op, DType dtype, bool buffers);
  void convert_tensors(const std::function<bool(const Tensor&)>& wanted,
                       const std::function<Tensor(const Tensor&)>& convert, bool buffers = true);
  /// `own` of this module and of all below it, by name.
  [[nodiscard]] NamedTensors named(NamedTensors Module::*own, bool remove_duplicate) const;

  NamedTensors parameters_;
  NamedTensors buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  std::vector<std::optional<SlotOptions>> slots_;  ///< for each child; none for one that its parent holds itself
  std::vector<std::pair<int64_t, ForwardHook>> hooks_;
  int64_t next_hook_ = 0;
  std::string norm_in_errors_;
  bool training_ = true;
  bool has_frozen_statistics_ = false;
};

inline Module& ChildSlot::operator*() const {
  return *parent_->children_[index_].second;
}

/// The tree of a module and its children, a line each, indented.
std::string to_string(const Module& module);

/// Keeps the mode of every module of a model (training or evaluation, frozen statistics), and restores it at the end of
/// the scope.
class Modes : NotCopied {
 public:
  explicit Modes(Module& model) {
    for (const auto& [path, module] : model.named_modules()) {
      modes_.push_back({module, module->training_, module->has_frozen_statistics_});
    }
  }
  ~Modes() { restore(); }

  /// Sets the modes that were kept.
  void restore() const {
    for (const Mode& mode : modes_) {  // parents before children, whose own mode is set later
      mode.module->train(mode.training);
      mode.module->freeze_statistics(mode.frozen_statistics);
    }
  }
  /// Restores nothing at the end: the model keeps the modes that it has.
  void forget() { modes_.clear(); }

 private:
  struct Mode {
    Module* module;
    bool training;
    bool frozen_statistics;
  };
  std::vector<Mode> modes_;
};

/// Replaces x's storage by that of `data`, so that every handle on x sees it. The gradient stays as it is.
inline void replace_data(const Tensor& x, const Tensor& data) {
  TensorImpl& impl = x.impl();
  impl.storage = data.storage();
  impl.sizes = data.sizes();
  impl.strides = data.strides();
  impl.offset = data.offset();
  impl.dtype = data.dtype();
  impl.is_view = false;
}

}  // namespace norma::nn
