#pragma once

#include <cstdio>

namespace norma::train {

/// True iff a stream may get carriage returns and escape sequences: it is a terminal, and neither TERM (missing, empty
/// or "dumb") nor NO_COLOR (not empty, https://no-color.org) forbids it.
bool can_redraw(std::FILE* out);

}  // namespace norma::train
