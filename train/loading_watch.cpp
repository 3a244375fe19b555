#include "train/loading_watch.h"

#include <fmt/format.h>

namespace norma::train {

void LoadingWatch::add(int64_t images, double seconds, double waited) {
  if (++seen_ <= kFirstSteps) {
    return;
  }
  steps_.push_back({.images = images, .seconds = seconds, .waited = waited});
  if (steps_.size() > kWindow) {
    steps_.pop_front();
  }
}

std::optional<LoadingRates> LoadingWatch::bottleneck() const {
  if (steps_.size() < kWindow) {
    return std::nullopt;
  }
  double images = 0;
  double seconds = 0;
  double waited = 0;
  for (const Step& step : steps_) {
    images += static_cast<double>(step.images);
    seconds += step.seconds;
    waited += step.waited;
  }
  const double computing = seconds - waited;
  constexpr double kLongWait = 0.2;
  const bool slow = workers_ > 0 ? waited > kLongWait * seconds : waited > computing;
  if (!slow || !(computing > 0)) {
    return std::nullopt;
  }
  return LoadingRates{.loading = images / (workers_ > 0 ? seconds : waited), .computing = images / computing};
}

std::string loading_warning(const LoadingRates& rates, int workers) {
  return fmt::format(
      "loading is the bottleneck: it gives {:.1f} img/s, and the steps could take {:.1f} img/s; more workers (-j, now "
      "{}) may help",
      rates.loading, rates.computing, workers);
}

}  // namespace norma::train
