#pragma once

#include <cstdio>

namespace norma::train {

/// True iff what is written there may use carriage returns and escape sequences: it is a terminal, and neither TERM
/// (missing, empty or "dumb") nor NO_COLOR (not empty, https://no-color.org) says otherwise.
bool can_redraw(std::FILE* out);

}  // namespace norma::train
