#include "core/storage.h"

namespace norma {

Storage::Storage(size_t bytes, Device device)
    : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() {
  if (data_ != nullptr) {
    allocator(device_).deallocate(data_);
  }
}

}  // namespace norma
