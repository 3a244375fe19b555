#pragma once

#include "core/tensor.h"

namespace norma {

/// A batch that several processes share, each of which has some of its images, or none.
class PartsOfBatch {
 public:
  PartsOfBatch() = default;
  virtual ~PartsOfBatch() = default;
  PartsOfBatch(const PartsOfBatch&) = delete;
  PartsOfBatch& operator=(const PartsOfBatch&) = delete;

  /// The tensors (k) that the processes call this with, in their order: (processes, k). All of them must call it.
  [[nodiscard]] virtual Tensor all_gather(const Tensor& x) const = 0;
};

}  // namespace norma
