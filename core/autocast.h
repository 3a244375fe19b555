#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma {

// Mixed precision. Parameters stay float32 (the master weights); while an Autocast is alive, each op of this thread
// first converts its inputs as a policy says, on the tape, so that the gradient of a parameter arrives in float32:
//
//   Tensor loss;
//   {
//     const Autocast autocast(DType::bfloat16);
//     loss = cross_entropy(model(images), labels);   // convolutions in bfloat16, the loss in float32
//   }
//   loss.backward();

/// How an op converts its inputs. float64, integers and bool are never converted.
enum class CastRule : uint8_t {
  lower,    ///< to the dtype of the Autocast: speed
  float32,  ///< to float32: range and accuracy
  keep,     ///< no conversion: the op computes in the dtype of its first input
};
/// A rule's name, "lower", "float32" or "keep", and the rule of a name. The second throws Error for another text.
std::string_view to_string(CastRule rule);
CastRule cast_rule_from_string(std::string_view name);

/// A rule for every op that calculates. (Ops that only move elements keep their dtype.) The op says its rule by default
/// where it says its name (core/op.h):
///   lower:    products, which are nearly all of the arithmetic: conv2d, linear, matmul,
///             scaled_dot_product_attention;
///   float32:  exponentials of differences, and terms that are averaged into a loss: softmax,
///             log_softmax, cross_entropy;
///   keep:     all others: norms (whose statistics and parameters are float32 in any case),
///             pointwise functions (which round once), pooling and reductions (whose sums are float64).
/// An op that needs one dtype for all operands converts the others, such as a weight, to that of the first.
class CastPolicy {
 public:
  /// Changes the rule of every op whose name matches a pattern of the shell: "batch_norm", "*_norm*".
  /// Throws Error for a pattern that matches no op.
  void set(std::string_view pattern, CastRule rule);
  /// Throws Error for a name that is not in ops().
  [[nodiscard]] CastRule rule(std::string_view op) const;
  /// The rule of an op; none for a name that is not in ops().
  [[nodiscard]] std::optional<CastRule> find(std::string_view op) const;
  /// The names of all ops, sorted: those of Norma, and those that the program or a plug-in names.
  [[nodiscard]] static std::vector<std::string> ops();
  /// Makes an op known, if it is not yet: of two rules the first stays. Always true. Only OpName (core/op.h) calls it,
  /// while the program or a plug-in is loaded; no other thread may run ops under autocast then.
  static bool add(std::string_view op, CastRule by_default);

  friend bool operator==(const CastPolicy&, const CastPolicy&) = default;

 private:
  std::map<std::string, CastRule, std::less<>> changed_;  // the rules that are not those by default
};

/// Keeps the converted parameters of an Autocast. A cache that outlives its Autocast serves the next one, too. When
/// get() finds a changed parameter, all parameters that have changed are converted together, in a launch or two on a
/// GPU. Only one thread at a time may use a cache.
class CastCache {
 public:
  /// The parameter, a leaf that requires a gradient, in `dtype`; on the tape if gradients are on.
  Tensor get(const Tensor& parameter, DType dtype);

 private:
  /// A converted parameter. It holds on to the parameter, so that no other tensor can take its address.
  struct Converted {
    Tensor parameter;
    std::shared_ptr<Storage> storage;
    std::optional<int64_t> content;
    Tensor values;    // off the tape
    Tensor recorded;  // the same memory, on the tape

    [[nodiscard]] bool is_current() const;
    void make_room(DType dtype);
  };
  void convert_changed();

  std::map<std::pair<const TensorImpl*, DType>, Converted> entries_;
};

namespace detail {
/// The settings of a thread's innermost Autocast.
struct AutocastState {
  DType dtype;
  const CastPolicy* policy;
  CastCache* cache;
};
/// The settings in force on this thread; nullptr: nothing is converted. core/op.h reads them.
extern constinit thread_local const AutocastState* autocast_state;
/// x in another dtype, from the cache if it is a parameter.
Tensor converted(const Tensor& x, DType dtype, CastCache& cache);
}  // namespace detail

/// Turns autocast on for this thread while it lives; an inner Autocast takes over until it ends. A parameter is
/// converted once: the result is kept until the parameter changes or the cache ends.
class Autocast : NotCopied {
 public:
  /// `cache`, which must outlive this, keeps the converted parameters; null: this Autocast has a cache of its own. An
  /// inner Autocast uses the outermost one's cache. Throws Error unless dtype is bfloat16 or float16.
  explicit Autocast(DType dtype = DType::bfloat16, CastPolicy policy = {}, CastCache* cache = nullptr);
  ~Autocast();

 private:
  CastPolicy policy_;
  std::unique_ptr<CastCache> own_cache_;  // null in an inner Autocast, and where one is given
  detail::AutocastState state_;
  const detail::AutocastState* before_;
};

/// Turns autocast off while it lives. backward() does that itself.
class AutocastOff : Temporarily<const detail::AutocastState*> {
 public:
  AutocastOff() : Temporarily(detail::autocast_state, nullptr) {}
};

inline bool autocast_enabled() {
  return detail::autocast_state != nullptr;
}

}  // namespace norma
