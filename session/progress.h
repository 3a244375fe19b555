#pragma once

#include "base/not_copied.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// The figures that a step of training shows.
struct ProgressState {
  int64_t step = 0;  ///< steps done
  double images_per_second = 0;
  double loss = 0;
};

struct ProgressOptions {
  std::string label;          ///< at the front: "resnet50 batch"
  std::string unit = "step";  ///< the unit of the steps
  int64_t total_steps = 1;
  int64_t first_step = 0;     ///< steps done before (resumed)
  int64_t log_interval = 50;  ///< steps between two plain lines
  bool quiet = false;         ///< print nothing but warnings
  std::FILE* out = stdout;    ///< a failure to write there does not throw (output.h)
  /// The seconds of work that follows these steps, given the total seconds of the steps. The time left then includes
  /// both. Empty: none follows.
  std::function<double(double seconds)> time_after = {};
};

/// Shows the progress of a run: one line redrawn in place if can_redraw(), else a plain line every
/// log_interval steps.
class Progress : NotCopied {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();

  void update(const ProgressState& state);
  /// Prints a line that stays.
  void print(std::string_view text);
  /// Prints a line that stays on the standard error, even with ProgressOptions::quiet.
  void warn(std::string_view text);

 private:
  void draw(const ProgressState& state);
  void clear();

  ProgressOptions options_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_drawn_;
};

/// "0:07", "12:05", "1:02:03"
std::string format_duration(double seconds);

/// The text of one state, as a plain line or for a terminal of `width` columns (with a bar if there is room).
std::string progress_line(const ProgressOptions& options, const ProgressState& state, double seconds_left, int width);

/// True iff a stream may get carriage returns and escape sequences: it is a terminal, and neither TERM (missing, empty
/// or "dumb") nor NO_COLOR (not empty, https://no-color.org) forbids it.
bool can_redraw(std::FILE* out);

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
