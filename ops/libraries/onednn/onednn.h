#pragma once

#include <dnnl.hpp>

#include "core/storage.h"
#include "ops/epilogue.h"

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace norma::onednn {

// How Norma drives oneDNN. Included by *_onednn.cpp files only.

/// The CPU engine, one for the process.
const dnnl::engine& engine();

/// Throws OutOfMemory where the process cannot get some tens of megabytes more. oneDNN's code generator writes to
/// memory without a look at whether it got any, which ends the program; hence this before every primitive.
void ensure_room();
/// How often that has thrown. Plans that are kept hold memory too: who keeps some drops them when this has changed.
int64_t room_failures();

/// Throws what oneDNN threw as OutOfMemory or Error "op: oneDNN: …".
[[noreturn]] void fail_with(std::string_view op, const dnnl::error& error);

/// What a primitive does with its result. `result`: how the result and the residual lie; `scale`: how the scale does.
dnnl::post_ops post_ops(const kernels::Epilogue& epilogue, const dnnl::memory::desc& result,
                        const dnnl::memory::desc& scale = {});
/// The arguments that post_ops() gives the scale and the residual.
inline constexpr int kScale = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;
inline int residual_argument(const kernels::Epilogue& epilogue) {
  return DNNL_ARG_ATTR_MULTIPLE_POST_OP(epilogue.scale == nullptr ? 0 : 1) | DNNL_ARG_SRC_1;
}

/// Attributes of every primitive: its scratchpad comes from us, since Debian's build would allocate one per primitive.
/// Throws as ensure_room().
dnnl::primitive_attr attributes(const dnnl::post_ops& after = {});

/// A primitive with its memory objects, made once per shape and used with new pointers at every call. Operands that the
/// primitive wants in another layout than the caller's are reordered on the way in or out. Belongs to one thread.
class Plan {
 public:
  Plan(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad);

  /// Declares the next operand: `theirs` is how the caller's memory lies, `ours` how the primitive wants it.
  void add_input(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours);
  void add_output(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours);

  /// Runs with one pointer for each operand, in the order they were declared, and waits for the end. The second
  /// operand, the weights, lies in `keep`, if that is given: reordered, they are kept there for the next call.
  void execute(std::span<void* const> pointers, Storage* keep = nullptr);

 private:
  struct Operand {
    dnnl::memory theirs;
    dnnl::memory ours;  // empty when both layouts are the same
    dnnl::reorder reorder;
    bool is_output = false;
    size_t offset = 0;  // of `ours` in the workspace
  };

  void add(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours, bool is_output);

  dnnl::primitive primitive_;
  dnnl::memory scratchpad_;
  std::vector<Operand> operands_;
  std::unordered_map<int, dnnl::memory> arguments_;
  size_t workspace_bytes_ = 0;
};

/// The plans of one op, by what they are made for. Belongs to one thread.
template <class Key>
class Plans {
 public:
  /// The plan for a key, from make() at first. nullptr where oneDNN has no such primitive.
  template <class Make>
  Plan* find(const Key& key, Make&& make) {
    constexpr size_t kMaxPlans = 1024;
    if (plans_.size() >= kMaxPlans || failures_ != room_failures()) {
      failures_ = room_failures();
      plans_.clear();
    }
    const auto found = plans_.find(key);
    if (found != plans_.end()) {
      return found->second.get();
    }
    std::unique_ptr<Plan> made;
    try {
      made = make();
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) {
        throw;
      }
    }
    return plans_.emplace(key, std::move(made)).first->second.get();
  }

 private:
  std::map<Key, std::unique_ptr<Plan>> plans_;
  int64_t failures_ = 0;  ///< room_failures() when the oldest was made
};

}  // namespace norma::onednn
