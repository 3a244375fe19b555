#include "ops/libraries/onednn/isa.h"

namespace norma::onednn {

std::string_view bfloat16_instructions() {
  return "";
}

}  // namespace norma::onednn
