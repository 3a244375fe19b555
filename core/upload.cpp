#include "core/upload.h"

#include "core/copy.h"
#include "core/device_functions.h"
#include "core/memory_format.h"
#include "core/op_profile.h"

#include <algorithm>

namespace norma {

namespace {

/// One block is read by the step that runs, one by the step before, whose end the device has not reached, and one is
/// written.
constexpr size_t kBlocks = 3;

}  // namespace

Upload::Upload(Device device) : device_(device) {
  check_available("upload", device);
  const auto functions = device_functions.at("upload", device);
  if (functions->make_upload_stream != nullptr) {
    stream_ = functions->make_upload_stream();
  }
}

Tensor Upload::operator()(const Tensor& x) {
  check_defined("upload", "x", x);
  const auto bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype());
  if (stream_ == nullptr || x.device() != kCpu || bytes == 0) {
    return to_device(x, device_);
  }
  (void)device_functions.at("upload", device_);  // makes it the current one, to which events belong
  // A block that was free at the call before is free after the work before the last step, for which a copy need not
  // wait. So the blocks that are free by now are for the next call.
  Block* block = find_free(bytes);
  note_free_blocks();
  if (block == nullptr) {
    block = take_another(bytes);
  }
  if (block == nullptr) {
    return to_device(x, device_);
  }
  const Tensor dense = is_non_overlapping_and_dense(x) ? x : copy_of(x);
  Tensor result(block->memory, dense.sizes(), dense.strides(), /* offset= */ 0, dense.dtype());
  const OpScope scope([&] { return OpWork{.op = "upload", .bytes = bytes_of(x, result)}; });
  stream_->copy(block->memory->data(), dense.device_pointer(), bytes, *block->free);
  block->is_free = false;
  return result;
}

Upload::Block* Upload::find_free(size_t bytes) {
  const auto fits = [bytes](const Block& block) { return block.is_free && block.memory->bytes() >= bytes; };
  const auto found = std::ranges::find_if(blocks_, fits);
  return found == blocks_.end() ? nullptr : &*found;
}

/// A block that nobody holds is free after the work that the device has now.
void Upload::note_free_blocks() {
  for (Block& block : blocks_) {
    if (!block.is_free && block.memory.use_count() == 1) {
      block.free->record();
      block.is_free = true;
    }
  }
}

/// A block that is new, or that is free since now, or in the place of a smaller one. Null where all are held.
Upload::Block* Upload::take_another(size_t bytes) {
  if (blocks_.size() == kBlocks) {
    if (Block* const block = find_free(bytes)) {
      return block;
    }
    const auto smaller = std::ranges::find_if(blocks_, &Block::is_free);
    if (smaller == blocks_.end()) {
      return nullptr;
    }
    blocks_.erase(smaller);
  }
  Block& block = blocks_.emplace_back();
  block.memory = std::make_shared<Storage>(bytes, device_);
  block.free = device_functions.at("upload", device_)->make_event();
  block.free->record();  // work that the device was given earlier may still use the memory
  return &block;
}

}  // namespace norma
