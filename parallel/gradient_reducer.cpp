#include "parallel/gradient_reducer.h"

#include "core/base_ops.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/memory_format.h"
#include "core/tape.h"

#include <algorithm>
#include <utility>

namespace norma::parallel {

GradientReducer::GradientReducer(ProcessGroup& group, Tensors parameters, const GradientReducerOptions& options)
    : group_(group), parameters_(std::move(parameters)), options_(options) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    numbers_[&parameters_[i].impl()] = i;
    if (parameters_[i].dtype() == DType::float64) {
      dtype_ = DType::float64;
    }
  }
}

void GradientReducer::take(const Tensor& leaf, const Tensor& gradient) {
  const auto number = numbers_.find(&leaf.impl());
  if (number == numbers_.end() || !gradient.defined()) {
    return;
  }
  if (buckets_.empty()) {
    seen_.push_back(number->second);
    return;
  }
  put(number->second, gradient);
  send_what_is_whole();
}

void GradientReducer::finish() {
  const NoGradGuard no_grad;
  if (buckets_.empty()) {
    make_buckets(agreed_order());
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!places_[i].is_there) {
      put(i, {});  // .grad has all that there is
    }
  }
  send_what_is_whole();
  for (Bucket& bucket : buckets_) {
    bucket.work->wait();
    const auto count = static_cast<int64_t>(bucket.parameters.size());
    const std::vector<double> ranks =
        alias(bucket.memory, {count}, {1}, bucket.numel).to_vector<double>();  // that have each gradient
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      Tensor& parameter = parameters_[bucket.parameters[i]];
      if (ranks[i] == 0) {
        continue;
      }
      if (!parameter.grad().defined()) {
        parameter.set_grad(empty_strided(parameter.sizes(), parameter.strides(),
                                         {.dtype = parameter.dtype(), .device = parameter.device()}));
      }
      copy_into(place_of(bucket, i), parameter.grad());
    }
  }
  reset();
}

void GradientReducer::reset() {
  for (Bucket& bucket : buckets_) {
    bucket.work = nullptr;  // waits where it is under way
    bucket.missing = bucket.parameters.size();
  }
  for (Place& place : places_) {
    place.is_there = false;
  }
  sent_ = 0;
  seen_.clear();
}

std::vector<size_t> GradientReducer::agreed_order() const {
  std::vector<size_t> order = seen_;
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (std::ranges::find(seen_, i) == seen_.end()) {
      order.push_back(i);
    }
  }
  const std::vector<int64_t> own(order.begin(), order.end());
  const Tensor first = from_vector(own, {static_cast<int64_t>(own.size())}, {.dtype = DType::int64, .device = kCpu});
  group_.broadcast(first);
  const std::vector<int64_t> numbers = first.to_vector<int64_t>();
  return {numbers.begin(), numbers.end()};
}

void GradientReducer::make_buckets(const std::vector<size_t>& order) {
  places_.resize(parameters_.size());
  const auto bytes = static_cast<int64_t>(size_of(dtype_));
  for (const size_t parameter : order) {
    if (buckets_.empty() || buckets_.back().numel * bytes >= options_.bucket_bytes) {
      buckets_.emplace_back();
    }
    Bucket& bucket = buckets_.back();
    places_[parameter] = {.bucket = buckets_.size() - 1, .index = bucket.parameters.size()};
    bucket.parameters.push_back(parameter);
    bucket.places.push_back(bucket.numel);
    bucket.numel += parameters_[parameter].numel();
  }
  for (Bucket& bucket : buckets_) {
    const auto count = static_cast<int64_t>(bucket.parameters.size());
    bucket.missing = bucket.parameters.size();
    bucket.memory =
        empty({bucket.numel + count}, {.dtype = dtype_, .device = parameters_[bucket.parameters.front()].device()});
  }
}

Tensor GradientReducer::place_of(const Bucket& bucket, size_t i) const {
  const Tensor& parameter = parameters_[bucket.parameters[i]];
  return alias(bucket.memory, parameter.sizes(), parameter.strides(), bucket.places[i]);
}

/// The place of a gradient gets .grad, if any, and `gradient`, if any.
void GradientReducer::put(size_t parameter, const Tensor& gradient) {
  const NoGradGuard no_grad;
  Place& number = places_[parameter];
  Bucket& bucket = buckets_[number.bucket];
  const Tensor place = place_of(bucket, number.index);
  const Tensor before = parameters_[parameter].grad();
  const Tensor there = alias(bucket.memory, {1}, {1}, bucket.numel + static_cast<int64_t>(number.index));
  fill_(there, before.defined() || gradient.defined() ? 1 : 0);
  if (before.defined() && gradient.defined()) {  // added in the dtype of the parameter, as in one process
    const Tensor total =
        empty_strided(before.sizes(), before.strides(), {.dtype = before.dtype(), .device = before.device()});
    copy_into(before, total);
    accumulate_into(total, converted(gradient, before.dtype()));
    copy_into(total, place);
  } else if (before.defined() || gradient.defined()) {
    copy_into(before.defined() ? before : gradient, place);
  } else {
    zero_(place);
  }
  number.is_there = true;
  --bucket.missing;
}

/// In the order of the buckets, since all ranks must send the same.
void GradientReducer::send_what_is_whole() {
  while (sent_ < buckets_.size() && buckets_[sent_].missing == 0) {
    buckets_[sent_].work = group_.begin_all_reduce(buckets_[sent_].memory);
    ++sent_;
  }
}

}  // namespace norma::parallel
