#include "core/allocator.h"
#include "ops/onednn/onednn.h"

#include <utility>

namespace norma::onednn {

namespace {

/// Memory that grows to the largest request and is then used again and again.
class Workspace {
 public:
  Workspace() = default;
  ~Workspace() { allocator(kCpu).deallocate(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

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

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
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
    operand.ours = dnnl::memory(ours, engine(), nullptr);
    operand.reorder =
        is_output ? dnnl::reorder(operand.ours, operand.theirs) : dnnl::reorder(operand.theirs, operand.ours);
    operand.offset = workspace_bytes_;
    workspace_bytes_ += aligned(ours.get_size());
    arguments_[argument] = operand.ours;
  }
  operands_.push_back(std::move(operand));
}

void Plan::execute(std::span<void* const> pointers) {
  std::byte* const memory = workspace(workspace_bytes_);
  scratchpad_.set_data_handle(memory);
  for (size_t i = 0; i < operands_.size(); ++i) {
    Operand& operand = operands_[i];
    operand.theirs.set_data_handle(pointers[i]);
    if (operand.ours) {
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
