#pragma once

#include <cstdint>

namespace norma {

/// The number that the next recorded op will have (Node::sequence, tape.h). Ops that a thread records between two calls
/// have the numbers from the first result to just below the second.
uint64_t next_node_number();

}  // namespace norma
