#include "core/autocast.h"

#include "core/base_ops.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"

#include <iterator>
#include <utility>

namespace norma {

namespace detail {
constinit thread_local const AutocastState* autocast_state = nullptr;
}

bool CastCache::Converted::is_current() const {
  return values.defined() && storage == parameter.storage() && content == storage->content();
}

/// Memory for the values: that of before, unless others see it or it lies otherwise.
void CastCache::Converted::make_room(DType dtype) {
  recorded = {};
  const Strides strides = preserved_strides(parameter.sizes(), parameter.strides());
  const bool fits = values.defined() && values.impl_pointer().use_count() == 1 && values.storage().use_count() == 1 &&
                    values.device() == parameter.device() && values.strides() == strides;
  if (!fits) {
    values = empty_strided(parameter.sizes(), strides, {.dtype = dtype, .device = parameter.device()});
  }
}

Tensor CastCache::get(const Tensor& parameter, DType dtype) {
  Converted& entry = entries_[{parameter.impl_pointer().get(), dtype}];
  entry.parameter = parameter;
  if (!entry.is_current()) {
    convert_changed();
  }
  if (!grad_enabled()) {
    return entry.values;
  }
  // A node that backward() has walked cannot be part of another graph; its values still serve.
  if (!entry.recorded.defined() || entry.recorded.impl().node->released) {
    entry.recorded = record_cast_of_leaf(parameter, entry.values.detach());
  }
  return entry.recorded;
}

/// Converts all parameters that have changed, and forgets those that nobody else has.
void CastCache::convert_changed() {
  const NoGradGuard no_grad;
  Tensors from;
  Tensors to;
  for (auto i = entries_.begin(); i != entries_.end();) {
    Converted& entry = i->second;
    const bool is_alone = entry.parameter.impl_pointer().use_count() == 1;
    if (!is_alone && !entry.is_current()) {
      entry.make_room(i->first.second);
      entry.storage = entry.parameter.storage();
      entry.content = entry.storage->content();
      from.push_back(entry.parameter.detach());
      to.push_back(entry.values);
    }
    i = is_alone ? entries_.erase(i) : std::next(i);
  }
  const OpScope scope([&] {
    OpWork work{.op = "to"};
    for (size_t i = 0; i < to.size(); ++i) {
      work.bytes += bytes_of(from[i], to[i]);
    }
    return work;
  });
  copy_all_into(from, to);
}

Tensor detail::converted(const Tensor& x, DType dtype, CastCache& cache) {
  if (x.dtype() == dtype) {
    return x;
  }
  // Parameters (leaves that ask for a gradient) are used more than once; others may change unseen.
  const bool is_kept = x.is_leaf() && x.requires_grad() && x.storage()->content().has_value();
  return is_kept ? cache.get(x, dtype) : cast(x, dtype);
}

Autocast::Autocast(DType dtype, CastPolicy policy, CastCache* cache)
    : policy_(std::move(policy)),
      own_cache_(detail::autocast_state == nullptr && cache == nullptr ? std::make_unique<CastCache>() : nullptr),
      state_{dtype, &policy_,
             own_cache_                          ? own_cache_.get()
             : detail::autocast_state == nullptr ? cache
                                                 : detail::autocast_state->cache},
      before_(detail::autocast_state) {
  check(is_half(dtype), "autocast", "dtype: expected bfloat16 or float16, got {}", to_string(dtype));
  detail::autocast_state = &state_;
}

Autocast::~Autocast() {
  detail::autocast_state = before_;
}

}  // namespace norma
