#pragma once

#include "core/emulated/race_watch.h"

#include <cstddef>

namespace norma::emulated {

/// A function that runs on a stack of its own, and can be left and entered again in the middle.
class Fiber {
 public:
  using Body = void (*)(void* context);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next enter() begins `body`, which must not throw. A body that has not ended is dropped.
  void start(Body body, void* context);
  /// Says for the thread sanitizer which thread of a kernel the body is. Call it before start().
  void stand_for(WatchedThread& watched, int thread, int64_t block);
  /// Runs the body until it leaves or ends. Called from outside any fiber.
  void enter();
  /// Goes back to the caller of enter(). Called from inside the body.
  void leave();
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  static void run(Fiber* fiber);
  void switch_in();
  void switch_out();

  struct Stack;
  Stack* stack_;
  WatchedThread* watched_ = nullptr;
  Body body_ = nullptr;
  void* context_ = nullptr;
  bool ended_ = true;
};

}  // namespace norma::emulated
