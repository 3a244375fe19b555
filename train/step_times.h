#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace norma::train {

/// The middle of all values; of an even number, the mean of the two in the middle. 0 for none.
double median(std::vector<double> values);

/// Images per second of the two halves of a step, each as if the other took no time.
struct LoadingRates {
  double loading = 0;
  double computing = 0;
};

/// How long the steps of a run took, and how long they waited for their images.
class StepTimes {
 public:
  /// `workers`: background threads of the loader; 0: images are loaded while the step waits.
  explicit StepTimes(int workers) : workers_(workers) {}

  /// Adds a step of so many images: its seconds in all, of which it waited so many for the loader.
  void add(int64_t images, double seconds, double waited) { steps_.push_back({images, seconds, waited}); }
  /// Images per second by the median of all steps, the first ones aside where enough others follow. Each counts by
  /// itself, as the last one of an epoch may be shorter. 0 without steps, as the next.
  [[nodiscard]] double images_per_second() const;
  /// The same of the last steps, for the display.
  [[nodiscard]] double recent_images_per_second() const;
  /// The rates of the last steps, where loading is the bottleneck: workers that the steps wait for, a fifth of the time
  /// or more, do not rest, so that they load as many images as the run sees. Without workers: where loading takes
  /// longer than computing. None before there are enough steps.
  [[nodiscard]] std::optional<LoadingRates> bottleneck() const;

  /// Steps at the start of a run that do not count: kernels are made, memory is fetched, and the first batches are not
  /// waiting yet.
  static constexpr size_t kFirstSteps = 5;
  /// How many of the last steps are looked at.
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
