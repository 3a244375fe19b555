#pragma once

#include "base/not_copied.h"
#include "core/event.h"
#include "core/tensor.h"

#include <any>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace norma {

// The cost of a step's ops. Op::run() opens an OpScope for each kernel call, and an op whose calls are one entry opens
// it by itself. While an OpProfile is alive on the thread, each scope leaves a record. Without one it costs one load.

enum class OpPass : uint8_t { forward, backward, optimizer };
std::string_view to_string(OpPass pass);

/// A copy: how the elements lay before and after.
struct CopyCall {
  Sizes sizes;   ///< of the written elements
  Strides from;  ///< 0 along axes of size 1 that were broadcast
  Strides to;
  DType from_dtype = DType::float32;
  DType to_dtype = DType::float32;
  /// The value of next_node_number() at the copy: in a forward pass, the number of the copying op if it was recorded.
  uint64_t node = 0;
};

/// The work of one kernel call.
struct OpWork {
  std::string op;
  std::string implementation = "own";
  double bytes = 0;  ///< the fewest that must be read and written, each tensor once
  double flops = 0;  ///< of convolutions and matrix products; a multiplication and an addition are two
  /// The arguments in plain numbers, if any: a CopyCall, or a case of the family's kernels.h. With them benchmarks run
  /// convolutions and products again, and telemetry describes copies.
  std::any call = {};
};

struct OpRecord {
  OpWork work;
  OpPass pass = OpPass::forward;
  double seconds = 0;  ///< of the device, without the time of the scopes opened inside
};

class OpScope;

/// Collects what the ops of this thread report for as long as it lives. A second one on the same thread takes over
/// until it ends.
class OpProfile : NotCopied {
 public:
  using MakeEvent = std::function<std::unique_ptr<DeviceEvent>()>;

  /// Takes the ops' times on `device`: by the host's clock where that will do (core/event.h), else by events.
  explicit OpProfile(Device device = default_device());
  /// Takes the times by events of this function; by the host's clock if it is empty.
  explicit OpProfile(MakeEvent make_event);
  ~OpProfile();

  /// The records, in the order in which the scopes were left. Waits for the device if that took the times.
  [[nodiscard]] const std::vector<OpRecord>& records() const;
  /// The number of records. Does not wait.
  [[nodiscard]] size_t size() const { return records_.size(); }
  /// Forgets all records.
  void clear();
  /// Sum of all records' seconds. Waits as records() does.
  [[nodiscard]] double seconds() const;

 private:
  friend class OpScope;
  friend class OpPassGuard;
  struct Span;  // of a device's work
  static inline constinit thread_local OpProfile* active_ = nullptr;

  void enter_span();
  /// Returns false if the span is discarded, or if the device has failed.
  bool leave_span(bool discarded);

  OpProfile* before_;
  OpScope* open_ = nullptr;  // the innermost scope
  OpPass pass_ = OpPass::forward;
  MakeEvent make_event_;                            // empty: the host's clock takes the times
  std::vector<std::shared_ptr<Span>> open_spans_;   // the innermost last
  mutable std::vector<std::shared_ptr<Span>> new_;  // of the last records, whose seconds are not yet known
  mutable std::vector<OpRecord> records_;
};

/// Reports the work done during its life. `describe` returns an OpWork; it is only called while a profile is alive.
class OpScope : NotCopied {
 public:
  template <class Describe>
  requires std::is_invocable_r_v<OpWork, const Describe&>
  explicit OpScope(const Describe& describe) : profile_(OpProfile::active_) {
    if (profile_ != nullptr) {
      begin(describe());
    }
  }
  ~OpScope() {
    if (profile_ != nullptr) {
      end();
    }
  }

  /// Names the implementation that does the work of the innermost scope; for kernels that choose one by themselves.
  static void set_implementation(std::string_view name);
  /// Makes the scope report nothing, since the work was not done after all.
  void discard() { discarded_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  void begin(OpWork work);
  void end();

  OpProfile* profile_;
  OpScope* parent_ = nullptr;
  double inner_seconds_ = 0;
  bool discarded_ = false;
  OpWork work_;
  Clock::time_point start_;
};

/// Scopes opened during its life belong to `pass`.
class OpPassGuard : NotCopied {
 public:
  explicit OpPassGuard(OpPass pass) : profile_(OpProfile::active_) {
    if (profile_ != nullptr) {
      before_ = profile_->pass_;
      profile_->pass_ = pass;
    }
  }
  ~OpPassGuard() {
    if (profile_ != nullptr) {
      profile_->pass_ = before_;
    }
  }

 private:
  OpProfile* profile_;
  OpPass before_ = OpPass::forward;
};

/// Bytes of the distinct elements of x: an expanded axis counts once. 0 for an undefined tensor.
double bytes_of(const Tensor& x);

template <class... Tensors>
double bytes_of(const Tensor& first, const Tensor& second, const Tensors&... rest) {
  return bytes_of(first) + bytes_of(second, rest...);
}

}  // namespace norma
