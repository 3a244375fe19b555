#pragma once

#include "base/not_copied.h"

namespace norma {

/// True iff float32 convolutions and matrix products on CUDA may use TF32, which keeps 10 of each operand's 23 fraction
/// bits and is several times as fast on tensor cores. False at first. The setting holds for all threads.
bool allow_tf32();
void set_allow_tf32(bool allow);

/// Allows TF32, or forbids it, while it lives.
class Tf32Guard : NotCopied {
 public:
  explicit Tf32Guard(bool allow) : before_(allow_tf32()) { set_allow_tf32(allow); }
  ~Tf32Guard() { set_allow_tf32(before_); }

 private:
  bool before_;
};

}  // namespace norma
