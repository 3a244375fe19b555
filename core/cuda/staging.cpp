#include "core/cuda/staging.h"

#include "core/allocator.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace norma::cuda {

void Staging::from_host(void* device, const void* host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* to = static_cast<std::byte*>(device);
  const auto* from = static_cast<const std::byte*>(host);
  for (size_t done = 0; done < bytes; done += bytes_) {
    const size_t count = std::min(bytes_, bytes - done);
    StagingBuffer& buffer = take();
    std::memcpy(buffer.data(), from + done, count);
    buffer.copy_to_device(to + done, count);
  }
}

void Staging::to_host(void* host, const void* device, size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto* to = static_cast<std::byte*>(host);
  const auto* from = static_cast<const std::byte*>(device);
  // While the host empties one buffer, the device fills the next.
  StagingBuffer* before = nullptr;
  size_t done = 0;
  for (size_t begin = 0; begin < bytes || before != nullptr; begin += bytes_) {
    StagingBuffer* next = nullptr;
    if (begin < bytes) {
      next = &take();
      next->copy_from_device(from + begin, std::min(bytes_, bytes - begin));
    }
    if (before != nullptr) {
      const size_t count = std::min(bytes_, bytes - done);
      before->wait();
      std::memcpy(to + done, before->data(), count);
      done += count;
    }
    before = next;
  }
}

/// Returns the oldest buffer once it is done with its last copy, or a new one. Waiting is what is left, too, where the
/// host gives no memory for a new one.
StagingBuffer& Staging::take() {
  constexpr size_t kLeast = 2;  // for to_host()
  const bool is_free = buffers_.size() >= kLeast && buffers_.front()->is_done();
  if (!is_free && buffers_.size() < std::max(kLeast, most_)) {
    try {
      buffers_.push_back(memory_->make(bytes_));
      return *buffers_.back();
    } catch (const OutOfMemory&) {
      if (buffers_.size() < kLeast) {
        throw;
      }
      most_ = buffers_.size();
    }
  }
  std::unique_ptr<StagingBuffer> oldest = std::move(buffers_.front());
  buffers_.pop_front();
  buffers_.push_back(std::move(oldest));
  buffers_.back()->wait();
  return *buffers_.back();
}

}  // namespace norma::cuda
