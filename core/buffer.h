#pragma once

#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/sizes.h"

#include <cstddef>
#include <cstdint>

namespace norma {

/// Uninitialized working memory for `count` elements from the CPU allocator, given back at the end of the scope.
template <class T>
class Buffer : NotCopied {
 public:
  explicit Buffer(int64_t count)
      : data_(static_cast<T*>(
            allocator(kCpu).allocate(static_cast<size_t>(checked_mul("buffer", "count", count, int64_t{sizeof(T)}))))) {
  }
  ~Buffer() { allocator(kCpu).deallocate(data_); }

  [[nodiscard]] T* data() const { return data_; }

 private:
  T* data_;
};

}  // namespace norma
