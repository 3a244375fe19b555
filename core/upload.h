#pragma once

#include "base/not_copied.h"
#include "core/event.h"
#include "core/tensor.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace norma {

/// The copies of an Upload. Each kind of device whose work is not done at once has a class of its own.
class UploadStream : NotCopied {
 public:
  UploadStream() = default;
  virtual ~UploadStream() = default;

  /// Copies memory of the host to the device, beside the device's other work, but not before the work that `after` saw.
  /// On return `host` is the caller's again, and all work that the device is given from then on sees the copy.
  virtual void copy(void* device, const void* host, size_t bytes, const DeviceEvent& after) = 0;
};

/// Brings tensors to a device while the device does the work that it was given before, such as the images of the next
/// step. It has a few blocks of memory there, which it uses in turns:
///   Upload upload(device);
///   Tensor next = upload(batch);
///   for (…) {
///     const Tensor images = std::exchange(next, {});
///     … the step: work for the device …
///     next = upload(the next batch);  // travels while the device makes the step
///   }
class Upload {
 public:
  explicit Upload(Device device);

  /// True iff the device works while copies are under way.
  [[nodiscard]] bool is_beside() const { return stream_ != nullptr; }
  /// As to_device(). When nobody holds the result or a view of it any more, its memory is used again.
  Tensor operator()(const Tensor& x);

 private:
  struct Block {
    std::shared_ptr<Storage> memory;
    std::unique_ptr<DeviceEvent> free;  ///< recorded after the last use of the block
    bool is_free = false;               ///< nobody holds the block, and `free` is recorded
  };

  /// A free block of enough bytes, or null.
  Block* find_free(size_t bytes);
  void note_free_blocks();
  Block* take_another(size_t bytes);

  Device device_;
  std::unique_ptr<UploadStream> stream_;  ///< null: the device's copies are done at once
  std::vector<Block> blocks_;
};

}  // namespace norma
