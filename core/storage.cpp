#include "core/storage.h"

#include <algorithm>

namespace norma {

namespace {

/// The entry of a family, or rend(). It looks at the latest first, which is asked for most.
template <class Versions>
auto find_family(Versions& versions, uint64_t family) {
  return std::find_if(versions.rbegin(), versions.rend(), [&](const auto& entry) { return entry.first == family; });
}

}  // namespace

Storage::Storage(size_t bytes, Device device)
    : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device) {}

Storage::Storage(void* data, size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {}

Storage::~Storage() {
  if (release_) {
    release_();
  } else if (data_ != nullptr) {
    allocator(device_).deallocate(data_);
  }
}

void Storage::end_sharing() {
  ++ended_sharings_;
  --sharers_;
}

std::optional<int64_t> Storage::content() const {
  if (sharers_ > 0) {
    return std::nullopt;
  }
  return version_ + ended_sharings_;  // neither ever falls
}

void Storage::note_recorded_change(uint64_t family) {
  const std::lock_guard lock(mutex_);
  const auto known = find_family(recorded_versions_, family);
  if (known == recorded_versions_.rend()) {
    recorded_versions_.emplace_back(family, version());
  } else {
    known->second = version();
  }
  has_recorded_changes_ = true;
}

int64_t Storage::find_recorded_version(uint64_t family) const {
  const std::lock_guard lock(mutex_);
  const auto known = find_family(recorded_versions_, family);
  return known == recorded_versions_.rend() ? -1 : known->second;
}

}  // namespace norma
