#include "lab/telemetry/visit_tape.h"

#include <utility>

namespace norma::lab {

namespace {

void visit_part(const Tensors& roots, uint64_t first, const std::function<void(const Tape& tape)>& visit) {
  const Tape part(roots, first);
  for (const std::shared_ptr<Node>& node : part.nodes()) {
    if (node->is_part()) {
      node->recompute = [visit, inner = std::move(node->recompute)](const BackwardContext& context) {
        const uint64_t begin = next_node_number();
        Tensors outputs = inner(context);
        visit_part(outputs, begin, visit);
        return outputs;
      };
    }
  }
  visit(part);
}

}  // namespace

void visit_tape(const Tensors& roots, const std::function<void(const Tape& tape)>& visit) {
  visit_part(roots, /* first= */ 0, visit);
}

}  // namespace norma::lab
