#include "base/error.h"
#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/buffer.h"
#include "core/cpu/host_memory.h"
#include "core/parallel.h"
#include "ops/libraries/onednn/isa.h"
#include "ops/libraries/onednn/onednn.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

namespace norma::onednn {

namespace {

/// Memory that grows to the largest request and is then used again and again.
class Workspace : NotCopied {
 public:
  ~Workspace() { allocator(kCpu).deallocate(data_); }

  std::byte* reserve(size_t bytes) {
    if (bytes > bytes_) {
      allocator(kCpu).deallocate(data_);
      data_ = nullptr;  // allocate() may throw
      bytes_ = 0;
      data_ = allocator(kCpu).allocate(bytes);
      bytes_ = bytes;
    }
    return static_cast<std::byte*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

std::byte* workspace(size_t bytes) {
  thread_local Workspace workspace;
  return workspace.reserve(bytes);
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(engine());
  return stream;
}

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Weights in the layouts that primitives have wanted so far.
class PackedWeights : public DerivedData {
 public:
  /// The memory behind `theirs` in the layout of `ours`.
  void* get(const dnnl::memory& theirs, dnnl::memory& ours, const dnnl::reorder& reorder, const dnnl::stream& stream) {
    const std::lock_guard lock(mutex_);
    for (const Packed& packed : packed_) {
      if (packed.source == theirs.get_data_handle() && packed.from == theirs.get_desc() &&
          packed.to == ours.get_desc()) {
        return packed.memory.data();
      }
    }
    std::list<Packed> made;
    made.emplace_back(theirs, ours);
    void* const data = made.back().memory.data();
    ours.set_data_handle(data);
    dnnl::reorder(reorder).execute(stream, const_cast<dnnl::memory&>(theirs), ours);
    packed_.splice(packed_.end(), made);  // only now: the reorder may fail
    return data;
  }

 private:
  struct Packed {
    Packed(const dnnl::memory& theirs, const dnnl::memory& ours)
        : source(theirs.get_data_handle()),
          from(theirs.get_desc()),
          to(ours.get_desc()),
          memory(static_cast<int64_t>(to.get_size())) {}
    const void* source;
    dnnl::memory::desc from, to;
    Buffer<std::byte> memory;
  };

  std::mutex mutex_;
  std::list<Packed> packed_;
};

std::atomic<int64_t> failures = 0;

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine engine = [] {
    limit_instruction_sets();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

int64_t room_failures() {
  return failures;
}

void ensure_room() {
  // A primitive generates tens of kernels, each in a buffer of a quarter of a megabyte.
  constexpr size_t kRoom = size_t{64} << 20U;
  if (!make_room(kRoom)) {
    ++failures;
    const int capacity = dnnl::get_primitive_cache_capacity();
    dnnl::set_primitive_cache_capacity(0);  // empties it
    dnnl::set_primitive_cache_capacity(capacity);
    const auto in_use = static_cast<size_t>(allocator(kCpu).statistics().allocated);
    throw OutOfMemory("oneDNN: " + no_room_text(kRoom, in_use));
  }
}

void fail_with(std::string_view op, const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) {
    throw OutOfMemory(fmt::format("{}: oneDNN: {}", op, error.what()));
  }
  fail(op, "oneDNN: {}", error.what());
}

namespace {

void append(dnnl::post_ops& after, dnnl::algorithm function, float alpha) {
#if DNNL_VERSION_MAJOR >= 3
  after.append_eltwise(function, alpha, 0);
#else
  after.append_eltwise(/* scale= */ 1, function, alpha, 0);
#endif
}

}  // namespace

dnnl::post_ops post_ops(const kernels::Epilogue& epilogue, const dnnl::memory::desc& result,
                        const dnnl::memory::desc& scale) {
  dnnl::post_ops after;
  if (epilogue.scale != nullptr) {
    after.append_binary(dnnl::algorithm::binary_mul, scale);
  }
  if (epilogue.residual != nullptr) {
    after.append_binary(dnnl::algorithm::binary_add, result);
  }
  switch (epilogue.activation) {
    case Activation::identity: break;
    case Activation::relu: append(after, dnnl::algorithm::eltwise_relu, 0); break;
    case Activation::gelu: append(after, dnnl::algorithm::eltwise_gelu_erf, 0); break;
    case Activation::silu: append(after, dnnl::algorithm::eltwise_swish, 1); break;
  }
  return after;
}

dnnl::primitive_attr attributes(const dnnl::post_ops& after) {
  ensure_room();
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

Plan::Plan(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad)
    : primitive_(std::move(primitive)), scratchpad_(scratchpad, engine(), nullptr) {
  workspace_bytes_ = aligned(scratchpad.get_size());
  arguments_[DNNL_ARG_SCRATCHPAD] = scratchpad_;
}

void Plan::add_input(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours) {
  add(argument, theirs, ours, /* is_output= */ false);
}

void Plan::add_output(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours) {
  add(argument, theirs, ours, /* is_output= */ true);
}

void Plan::add(int argument, const dnnl::memory::desc& theirs, const dnnl::memory::desc& ours, bool is_output) {
  Operand operand;
  operand.theirs = dnnl::memory(theirs, engine(), nullptr);
  operand.is_output = is_output;
  if (theirs == ours) {
    arguments_[argument] = operand.theirs;
  } else {
    ensure_room();
    operand.ours = dnnl::memory(ours, engine(), nullptr);
    operand.reorder =
        is_output ? dnnl::reorder(operand.ours, operand.theirs) : dnnl::reorder(operand.theirs, operand.ours);
    operand.offset = workspace_bytes_;
    workspace_bytes_ += aligned(ours.get_size());
    arguments_[argument] = operand.ours;
  }
  operands_.push_back(std::move(operand));
}

void Plan::execute(std::initializer_list<const void*> pointers, Storage* keep) {
  constexpr size_t kWeights = 1;
  constexpr size_t kAlwaysThere = 3;
  before_library_loop();
  std::byte* const memory = workspace(workspace_bytes_);
  scratchpad_.set_data_handle(memory);
  std::shared_ptr<PackedWeights> packed;
  const auto* pointer = pointers.begin();
  for (size_t i = 0; i < operands_.size(); ++i) {
    Operand& operand = operands_[i];
    if (i >= kAlwaysThere) {
      pointer = std::find_if(pointer, pointers.end(), [](const void* given) { return given != nullptr; });
    }
    operand.theirs.set_data_handle(const_cast<void*>(*pointer++));  // oneDNN's handles are not const
    if (operand.ours && i == kWeights && keep != nullptr) {
      packed = keep->derived<PackedWeights>();
      operand.ours.set_data_handle(packed->get(operand.theirs, operand.ours, operand.reorder, stream()));
    } else if (operand.ours) {
      operand.ours.set_data_handle(memory + operand.offset);
      if (!operand.is_output) {
        operand.reorder.execute(stream(), operand.theirs, operand.ours);
      }
    }
  }
  primitive_.execute(stream(), arguments_);
  for (Operand& operand : operands_) {
    if (operand.ours && operand.is_output) {
      operand.reorder.execute(stream(), operand.ours, operand.theirs);
    }
  }
  stream().wait();
}

}  // namespace norma::onednn
