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

  /// Gathers the x (k) of every process, in the order of the processes: (processes, k). All processes must call it,
  /// with the same k and dtype.
  [[nodiscard]] virtual Tensor all_gather(const Tensor& x) const = 0;
};

}  // namespace norma
