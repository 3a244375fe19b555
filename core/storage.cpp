#include "core/storage.h"

#include <algorithm>

namespace norma {

Storage::Storage(size_t bytes, Device device)
    : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() {
  if (data_ != nullptr) {
    allocator(device_).deallocate(data_);
  }
}

void Storage::note_recorded_change(uint64_t family) {
  const std::lock_guard lock(mutex_);
  // The latest is asked for most.
  const auto known = std::find_if(recorded_versions_.rbegin(), recorded_versions_.rend(),
                                  [&](const auto& entry) { return entry.first == family; });
  if (known == recorded_versions_.rend()) {
    recorded_versions_.emplace_back(family, version());
  } else {
    known->second = version();
  }
  has_recorded_changes_ = true;
}

int64_t Storage::find_recorded_version(uint64_t family) const {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(recorded_versions_.begin(), recorded_versions_.end(),
                                  [&](const auto& entry) { return entry.first == family; });
  return known == recorded_versions_.end() ? -1 : known->second;
}

}  // namespace norma
