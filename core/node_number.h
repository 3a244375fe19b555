#pragma once

#include <cstdint>

namespace norma {

/// The number that the next recorded op will have (Node::sequence, tape.h). What a thread records between two calls has
/// the numbers from the first to below the second.
uint64_t next_node_number();

}  // namespace norma
