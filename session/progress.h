#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

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
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

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

}  // namespace norma::train
