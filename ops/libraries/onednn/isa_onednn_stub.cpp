#include "ops/libraries/onednn/isa.h"

namespace norma::onednn {

Bfloat16Support bfloat16_support() {
  return Bfloat16Support::none;
}

}  // namespace norma::onednn
