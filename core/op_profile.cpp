#include "core/op_profile.h"

#include "base/error.h"

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

/// What a device does between two events.
struct OpProfile::Span {
  std::unique_ptr<DeviceEvent> start;
  std::unique_ptr<DeviceEvent> end;
  std::vector<std::shared_ptr<Span>> inside;  ///< those of the scopes opened directly inside

  [[nodiscard]] double whole() const { return end->seconds_since(*start); }
  [[nodiscard]] double own() const {
    double seconds = whole();
    for (const std::shared_ptr<Span>& span : inside) {
      seconds -= span->whole();
    }
    return seconds;
  }
};

OpProfile::OpProfile(Device device)
    : OpProfile(host_clock_will_do(device) ? MakeEvent() : [device] { return norma::make_event(device); }) {}

OpProfile::OpProfile(MakeEvent make_event) : before_(active_), make_event_(std::move(make_event)) {
  active_ = this;
}

OpProfile::~OpProfile() {
  active_ = before_;
}

const std::vector<OpRecord>& OpProfile::records() const {
  size_t record = records_.size() - new_.size();
  for (const std::shared_ptr<Span>& span : new_) {
    records_[record++].seconds = span->own();
  }
  new_.clear();
  return records_;
}

void OpProfile::clear() {
  records_.clear();
  new_.clear();
}

void OpProfile::enter_span() {
  auto span = std::make_shared<Span>();
  span->start = make_event_();
  span->end = make_event_();
  span->start->record();
  open_spans_.push_back(std::move(span));
}

bool OpProfile::leave_span(bool discarded) {
  const std::shared_ptr<Span> span = std::move(open_spans_.back());
  open_spans_.pop_back();
  if (!discarded) {
    try {
      span->end->record();
    } catch (const Error&) {  // a destructor is running: whoever uses the device next is told
      discarded = true;
    }
  }
  if (!open_spans_.empty()) {
    std::vector<std::shared_ptr<Span>>& around = open_spans_.back()->inside;
    if (discarded) {
      around.insert(around.end(), span->inside.begin(), span->inside.end());
    } else {
      around.push_back(span);
    }
  }
  if (!discarded) {
    new_.push_back(span);
  }
  return !discarded;
}

double OpProfile::seconds() const {
  double total = 0;
  for (const OpRecord& record : records()) {
    total += record.seconds;
  }
  return total;
}

void OpScope::begin(OpWork work) {
  work_ = std::move(work);
  if (profile_->make_event_) {
    profile_->enter_span();
  }
  parent_ = std::exchange(profile_->open_, this);
  start_ = Clock::now();
}

void OpScope::end() {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  profile_->open_ = parent_;
  if (profile_->make_event_ && !profile_->leave_span(discarded_)) {
    return;
  }
  if (parent_ != nullptr) {  // scopes inside a discarded one count as opened by the one around it
    parent_->inner_seconds_ += discarded_ ? inner_seconds_ : seconds;
  }
  if (discarded_) {
    return;
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
