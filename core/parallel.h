#pragma once

#include "base/not_copied.h"

#include <cstdint>
#include <exception>
#include <utility>

namespace norma {

/// The number of threads of a parallel loop. It starts as OMP_NUM_THREADS, or the number of cores.
int num_threads();
/// Throws Error unless 1 <= count <= 1024.
void set_num_threads(int count);
/// This thread's loops, and those of libraries, have one thread while it lives. The bits of a task then do not depend
/// on the number of threads.
class OneThread : NotCopied {
 public:
  OneThread();
  /// Restores any number: OMP_NUM_THREADS may be one that set_num_threads() refuses.
  ~OneThread();

 private:
  int before_;
};
/// Takes subnormal numbers for 0 (below 1.2e-38 in float32) as operands and results, in this thread and those of its
/// parallel loops, or keeps them as IEEE 754 does. A processor may take a hundred times as long for an instruction that
/// meets one. Threads that start later do as the one that starts them. Returns false where the processor cannot do
/// so: others than x86-64 keep subnormal numbers. Throws OutOfMemory, and changes nothing, where the stacks of the
/// threads have no room.
bool set_flush_denormal(bool flush);
/// Subnormal numbers are 0 while it lives: set_flush_denormal(true), and as before at its end.
class FlushDenormalGuard : NotCopied {
 public:
  FlushDenormalGuard();
  ~FlushDenormalGuard();

 private:
  bool before_;
};
/// Call this before a library runs parallel loops of its own. In a process whose addresses are limited (ulimit -v) it
/// throws OutOfMemory unless the stacks of all threads have room. Otherwise the OpenMP runtime (libgomp) would end the
/// program when it cannot start a thread. It starts threads again and again: a loop of a library may use fewer threads
/// than there are; the runtime then ends the others, and starts new ones for the next larger loop. Loops of Norma
/// always use all threads, so that the runtime keeps them.
void before_library_loop();
/// True inside parallel_for: a nested loop then runs on its thread alone.
bool in_parallel();

namespace detail {
using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction f, void* context);
}  // namespace detail

/// Elements below which a pointwise loop is not worth a second thread.
inline constexpr int64_t kPointwiseGrain = 16384;

/// Calls f(first, last) on consecutive parts of [begin, end), one per thread, none shorter than `grain` unless it
/// is the only one. Where parts begin depends on the number of threads: a sum whose bits must not
/// depend on it has to be cut into fixed blocks by the caller. The first exception is thrown again.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& f) {
  if (end - begin <= grain || num_threads() == 1 || in_parallel()) {
    if (begin < end) {
      f(begin, end);
    }
    return;
  }
  auto call = [](void* context, int64_t first, int64_t last) {
    (*static_cast<std::remove_reference_t<F>*>(context))(first, last);
  };
  detail::parallel_for(begin, end, grain, call, const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace norma
