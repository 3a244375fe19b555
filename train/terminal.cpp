#include "train/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace norma::train {

namespace {

/// "" for a variable that is not set.
std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

bool can_redraw(std::FILE* out) {
  const std::string_view term = variable("TERM");
  return isatty(fileno(out)) == 1 && !term.empty() && term != "dumb" && variable("NO_COLOR").empty();
}

}  // namespace norma::train
