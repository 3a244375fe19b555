#include "core/parallel.h"

#include "core/range.h"

#include <omp.h>

#include <algorithm>

namespace norma {

/// The runtime ends the program when the system does not give it a thread, so that this has to be well below.
constexpr int kMaxThreads = 1024;

int num_threads() {
  return omp_get_max_threads();
}

void set_num_threads(int count) {
  check_range("set_num_threads", "count", count, Range<int>{1, kMaxThreads});
  omp_set_num_threads(count);
}

bool in_parallel() {
  return omp_in_parallel() != 0;
}

namespace detail {

void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction f, void* context) {
  const int64_t total = end - begin;
  const int64_t parts = std::min<int64_t>(num_threads(), std::max<int64_t>(1, total / std::max<int64_t>(grain, 1)));
  std::exception_ptr error;
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    // The runtime may give fewer threads than asked for.
    const int64_t threads = omp_get_num_threads();
    const int64_t thread = omp_get_thread_num();
    const int64_t first = begin + total * thread / threads;
    const int64_t last = begin + total * (thread + 1) / threads;
    try {
      if (first < last) {
        f(context, first, last);
      }
    } catch (...) {
#pragma omp critical(norma_parallel_for)
      if (!error) {
        error = std::current_exception();
      }
    }
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace detail
}  // namespace norma
