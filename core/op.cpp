#include "core/op.h"

#include "core/anomaly.h"

namespace norma {
namespace {

bool is_convertible(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && x.dtype() != DType::float64;
}

}  // namespace

void Op::find_rule(std::string_view rule_of) {
  const std::optional<CastRule> own = autocast_->policy->find(name_);
  rule_ = own ? *own : rule_of.empty() ? CastRule::keep : autocast_->policy->rule(rule_of);
}

DType Op::wanted_dtype() const {
  return rule_ == CastRule::lower ? autocast_->dtype : DType::float32;
}

Tensor Op::converted_input(const Tensor& x) const {
  return rule_ == CastRule::keep || !is_convertible(x) ? x : detail::converted(x, wanted_dtype(), *autocast_->cache);
}

Tensor Op::converted_like(const Tensor& x, const Tensor& other) const {
  return is_convertible(other) && is_convertible(x) ? detail::converted(other, x.dtype(), *autocast_->cache) : other;
}

bool Op::is_noted(TensorList inputs) {
  return will_record(inputs) || is_tracing() || anomaly_enabled();
}

void Op::keep(std::initializer_list<NamedAttribute> attributes) {
  for (const auto& [name, value] : attributes) {
    attributes_.emplace(name, std::visit(
                                  []<class T>(const T& seen) -> OpAttribute {
                                    if constexpr (std::is_same_v<T, std::span<const int64_t>>) {
                                      return std::vector<int64_t>(seen.begin(), seen.end());
                                    } else if constexpr (std::is_same_v<T, const Tensor*>) {
                                      return *seen;
                                    } else if constexpr (std::is_same_v<T, std::string_view>) {
                                      return std::string(seen);
                                    } else {
                                      return seen;
                                    }
                                  },
                                  value));
  }
}

void Op::watch(TensorList inputs, TensorList outputs) const {
  // An op that took its first operand past input() would ignore the policy.
  if (rule_ != CastRule::keep && !inputs.empty() && is_convertible(inputs[0]) && inputs[0].dtype() != wanted_dtype()) {
    fail(name_, "expected an operand that input() has converted to {}, got {}", to_string(wanted_dtype()),
         norma::describe(inputs[0]));
  }
  if (anomaly_enabled()) {
    check_forward_is_finite(name_, outputs);
  }
  note(inputs, outputs);
}

void Op::note(TensorList inputs, TensorList outputs) const {
  trace_op(name_, inputs, outputs, attributes_);
}

bool in_parts(TensorList inputs) {
  return is_tracing() || will_record(inputs);
}

Tensor identity(const Tensor& x) {
  return Op("identity")
      .record({x}, alias(x, x.sizes(), x.strides(), x.offset()), {},
              [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
}

Tensors gradients_of_composed(const TensorFunction& f, const Tensors& inputs, const Tensors& grad_outputs,
                              const BackwardContext& context) {
  const GradModeGuard on(true);
  Tensors again(inputs.size());
  Tensors wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      continue;
    }
    const AnomalyPause pause;  // an input that is not finite, such as a mask, is no fault of this op
    again[i] = context.create_graph() ? identity(inputs[i]) : inputs[i].detach();
    if (context.needs_grad(i)) {
      wanted.push_back(context.create_graph() ? again[i] : again[i].set_requires_grad());
    }
  }
  const Tensors outputs = f(again);
  Tensors roots;
  Tensors starts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (grad_outputs[i].defined() && outputs[i].requires_grad()) {
      roots.push_back(outputs[i]);
      starts.push_back(grad_outputs[i]);
    }
  }
  Tensors result(inputs.size());
  if (roots.empty()) {
    return result;
  }
  const Tensors found = grad(roots, wanted, starts, {.create_graph = context.create_graph()});
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && context.needs_grad(i)) {
      result[i] = found[next++];
    }
  }
  return result;
}

}  // namespace norma
