#pragma once

#include "base/not_copied.h"
#include "core/autocast.h"
#include "core/by_device.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "core/trace.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace norma {

/// An attribute of a call, seen and not copied: Sizes, Axes and other ranges of int64_t are spans.
struct NamedAttribute {
  std::string_view name;
  std::variant<int64_t, double, std::string_view, std::span<const int64_t>, const Tensor*> value;
};

/// The kernels of one device, for one call, with the call's entry in a profile. Use it as a temporary, as KernelCall.
template <class K>
class KernelRun {
 public:
  template <class Work>
  KernelRun(const ByDevice<K>& family, std::string_view op, Device device, const Work& work)
      : kernels_(family.at(op, device)), scope_(work) {}

  const K* operator->() const { return kernels_.operator->(); }
  /// Leaves no entry in the profile, since the work was not done after all.
  void discard() { scope_.discard(); }

 private:
  KernelCall<K> kernels_;
  OpScope scope_;  // opened last: a device without the kernels leaves no entry
};

/// A literal as an argument of a template.
template <size_t size>
struct Literal {
  char text[size];
  constexpr Literal(const char (&literal)[size]) { std::copy_n(literal, size, text); }  // NOLINT: a text stands for it
};

/// The name of an op for which autocast may convert, and its rule by default; CastPolicy knows it before main() begins:
///   const Op op(named<"softmax", CastRule::float32>);
template <Literal name, CastRule rule = CastRule::keep>
struct OpName {
  static inline const bool kKnown = CastPolicy::add(name.text, rule);
  constexpr operator std::string_view() const {  // NOLINT: it stands for its text
    static_cast<void>(&kKnown);                  // without a use it would not be made
    return name.text;
  }
};
template <Literal name, CastRule rule = CastRule::keep>
inline constexpr OpName<name, rule> named;

/// The frame of an op: what every op does beside its own work, under a name that is said once.
///
///   Tensor elu(const Tensor& input, double alpha) {
///     Op op(named<"elu">);
///     const Tensor x = op.input("x", input);                  // is there; in the dtype that autocast asks for
///     const Tensor y = empty_like(x);
///     op.run(kernels::elu_kernels, x, y)->elu(…);             // on the device of x, with an entry in a profile
///     op.describe({{"alpha", alpha}});                        // for a trace
///     return op.record({x}, y, {x}, [alpha](const Tensor& dy, const BackwardContext& c) -> Tensors { … });
///   }
///
/// Autocast is off while an Op lives, so that the ops that this one calls follow its rule. A backward function that
/// calls one kernel begins with an Op, too. Where several calls are one entry of a profile, in either pass, an OpScope
/// takes the entry, and ByDevice::at() the kernels. Where nobody converts, profiles, traces or records, an Op costs a
/// few loads.
class Op : NotCopied {
 public:
  /// `name` must live as long as the Op, as a literal does. An op that CastPolicy does not know has the rule of
  /// `rule_of`, or converts nothing. Under autocast it throws Error if CastPolicy does not know `rule_of`.
  explicit Op(std::string_view name, std::string_view rule_of = {}) : name_(name), autocast_(detail::autocast_state) {
    if (autocast_ != nullptr) {
      find_rule(rule_of);
      detail::autocast_state = nullptr;  // last, as find_rule() may throw
    }
  }
  ~Op() { detail::autocast_state = autocast_; }

  /// The name, as check() and its like take it.
  operator std::string_view() const { return name_; }  // NOLINT: an op stands for its name

  /// An operand in the dtype that the rule asks for. Throws Error if it is undefined.
  [[nodiscard]] Tensor input(std::string_view argument, const Tensor& x) const {
    check_defined(name_, argument, x);
    return autocast_ == nullptr ? x : converted_input(x);
  }
  /// `other` in the dtype of x, which input() returned: for ops that need one dtype for all operands. It may be
  /// undefined.
  [[nodiscard]] Tensor like(const Tensor& x, const Tensor& other) const {
    return autocast_ == nullptr ? other : converted_like(x, other);
  }

  /// The kernels for tensors on the device of the first one, for one call that reads or writes all of them once:
  ///   op.run(kernels::pool_kernels, x, y)->max_pool(…);
  /// Throws what ByDevice::at() throws.
  template <class K, class... Others>
  [[nodiscard]] KernelRun<K> run(const ByDevice<K>& family, const Tensor& first, const Others&... others) const {
    return run(family, first.device(),
               [&] { return OpWork{.op = std::string(name_), .bytes = bytes_of(first, others...)}; });
  }
  /// As above; `work` is a function that returns the call's entry in a profile.
  template <class K, class Work>
  requires std::is_invocable_r_v<OpWork, const Work&>
  [[nodiscard]] KernelRun<K> run(const ByDevice<K>& family, Device device, const Work& work) const {
    return {family, name_, device, work};
  }

  /// What a trace notes of the op beside its tensors. Call it before record() or note().
  void describe(std::initializer_list<NamedAttribute> attributes) {
    if (is_tracing()) {
      keep(attributes);
    }
  }

  /// Puts the op on the tape, with `saved`, all tensors that backward will need, and returns its output. `backward` is
  /// a UnaryBackwardFunction. If nobody records or traces, it only returns the output.
  template <class F>
  Tensor record(TensorList inputs, Tensor output, TensorList saved, F&& backward) const {
    record(inputs, TensorList(output), saved, std::forward<F>(backward));
    return output;
  }
  /// As above, for an op with several outputs. `backward` may be a BackwardFunction.
  template <class F>
  void record(TensorList inputs, TensorList outputs, TensorList saved, F&& backward) const {
    if (!is_noted(inputs)) {
      return;
    }
    watch(inputs, outputs);
    record_node(name_, inputs, outputs, saved, backward_function(std::forward<F>(backward)));
  }
  /// True iff record() does anything for these inputs; for ops that prepare much for it.
  [[nodiscard]] static bool is_noted(TensorList inputs);
  /// For an op whose outputs have no gradient: they are noted, and not recorded.
  void note(TensorList inputs, TensorList outputs) const;

  /// As record(), for an op that has called check_in_place() and written into x. Its inputs are x before the change,
  /// and `others`.
  template <class F>
  void record_in_place(const Tensor& x, TensorList others, TensorList saved, F&& backward) const {
    x.bump_version();
    Tensors inputs{x};
    inputs.insert(inputs.end(), others.begin(), others.end());
    if (is_noted(inputs)) {
      watch(inputs, x);
      if (record_node(name_, inputs, x, saved, backward_function(std::forward<F>(backward)))) {
        x.storage()->note_recorded_change(x.impl().family);
      }
    }
  }

 private:
  void find_rule(std::string_view rule_of);
  [[nodiscard]] DType wanted_dtype() const;
  [[nodiscard]] Tensor converted_input(const Tensor& x) const;
  [[nodiscard]] Tensor converted_like(const Tensor& x, const Tensor& other) const;
  void keep(std::initializer_list<NamedAttribute> attributes);
  void watch(TensorList inputs, TensorList outputs) const;

  template <class F>
  static BackwardFunction backward_function(F&& backward) {
    if constexpr (std::is_invocable_v<F&, const Tensor&, const BackwardContext&>) {
      return [backward = std::forward<F>(backward)](const Tensors& gradients, const BackwardContext& context) {
        return backward(gradients[0], context);
      };
    } else {
      return std::forward<F>(backward);
    }
  }

  std::string_view name_;
  const detail::AutocastState* autocast_;
  CastRule rule_ = CastRule::keep;
  OpAttributes attributes_;
};

/// True iff ops are looked at one by one: a trace is on, or one that reads `inputs` would be recorded. An op that has
/// one kernel for several then calls them instead.
bool in_parts(TensorList inputs = {});

/// Says how `output`, the only output of the op recorded last, is computed again: offer_remake(). `remake` returns it.
template <class F>
void remake_by(const Tensor& output, F&& remake) {
  if (remakes_outputs()) {
    offer_remake(output, [remake = std::forward<F>(remake)](const BackwardContext& context) -> Tensors {
      return {remake(context)};
    });
  }
}

/// x with a place of its own on the tape, after x, and the same storage. Its gradient comes from its own uses alone.
Tensor identity(const Tensor& x);

/// The gradients of sum(f(inputs) · grad_outputs), for backward functions whose own derivative has no kernel. An input
/// whose gradient `context` does not want gets an undefined one. f is composed of differentiable ops and is called with
/// inputs on places of their own on the tape, so that each gradient is the partial one, also where one input depends on
/// another or both are the same tensor. An undefined input means none, an undefined grad_output zero. The results are
/// on the tape iff context.create_graph().
Tensors gradients_of_composed(const TensorFunction& f, const Tensors& inputs, const Tensors& grad_outputs,
                              const BackwardContext& context);

}  // namespace norma
