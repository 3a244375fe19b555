#pragma once

#include "base/not_copied.h"

#include <cstddef>

namespace norma::emulated {

/// False where nobody may call Fiber::hand_over_to(): on other processors, and where the address sanitizer looks on.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHandsOver = true;
#else
inline constexpr bool kHandsOver = false;
#endif

/// A function that runs on a stack of its own, and can be left and entered again in the middle.
class Fiber : NotCopied {
 public:
  using Body = void (*)(void* context);

  Fiber();
  ~Fiber();

  /// The next enter() begins `body`, which must not throw. A body that has not ended is dropped.
  void start(Body body, void* context);
  /// Runs the body until it leaves or ends. Called from outside any fiber.
  void enter();
  /// Goes back to the caller of enter(). Called from inside the body.
  void leave();
  /// Goes on in `next`, which has been started, as if the caller of enter() had entered it instead. Called from inside
  /// the body.
  void hand_over_to(Fiber& next);
  [[nodiscard]] bool ended() const { return ended_; }
  /// True iff the address lies on the body's stack.
  [[nodiscard]] bool has_on_stack(const void* address) const;

 private:
  static void run(Fiber* fiber);
  void switch_in();
  void switch_out();

  struct Stack;
  Stack* stack_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  bool ended_ = true;
};

}  // namespace norma::emulated
