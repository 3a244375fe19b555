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

TracePause::TracePause() : Temporarily(current, static_cast<Trace*>(nullptr)) {}

bool is_tracing() {
  return current != nullptr;
}

void trace_op(std::string_view op, TensorList inputs, TensorList outputs, const OpAttributes& attributes) {
  if (current != nullptr) {
    current->ops_.push_back({.op = std::string(op),
                             .inputs = Tensors(inputs.begin(), inputs.end()),
                             .outputs = Tensors(outputs.begin(), outputs.end()),
                             .attributes = attributes});
  }
}

}  // namespace norma
