#include "session/step_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace norma::train {

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double StepTimes::images_per_second() const {
  std::vector<double> seconds_per_image;
  for (size_t i = steps_.size() > 2 * kFirstSteps ? kFirstSteps : 0; i < steps_.size(); ++i) {
    seconds_per_image.push_back(steps_[i].seconds / static_cast<double>(steps_[i].images));
  }
  const double typical = median(std::move(seconds_per_image));
  return typical > 0 ? 1 / typical : 0;
}

StepTimes::Step StepTimes::recent() const {
  Step sum;
  for (size_t i = steps_.size() - std::min(kWindow, steps_.size()); i < steps_.size(); ++i) {
    sum.images += steps_[i].images;
    sum.seconds += steps_[i].seconds;
    sum.waited += steps_[i].waited;
  }
  return sum;
}

double StepTimes::recent_images_per_second() const {
  const Step last = recent();
  return last.seconds > 0 ? static_cast<double>(last.images) / last.seconds : 0;
}

std::optional<LoadingRates> StepTimes::bottleneck() const {
  if (steps_.size() < kFirstSteps + kWindow) {
    return std::nullopt;
  }
  const Step last = recent();
  const auto images = static_cast<double>(last.images);
  const double computing = last.seconds - last.waited;
  constexpr double kLongWait = 0.2;
  const bool slow = workers_ > 0 ? last.waited > kLongWait * last.seconds : last.waited > computing;
  if (!slow || !(computing > 0)) {
    return std::nullopt;
  }
  return LoadingRates{.loading = images / (workers_ > 0 ? last.seconds : last.waited), .computing = images / computing};
}

std::string loading_warning(const LoadingRates& rates, int workers) {
  return fmt::format(
      "loading is the bottleneck: it gives {:.1f} img/s, and the steps could take {:.1f} img/s; more workers (-j, now "
      "{}) may help",
      rates.loading, rates.computing, workers);
}

}  // namespace norma::train
