#pragma once

#include "core/tensor.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace norma {

// What ops did, in order, for programs that write a network down in another language (export/). The tape cannot serve:
// it knows nothing of constants, and its nodes keep what backward needs, not what the op was asked for.

/// A property of an op beside its inputs. Axes are not negative.
using OpAttribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, Tensor>;
using OpAttributes = std::map<std::string, OpAttribute, std::less<>>;

struct TracedOp {
  std::string op;
  Tensors inputs;  ///< some may be undefined
  Tensors outputs;
  OpAttributes attributes;
};

/// While it lives, this thread's ops are noted, and it keeps their tensors alive. Throws Error if this thread has
/// another Trace.
class Trace {
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  [[nodiscard]] const std::vector<TracedOp>& ops() const { return ops_; }

 private:
  friend void describe_op(std::string_view op, OpAttributes attributes);
  friend void trace_op(std::string_view op, const Tensors& inputs, const Tensors& outputs);

  std::vector<TracedOp> ops_;
  std::string described_;  // the op that attributes_ are for
  OpAttributes attributes_;
};

/// While it lives, this thread's ops are not noted: for an op that is made of others, and is noted as one.
class TracePause {
 public:
  TracePause();
  ~TracePause();
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  Trace* before_;
};

/// True iff this thread's ops are noted. The norms of ops/map_norm/ and linear_act() are then computed by the ops that
/// they are made of, not by kernels of their own.
bool is_tracing();

/// Sets the attributes of the next op of this name. Call it only while ops are noted.
void describe_op(std::string_view op, OpAttributes attributes);
/// As above, at any time. `attributes` is a function that returns them; it is called only while ops are noted.
template <class F>
void describe(std::string_view op, F&& attributes) {
  if (is_tracing()) {
    describe_op(op, std::forward<F>(attributes)());
  }
}

/// Every op that record() does not see calls this; nothing happens unless ops are noted.
void trace_op(std::string_view op, const Tensors& inputs, const Tensors& outputs);

/// Sizes, strides or axes as an attribute.
template <class Range>
std::vector<int64_t> attribute(const Range& range) {
  return {range.begin(), range.end()};
}

}  // namespace norma
