#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

// Finds races of kernels on the device cuda-emulated: tells the thread sanitizer which threads a GPU would have and
// what orders them. It is there in a program whose kernels are compiled and linked with -fsanitize=thread; Norma itself
// needs no other build. A race is reported with the lines of both accesses, their threads and blocks, and the exit code
// of the program is 66.
//
// Threads of a kernel are ordered by the launch before and behind it, and by barriers of their block. Shuffles order
// nothing, as on a GPU. The fibers that stand for the threads would order far more.

// sanitizer/tsan_interface.h declares these. They are null unless the sanitizer is linked.
extern "C" {  // NOLINTBEGIN(readability-identifier-naming): the names are not ours
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}  // NOLINTEND(readability-identifier-naming)

namespace norma::emulated {

/// True iff the program is linked with the thread sanitizer.
inline bool races_are_watched() {
  return __tsan_acquire != nullptr;
}

/// What the caller has done so far is before everything that a thread does behind its happened_before(token).
inline void happens_before(const void* token) {
  if (races_are_watched()) {
    __tsan_release(const_cast<void*>(token));
  }
}
inline void happened_before(const void* token) {
  if (races_are_watched()) {
    __tsan_acquire(const_cast<void*>(token));
  }
}

/// The sanitizer's record of one thread of a kernel. Each function does nothing where races are not watched.
class WatchedThread {
 public:
  WatchedThread() = default;
  ~WatchedThread();
  WatchedThread(WatchedThread&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
  WatchedThread& operator=(WatchedThread&&) = delete;

  /// Begins to run as this thread, on a stack whose former contents do not count.
  void begin(int thread, int64_t block, void* stack, size_t bytes);
  /// Call them before the stack is switched to the thread, and back.
  void enter();
  void leave();

 private:
  void* record_ = nullptr;
  void* outside_ = nullptr;
};

}  // namespace norma::emulated
