#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

namespace norma::cuda {

/// A piece of the host's memory that a device reads and writes by itself (pinned memory), with copies in the order of
/// the device's work.
class StagingBuffer {
 public:
  virtual ~StagingBuffer() = default;
  [[nodiscard]] virtual std::byte* data() = 0;
  /// Gives the device the copy of the first `bytes` bytes as work. Both return at once.
  virtual void copy_to_device(void* device, size_t bytes) = 0;
  virtual void copy_from_device(const void* device, size_t bytes) = 0;
  /// True iff the device has done the last copy that it was given, or was given none.
  [[nodiscard]] virtual bool is_done() const = 0;
  /// Waits until then.
  virtual void wait() = 0;
};

/// The source of a Staging's buffers: pinned memory, or a stand-in in tests.
class StagingMemory {
 public:
  virtual ~StagingMemory() = default;
  [[nodiscard]] virtual std::unique_ptr<StagingBuffer> make(size_t bytes) = 0;
};

/// Copies between the memory of the host and of a device, by way of buffers that are taken in turns.
///
/// from_host() copies to a buffer and returns: the device moves the bytes on when it comes to it, before all work that
/// it is given later. While the oldest buffer is not done there are more of them, up to `most`; only then does
/// from_host() wait. to_host() waits for its own bytes.
class Staging {
 public:
  /// `bytes`: of a buffer.
  Staging(StagingMemory& memory, size_t bytes, size_t most) : memory_(&memory), bytes_(bytes), most_(most) {}

  void from_host(void* device, const void* host, size_t bytes);
  void to_host(void* host, const void* device, size_t bytes);

 private:
  StagingBuffer& take();

  std::mutex mutex_;
  StagingMemory* memory_;
  size_t bytes_;
  size_t most_;
  std::deque<std::unique_ptr<StagingBuffer>> buffers_;  // the one that was taken last is the last
};

}  // namespace norma::cuda
