#include "core/parallel.h"

#include "base/range.h"
#include "core/allocator.h"
#include "core/cpu/host_memory.h"

#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace norma {

/// The runtime ends the program when the system does not give it a thread, so the limit is well below the system's.
constexpr int kMaxThreads = 1024;

namespace {

/// Throws OutOfMemory unless the stacks of so many threads have room.
void check_room(size_t threads, size_t stack) {
  const size_t bytes = threads * stack;
  if (bytes > 0 && !make_room(bytes)) {
    throw OutOfMemory(fmt::format("threads: the stacks of {} threads: {}", num_threads(),
                                  no_room_text(bytes, static_cast<size_t>(allocator(kCpu).statistics().allocated))));
  }
}

/// The bytes of addresses that the stack of one thread of the runtime takes; 0 in a process whose addresses are not
/// limited. The runtime (libgomp) tells nobody what OMP_STACKSIZE says, so that a thread of it is started and asked.
size_t limited_stack_bytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return 0;
  }
  size_t bytes = 0;
  pthread_attr_t defaults;
  if (pthread_getattr_default_np(&defaults) == 0) {
    pthread_attr_getstacksize(&defaults, &bytes);
    pthread_attr_destroy(&defaults);
  }
  check_room(1, bytes);
#pragma omp parallel num_threads(2)
  {
    pthread_attr_t attributes;
    if (omp_get_thread_num() == 1 && pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstacksize(&attributes, &bytes);
      pthread_attr_destroy(&attributes);
    }
  }
  return bytes;
}

/// True from a loop of this thread with all threads to the next loop of a library.
thread_local bool has_all_threads = false;

void use_threads(int count) {
  omp_set_num_threads(count);
  has_all_threads = false;
}

#if defined(__x86_64__)
constexpr unsigned kFlush = 0x8040;  // of MXCSR: FTZ and DAZ, results and operands

bool flushes() {
  return (_mm_getcsr() & kFlush) == kFlush;
}
void flush_in_this_thread(bool flush) {
  _mm_setcsr(flush ? _mm_getcsr() | kFlush : _mm_getcsr() & ~kFlush);
}
#else
bool flushes() {
  return false;
}
void flush_in_this_thread(bool /*flush*/) {}
#endif

/// Throws OutOfMemory unless the stacks of all threads have room or are there.
void ensure_threads() {
  if (has_all_threads || num_threads() == 1 || in_parallel()) {
    return;
  }
  static const size_t stack = limited_stack_bytes();
  check_room(static_cast<size_t>(num_threads() - 1), stack);
}

}  // namespace

int num_threads() {
  return omp_get_max_threads();
}

void set_num_threads(int count) {
  check_range("set_num_threads", "count", count, Range<int>{1, kMaxThreads});
  use_threads(count);
}

OneThread::OneThread() : before_(num_threads()) {
  use_threads(1);
}
OneThread::~OneThread() {
  use_threads(before_);
}

bool set_flush_denormal(bool flush) {
  parallel_for(0, num_threads(), 1, [&](int64_t, int64_t) { flush_in_this_thread(flush); });
  return flushes() == flush;
}

FlushDenormalGuard::FlushDenormalGuard() : before_(flushes()) {
  if (!before_) {
    set_flush_denormal(true);
  }
}
FlushDenormalGuard::~FlushDenormalGuard() {
  if (!before_) {
    try {
      set_flush_denormal(false);
    } catch (const OutOfMemory&) {  // no room for other threads
      flush_in_this_thread(false);
    }
  }
}

void before_library_loop() {
  ensure_threads();
  has_all_threads = false;
}

bool in_parallel() {
  return omp_in_parallel() != 0;
}

namespace detail {

void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction f, void* context) {
  const int64_t total = end - begin;
  const int64_t parts = std::min<int64_t>(num_threads(), std::max<int64_t>(1, total / std::max<int64_t>(grain, 1)));
  std::exception_ptr error;
  ensure_threads();
  // Asks for all threads, even if few get a part: after a smaller team the runtime (libgomp) ends the other threads and
  // starts new ones for the next larger team, which takes longer than most loops.
#pragma omp parallel
  {
    // The runtime may give fewer threads than asked for.
    const int64_t used = std::min<int64_t>(parts, omp_get_num_threads());
    const int64_t thread = omp_get_thread_num();
    const int64_t first = begin + total * thread / used;
    const int64_t last = begin + total * (thread + 1) / used;
    try {
      if (thread < used && first < last) {
        f(context, first, last);
      }
    } catch (...) {
#pragma omp critical(norma_parallel_for)
      if (!error) {
        error = std::current_exception();
      }
    }
  }
  has_all_threads = true;
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace detail
}  // namespace norma
