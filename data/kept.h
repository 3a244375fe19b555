#pragma once

#include "base/not_copied.h"

#include <pthread.h>

#include <memory>
#include <new>

namespace norma::data {

/// An object for each thread that asks for it, kept until the thread ends: buffers whose memory the next image uses
/// again. A thread_local object would end the program where memory is short, since glibc asks for some to note its
/// destructor; here std::bad_alloc is thrown.
template <class T>
class KeptByThread : NotCopied {
 public:
  KeptByThread() {
    if (pthread_key_create(&key_, [](void* kept) { delete static_cast<T*>(kept); }) != 0) {
      throw std::bad_alloc();
    }
  }
  ~KeptByThread() { pthread_key_delete(key_); }

  /// This thread's object.
  T& get() {
    auto* kept = static_cast<T*>(pthread_getspecific(key_));
    if (kept == nullptr) {
      auto made = std::make_unique<T>();
      if (pthread_setspecific(key_, made.get()) != 0) {
        throw std::bad_alloc();
      }
      kept = made.release();
    }
    return *kept;
  }

 private:
  pthread_key_t key_ = 0;
};

}  // namespace norma::data
