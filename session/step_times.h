#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace norma::train {

/// The median: of an even number of values, the mean of the two in the middle; 0 for none.
double median(std::vector<double> values);

/// Images per second of the two halves of a step, each as if the other took no time.
struct LoadingRates {
  double loading = 0;
  double computing = 0;
};

/// The durations of a run's steps, and their waiting for images.
class StepTimes {
 public:
  /// `workers`: background threads of the loader; 0: images are loaded while the step waits.
  explicit StepTimes(int workers) : workers_(workers) {}

  /// Adds a step of `images`: its total seconds, and those spent waiting for the loader.
  void add(int64_t images, double seconds, double waited) { steps_.push_back({images, seconds, waited}); }
  /// Images per second, by the median over the steps; the first steps are left out if enough others follow. Each step
  /// counts with its own images, since an epoch's last one may be smaller. 0 without steps, as the next.
  [[nodiscard]] double images_per_second() const;
  /// Likewise over the last steps, for the display.
  [[nodiscard]] double recent_images_per_second() const;
  /// The rates over the last steps if loading is the bottleneck. With workers that is so if steps wait for a fifth of
  /// the time or more: then workers never rest, and load as many images as the run sees. Without workers it is so if
  /// loading takes longer than computing. None before there are enough steps.
  [[nodiscard]] std::optional<LoadingRates> bottleneck() const;

  /// Steps at the start of a run that do not count: they make kernels and fetch memory, and the first batches are not
  /// ready.
  static constexpr size_t kFirstSteps = 5;
  /// The number of last steps for the two functions above.
  static constexpr size_t kWindow = 20;

 private:
  struct Step {
    int64_t images = 0;
    double seconds = 0;
    double waited = 0;
  };
  /// The sum of the last steps.
  [[nodiscard]] Step recent() const;

  int workers_;
  std::vector<Step> steps_;
};

/// "loading is the bottleneck: it gives 120 img/s, and the steps could take 400 img/s; …"
std::string loading_warning(const LoadingRates& rates, int workers);

}  // namespace norma::train
