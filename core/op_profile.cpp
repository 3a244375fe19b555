#include "core/op_profile.h"

#include <utility>

namespace norma {

std::string_view to_string(OpPass pass) {
  switch (pass) {
    case OpPass::forward: return "forward";
    case OpPass::backward: return "backward";
    case OpPass::optimizer: return "optimizer";
  }
  return "?";
}

double OpProfile::seconds() const {
  double total = 0;
  for (const OpRecord& record : records_) {
    total += record.seconds;
  }
  return total;
}

void OpScope::begin(OpWork work) {
  work_ = std::move(work);
  parent_ = std::exchange(profile_->open_, this);
  start_ = Clock::now();
}

void OpScope::end() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  profile_->open_ = parent_;
  if (discarded_) {
    return;
  }
  if (parent_ != nullptr) {
    parent_->inner_seconds_ += seconds;
  }
  profile_->records_.push_back(
      {.work = std::move(work_), .pass = profile_->pass_, .seconds = seconds - inner_seconds_});
}

void OpScope::set_implementation(std::string_view name) {
  const OpProfile* profile = OpProfile::active_;
  if (profile != nullptr && profile->open_ != nullptr) {
    profile->open_->work_.implementation = name;
  }
}

double bytes_of(const Tensor& x) {
  if (!x.defined()) {
    return 0;
  }
  auto bytes = static_cast<double>(size_of(x.dtype()));
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    bytes *= static_cast<double>(x.stride(axis) == 0 && x.size(axis) > 1 ? 1 : x.size(axis));
  }
  return bytes;
}

}  // namespace norma
