#pragma once

#include <dnnl.hpp>

#include "core/storage.h"
#include "ops/epilogue.h"

#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace norma::onednn {

// Norma's use of oneDNN. Only *_onednn.cpp files include this.

/// The CPU engine, one for the process.
const dnnl::engine& engine();

/// Throws OutOfMemory if the process cannot get some tens of megabytes more. Called before every primitive, since
/// oneDNN's code generator writes to memory without checking that it got any, which ends the program.
void ensure_room();
/// The number of times that it has thrown. Kept plans hold memory, too: their keeper drops them when this changes.
int64_t room_failures();

/// Throws oneDNN's error as OutOfMemory or as Error "op: oneDNN: …".
[[noreturn]] void fail_with(std::string_view op, const dnnl::error& error);

/// The epilogue of a primitive. `result` describes the result and the residual in memory, `scale` the scale.
dnnl::post_ops post_ops(const kernels::Epilogue& epilogue, const dnnl::memory::desc& result,
                        const dnnl::memory::desc& scale = {});
/// The arguments by which post_ops() takes the scale and the residual.
inline constexpr int kScale = DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;
inline int residual_argument(const kernels::Epilogue& epilogue) {
  return DNNL_ARG_ATTR_MULTIPLE_POST_OP(epilogue.scale == nullptr ? 0 : 1) | DNNL_ARG_SRC_1;
}

/// Attributes of every primitive: its scratchpad comes from us, since Debian's build would allocate one per primitive.
/// Throws what ensure_room() throws.
dnnl::primitive_attr attributes(const dnnl::post_ops& after = {});

/// A primitive with its memory objects, made once per shape and used with new pointers at every call. If the primitive
/// wants an operand in another layout than the caller's, it is reordered on the way in or out. Belongs to one thread.
class Plan {
 public:
  Plan(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad);

  /// Declares the next operand: `theirs` is the layout of the caller's memory, `ours` the primitive's.
  void add_input(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours);
  void add_output(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours);

  /// Runs with one pointer for each operand, in the order they were declared, and waits for the end. Null pointers
  /// after the third are passed over, for operands that were not declared; before, they are of operands without
  /// elements. `keep`, if given, is the storage of the second operand, the weights: reordered weights are kept there
  /// for the next call.
  void execute(std::initializer_list<const void*> pointers, Storage* keep);

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

/// The plans of one op, each by its key. Belongs to one thread.
template <class Key>
class Plans {
 public:
  /// Calls execute(pointers, keep) of the plan for a key; make() makes it at first. False if oneDNN has no such
  /// primitive. Throws oneDNN's errors in the name of `op`.
  template <class Make>
  bool execute(std::string_view op, const Key& key, Make&& make, std::initializer_list<const void*> pointers,
               Storage* keep) {
    try {
      Plan* const plan = find(key, make);
      if (plan != nullptr) {
        plan->execute(pointers, keep);
      }
      return plan != nullptr;
    } catch (const dnnl::error& error) {
      fail_with(op, error);
    }
  }

 private:
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

  std::map<Key, std::unique_ptr<Plan>> plans_;
  int64_t failures_ = 0;  ///< room_failures() when the oldest was made
};

}  // namespace norma::onednn
