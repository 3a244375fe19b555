#include "core/emulated/race_watch.h"

#include <fmt/format.h>

#include <sys/mman.h>

// As in the header.
extern "C" {  // NOLINTBEGIN(readability-identifier-naming): the names are not ours
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_set_fiber_name(void* fiber, const char* name);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
}  // NOLINTEND(readability-identifier-naming)

namespace norma::emulated {

namespace {
constexpr unsigned kWithoutOrder = 1;  // __tsan_switch_to_fiber_no_sync
}

WatchedThread::~WatchedThread() {
  if (record_ != nullptr) {
    __tsan_destroy_fiber(record_);
  }
}

void WatchedThread::begin(int thread, int64_t block, void* stack, size_t bytes) {
  if (!races_are_watched()) {
    return;
  }
  if (record_ == nullptr) {
    record_ = __tsan_create_fiber(0);
  }
  __tsan_set_fiber_name(record_, fmt::format("thread {} of block {}", thread, block).c_str());
  // The sanitizer forgets what it knows of memory that is mapped anew, and counts it as written unless that is ignored.
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  mmap(stack, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

void WatchedThread::enter() {
  if (record_ != nullptr) {
    outside_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(record_, kWithoutOrder);
  }
}
void WatchedThread::leave() {
  if (record_ != nullptr) {
    __tsan_switch_to_fiber(outside_, kWithoutOrder);
  }
}

}  // namespace norma::emulated
