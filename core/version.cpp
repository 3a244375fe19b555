#include "core/version.h"

namespace norma {

std::string_view version() {
  return NORMA_VERSION;
}

}  // namespace norma
