#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace norma::train {

/// Images per second of the two halves of a step, each as if the other took no time.
struct LoadingRates {
  double loading = 0;
  double computing = 0;
};

/// Sees how long the steps of a run wait for their images, and finds out when that is what the run waits for.
class LoadingWatch {
 public:
  /// `workers`: background threads of the loader; 0: images are loaded while the step waits.
  explicit LoadingWatch(int workers) : workers_(workers) {}

  /// Adds a step of so many images: its seconds in all, of which it waited so many for the loader.
  void add(int64_t images, double seconds, double waited);
  /// The rates of the last steps, where loading is the bottleneck: workers that the steps wait for, a fifth of the time
  /// or more, do not rest, so that they load as many images as the run sees. Without workers: where loading takes
  /// longer than computing. None before there are enough steps.
  [[nodiscard]] std::optional<LoadingRates> bottleneck() const;

  /// Steps at the start of a run that do not count: kernels are made, and the first batches are not waiting yet.
  static constexpr int64_t kFirstSteps = 5;
  /// How many steps are looked at.
  static constexpr size_t kWindow = 20;

 private:
  struct Step {
    int64_t images;
    double seconds;
    double waited;
  };

  int workers_;
  int64_t seen_ = 0;
  std::deque<Step> steps_;
};

/// "loading is the bottleneck: it gives 120 img/s, and the steps could take 400 img/s; …"
std::string loading_warning(const LoadingRates& rates, int workers);

}  // namespace norma::train
