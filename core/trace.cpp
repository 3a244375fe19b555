#include "core/trace.h"

#include "base/error.h"

namespace norma {

namespace {

thread_local Trace* current = nullptr;

}  // namespace

Trace::Trace() {
  check(current == nullptr, "trace", "expected no other trace on this thread");
  current = this;
}

Trace::~Trace() {
  current = nullptr;
}

TracePause::TracePause() : before_(std::exchange(current, nullptr)) {}

TracePause::~TracePause() {
  current = before_;
}

bool is_tracing() {
  return current != nullptr;
}

void describe_op(std::string_view op, OpAttributes attributes) {
  current->described_ = op;
  current->attributes_ = std::move(attributes);
}

void trace_op(std::string_view op, const Tensors& inputs, const Tensors& outputs) {
  if (current == nullptr) {
    return;
  }
  TracedOp traced{.op = std::string(op), .inputs = inputs, .outputs = outputs, .attributes = {}};
  if (current->described_ == op) {
    traced.attributes = std::move(current->attributes_);
    current->described_.clear();
  }
  current->ops_.push_back(std::move(traced));
}

}  // namespace norma
