#pragma once

namespace norma::train {

/// True iff work shall end before its end: somebody has asked for it, as signals do (session/interrupt.h). Loops look
/// once a step. Between StopFlag::share(true) and share(false) it becomes true in all processes together, at settle().
bool interrupted();
/// The signal that asked; 0 if none did.
int interrupting_signal();

/// The flag behind interrupted(), for those who set it.
class StopFlag {
 public:
  /// Asks for the end. Returns false if that was done before: the first signal stays. Signal handlers may call it.
  static bool ask(int signal);
  static void withdraw();
  /// True iff this process was asked.
  static bool is_pending();
  /// Whether processes that work together ask together: then a signal counts when settle() says so, which all of them
  /// call at the same places.
  static void share(bool together);
  /// `any`: some process was asked.
  static void settle(bool any);
};

}  // namespace norma::train
