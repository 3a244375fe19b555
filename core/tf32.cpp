#include "core/tf32.h"

#include <atomic>

namespace norma {

namespace {
std::atomic<bool> allowed = false;
}

bool allow_tf32() {
  return allowed;
}
void set_allow_tf32(bool allow) {
  allowed = allow;
}

}  // namespace norma
