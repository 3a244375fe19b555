#include "ops/random/batch_part.h"

#include <utility>

namespace norma {

namespace {

thread_local const BatchPart* current = nullptr;

}  // namespace

BatchPartGuard::BatchPartGuard(const BatchPart& part) : before_(std::exchange(current, &part_)), part_(part) {}
BatchPartGuard::~BatchPartGuard() {
  current = before_;
}

const BatchPart* current_batch_part() {
  return current;
}

}  // namespace norma
