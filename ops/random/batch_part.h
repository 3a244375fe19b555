#pragma once

#include "base/not_copied.h"

#include <cstdint>

namespace norma {

/// The images of a batch that this process has, where others have the rest.
struct BatchPart {
  int64_t first = 0;   ///< the number of its first image in the whole batch
  int64_t images = 0;  ///< its images
  int64_t total = 0;   ///< those of the whole batch
};

/// While one lives, dropout() and drop_path() on this thread give the images of the part the numbers that these have
/// where one process has the whole batch, and the default generator ends where it ends there.
class BatchPartGuard : Temporarily<const BatchPart*> {
 public:
  explicit BatchPartGuard(const BatchPart& part);

 private:
  BatchPart part_;
};

/// The part of the living guard; null where there is none.
const BatchPart* current_batch_part();

}  // namespace norma
