#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
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
class Trace : NotCopied {
 public:
  Trace();
  ~Trace();

  [[nodiscard]] const std::vector<TracedOp>& ops() const { return ops_; }

 private:
  friend void trace_op(std::string_view op, TensorList inputs, TensorList outputs, const OpAttributes& attributes);

  std::vector<TracedOp> ops_;
};

/// While it lives, this thread's ops are not noted: for an op that is made of others, and is noted as one.
class TracePause : Temporarily<Trace*> {
 public:
  TracePause();
};

/// True iff this thread's ops are noted.
bool is_tracing();

/// Notes an op; core/op.h calls it. Nothing happens unless ops are noted.
void trace_op(std::string_view op, TensorList inputs, TensorList outputs, const OpAttributes& attributes);

}  // namespace norma
