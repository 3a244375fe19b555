#include "train/ema.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

namespace norma::train {

double Ema::decay(int64_t update) const {
  const int64_t step = update - 1;
  if (step <= 0) {
    return 0;
  }
  if (!options_.warmup) {
    return options_.decay;
  }
  constexpr double kPower = 2.0 / 3;
  return std::min(1 - std::pow(1 + static_cast<double>(step), -kPower), options_.decay);
}

namespace {

/// x's values in the dtype and strides of `other`.
Tensor like(const Tensor& x, const Tensor& other) {
  const Tensor result = empty_like(other);
  copy_into(x, result);
  return result;
}

}  // namespace

void Ema::update(const nn::NamedTensors& values, int64_t update) {
  const NoGradGuard no_grad;
  check(update == 1 || !averages_.empty(), "ema", "update: expected 1, as there was none before, got {}", update);
  const double kept = decay(update);
  if (averages_.empty() || kept == 0) {
    averages_.clear();
    for (const auto& [name, x] : values) {
      const DType dtype = is_floating(x.dtype()) ? compute_dtype(x.dtype()) : x.dtype();
      averages_.emplace_back(name, copy_of(x.detach(), MemoryFormat::preserve, dtype));
    }
    return;
  }
  average(values, full({}, 1 - kept, {.dtype = DType::float64, .device = averages_[0].second.device()}), Tensor());
}

void Ema::set_share(int64_t update) {
  const Device device = averages_.at(0).second.device();
  if (!share_.defined() || share_.device() != device) {
    share_ = empty({}, {.dtype = DType::float64, .device = device});
  }
  copy_from_host(scalar(1 - decay(update), DType::float64, kCpu), share_);
}

void Ema::record_update(const nn::NamedTensors& values, const Tensor& guard) {
  const NoGradGuard no_grad;
  average(values, share_, guard);
}

void Ema::average(const nn::NamedTensors& values, const Tensor& share, const Tensor& guard) {
  check(values.size() == averages_.size(), "ema", "values: expected the {} tensors of before, got {}", averages_.size(),
        values.size());
  Tensors averages;
  Tensors now;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& average = averages_[i].second;
    const Tensor value = values[i].second.detach();
    check(values[i].first == averages_[i].first, "ema", "values: expected '{}', got '{}'", averages_[i].first,
          values[i].first);
    if (options_.constant.contains(values[i].first)) {
      continue;
    }
    const bool lies_alike = value.dtype() == average.dtype() && value.strides() == average.strides();
    averages.push_back(average);
    now.push_back(lies_alike ? value : like(value, average));
  }
  average_into(averages, now, share, guard);
}

void Ema::load(const nn::NamedTensors& saved, const nn::NamedTensors& like) {
  std::unordered_map<std::string, Tensor> given(saved.begin(), saved.end());
  nn::NamedTensors averages;
  std::vector<std::string> problems;
  for (const auto& [name, x] : like) {
    const auto found = given.find(name);
    if (found == given.end()) {
      problems.push_back(fmt::format("missing: {}", name));
      continue;
    }
    if (!(found->second.sizes() == x.sizes())) {
      problems.push_back(
          fmt::format("{}: expected sizes {}, got {}", name, to_string(x.sizes()), to_string(found->second.sizes())));
    } else {
      const DType dtype = is_floating(x.dtype()) ? compute_dtype(x.dtype()) : x.dtype();
      const Tensor average =
          empty_strided(x.sizes(), preserved_strides(x.sizes(), x.strides()), {.dtype = dtype, .device = x.device()});
      copy_into(found->second, average);
      averages.emplace_back(name, average);
    }
    given.erase(found);
  }
  for (const auto& [name, x] : saved) {
    if (given.contains(name)) {
      problems.push_back(fmt::format("unexpected: {}", name));
    }
  }
  check(problems.empty(), "ema", "{}", excerpt_list(problems, "; ", /* limit= */ 800));
  averages_ = std::move(averages);
}

}  // namespace norma::train
