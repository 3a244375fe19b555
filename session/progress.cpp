#include "session/progress.h"

#include "session/output.h"

#include <fmt/format.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace norma::train {

namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr int kLongestBar = 40;
constexpr int kShortestBar = 8;

int terminal_width(std::FILE* out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// "" for a variable that is not set.
std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) {
    return "-:--";
  }
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string progress_line(const ProgressOptions& options, const ProgressState& state, double seconds_left, int width) {
  const int64_t total = std::max<int64_t>(options.total_steps, 1);
  const double share = std::clamp(static_cast<double>(state.step) / static_cast<double>(total), 0.0, 1.0);
  const std::string front = fmt::format("{}{}{:3.0f}%", options.label, options.label.empty() ? "" : "  ", 100 * share);
  const std::string back =
      fmt::format("{} {}/{}  loss {:.4f}  {:.0f} img/s  {} left{}", options.unit, state.step, total, state.loss,
                  state.images_per_second, format_duration(seconds_left), options.time_after ? " in all" : "");
  const int room = width - static_cast<int>(front.size() + back.size()) - 6;  // two gaps, brackets, last column
  if (room < kShortestBar) {
    return fmt::format("{}  {}", front, back);
  }
  const int length = std::min(room, kLongestBar);
  const int filled = static_cast<int>(std::lround(share * length));
  return fmt::format("{} [{}{}]  {}", front, std::string(static_cast<size_t>(filled), '='),
                     std::string(static_cast<size_t>(length - filled), ' '), back);
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      terminal_(can_redraw(options_.out)),
      start_(std::chrono::steady_clock::now()),
      last_drawn_(start_ - kRedrawInterval) {}

Progress::~Progress() {
  if (drawn_) {
    put(options_.out, "\n");
  }
}

void Progress::update(const ProgressState& state) {
  if (options_.quiet) {
    return;
  }
  const bool last = state.step >= options_.total_steps;
  if (terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (last || now - last_drawn_ >= kRedrawInterval) {
      last_drawn_ = now;
      draw(state);
    }
  } else if (last || (options_.log_interval > 0 && state.step % options_.log_interval == 0)) {
    draw(state);
  }
}

void Progress::draw(const ProgressState& state) {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  const int64_t done = std::max<int64_t>(state.step - options_.first_step, 1);
  const double step_seconds = spent.count() / static_cast<double>(done);
  double left = step_seconds * static_cast<double>(options_.total_steps - state.step);
  if (options_.time_after) {
    left += options_.time_after(step_seconds * static_cast<double>(options_.total_steps));
  }
  if (!terminal_) {
    put(options_.out, plain_text(progress_line(options_, state, left, /* width= */ 0)) + "\n");
  } else {
    const int width = terminal_width(options_.out);
    const std::string line = plain_text(progress_line(options_, state, left, width));
    put(options_.out, fmt::format("\r{}\x1b[K", line.substr(0, static_cast<size_t>(std::max(width - 1, 1)))));
    drawn_ = true;
  }
}

void Progress::clear() {
  if (drawn_) {
    put(options_.out, "\r\x1b[K");
    drawn_ = false;
  }
}

void Progress::print(std::string_view text) {
  if (options_.quiet) {
    return;
  }
  clear();
  put(options_.out, plain_text(text) + "\n");
}

void Progress::warn(std::string_view text) {
  clear();
  put(stderr, plain_text(text) + "\n");
}

bool can_redraw(std::FILE* out) {
  const std::string_view term = variable("TERM");
  return isatty(fileno(out)) == 1 && !term.empty() && term != "dumb" && variable("NO_COLOR").empty();
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
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
