#include "core/autocast.h"

#include "core/base_ops.h"
#include "core/copy.h"
#include "core/tape.h"

#include <unordered_map>
#include <utility>

namespace norma {

namespace detail {
constinit thread_local const AutocastState* autocast_state = nullptr;
}

/// Converted parameters. An entry holds on to its parameter, so that no other tensor can take its address.
class CastCache {
 public:
  Tensor get(const Tensor& parameter, DType dtype) {
    Entry& entry = entries_[{parameter.impl_pointer().get(), dtype}];
    if (!entry.values.defined() || entry.version != parameter.version() || entry.storage != parameter.storage()) {
      entry = {.parameter = parameter,
               .storage = parameter.storage(),
               .version = parameter.version(),
               .values = cast(parameter.detach(), dtype),
               .recorded = {}};
    }
    if (!grad_enabled()) {
      return entry.values;
    }
    // A node that backward() has walked cannot be part of another graph; its values still serve.
    if (!entry.recorded.defined() || entry.recorded.impl().node->released) {
      entry.recorded = record_cast(parameter, entry.values.detach());
    }
    return entry.recorded;
  }

 private:
  struct Entry {
    Tensor parameter;
    std::shared_ptr<Storage> storage;
    int64_t version = 0;
    Tensor values;    // off the tape
    Tensor recorded;  // the same memory, on the tape
  };
  using Key = std::pair<const TensorImpl*, DType>;
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.first) ^ (static_cast<size_t>(key.second) << 1U);
    }
  };

  std::unordered_map<Key, Entry, KeyHash> entries_;
};

namespace {

bool is_convertible(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && x.dtype() != DType::float64;
}

/// Keeps converted parameters (leaves that ask for a gradient) in the cache, since they are used more than once.
Tensor converted(const Tensor& x, DType dtype, CastCache& cache) {
  if (x.dtype() == dtype) {
    return x;
  }
  return x.is_leaf() && x.requires_grad() ? cache.get(x, dtype) : cast(x, dtype);
}

}  // namespace

Autocast::Autocast(DType dtype, CastPolicy policy)
    : policy_(std::move(policy)),
      own_cache_(detail::autocast_state == nullptr ? std::make_unique<CastCache>() : nullptr),
      state_{dtype, &policy_, own_cache_ ? own_cache_.get() : detail::autocast_state->cache},
      before_(detail::autocast_state) {
  check(is_half(dtype), "autocast", "dtype: expected bfloat16 or float16, got {}", to_string(dtype));
  detail::autocast_state = &state_;
}

Autocast::~Autocast() {
  detail::autocast_state = before_;
}

Tensor AutocastOp::converted_input(const Tensor& x) const {
  if (!is_convertible(x) || rule_ == CastRule::keep) {
    return x;
  }
  return converted(x, rule_ == CastRule::lower ? state_->dtype : DType::float32, *state_->cache);
}

Tensor AutocastOp::converted_like(const Tensor& other, const Tensor& x) const {
  return is_convertible(other) && is_convertible(x) ? converted(other, x.dtype(), *state_->cache) : other;
}

}  // namespace norma
