// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_NORM_CPU_WEIGHT_GRADIENTS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_WEIGHT_GRADIENTS_H
#undef NORMA_OPS_NORM_CPU_WEIGHT_GRADIENTS_H
#else
#define NORMA_OPS_NORM_CPU_WEIGHT_GRADIENTS_H
#endif

#include "core/cpu/scratch.h"
#include "core/parallel.h"
#include "core/simd/targets.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

// Sums of weight gradients.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// The number of parts must not depend on the number of threads.
inline constexpr int64_t kMaxPartials = 64;

/// dweight and dbias in parts: each fixed block of work adds to its own part, and the parts are added in order at the
/// end, so that the bits do not depend on the number of threads.
class WeightGradients {
 public:
  /// `wanted`: if false, every function does nothing.
  WeightGradients(Scratch& scratch, bool wanted, int64_t parts, int64_t size)
      : size_(size), parts_(parts), sums_(wanted ? scratch.zeros<double>(2 * parts * size) : nullptr) {}

  [[nodiscard]] bool wanted() const { return sums_ != nullptr; }
  /// Null where gradients are not wanted.
  [[nodiscard]] double* dweight(int64_t part) const { return wanted() ? sums_ + 2 * part * size_ : nullptr; }
  [[nodiscard]] double* dbias(int64_t part) const { return wanted() ? dweight(part) + size_ : nullptr; }

  /// Writes the totals; either pointer may be null.
  template <class T>
  void total(T* dweight_out, T* dbias_out) const {
    if (!wanted()) {
      return;
    }
    parallel_for(0, size_, std::max<int64_t>(1, kPointwiseGrain / parts_), [&](int64_t begin, int64_t end) {
      Scratch scratch;
      double* total = scratch.take<double>(end - begin);
      const auto write = [&](T* out, int64_t offset) {
        if (out == nullptr) {
          return;
        }
        std::fill_n(total, end - begin, 0.0);
        for (int64_t part = 0; part < parts_; ++part) {
          const double* sums = dweight(part) + offset + begin;
          for (int64_t i = 0; i < end - begin; ++i) {
            total[i] += sums[i];
          }
        }
        for (int64_t i = begin; i < end; ++i) {
          out[i] = static_cast<T>(total[i - begin]);
        }
      };
      write(dweight_out, 0);
      write(dbias_out, size_);
    });
  }

 private:
  int64_t size_;
  int64_t parts_;
  double* sums_;
};

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
