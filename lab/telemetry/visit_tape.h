#pragma once

#include "core/tape.h"

#include <functional>

namespace norma::lab {

/// Calls `visit` for the tape that leads to `roots`, and during each later backward() for every part of it that is
/// recorded again there (Node::is_part()), before that part is walked.
void visit_tape(const Tensors& roots, const std::function<void(const Tape& tape)>& visit);

}  // namespace norma::lab
