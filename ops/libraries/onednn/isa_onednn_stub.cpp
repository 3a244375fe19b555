#include "ops/libraries/onednn/isa.h"

namespace norma::onednn {

Bfloat16Primitives bfloat16_primitives() {
  return {};
}

}  // namespace norma::onednn
