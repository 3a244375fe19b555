#include "train/progress.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

using namespace norma::train;

TEST_CASE("progress: durations") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(7.4) == "0:07");
  CHECK(format_duration(725) == "12:05");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(INFINITY) == "-:--");
  CHECK(format_duration(NAN) == "-:--");
}

TEST_CASE("progress: a plain line has everything, a terminal's line a bar as well") {
  const ProgressOptions options{.label = "resnet18 batch", .total_steps = 200};
  const ProgressState state{.step = 50, .images_per_second = 412.4, .loss = 0.61234};
  CHECK(progress_line(options, state, 65, /* width= */ 0) ==
        "resnet18 batch   25%  step 50/200  loss 0.6123  412 img/s  1:05 left");
  CHECK(progress_line(options, state, 65, /* width= */ 100) ==
        "resnet18 batch   25% [=======                     ]  step 50/200  loss 0.6123  412 img/s  1:05 left");
}

namespace {

/// What a Progress that is no terminal prints over `steps` steps.
std::string printed(ProgressOptions options, int64_t steps) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  options.out = file.get();
  options.total_steps = steps;
  Progress progress(options);
  for (int64_t step = 1; step <= steps; ++step) {
    progress.update({.step = step, .images_per_second = 100, .loss = 1});
  }
  progress.print("done");
  std::rewind(file.get());
  std::string text;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    text += static_cast<char>(c);
  }
  return text;
}

}  // namespace

TEST_CASE("progress: plain lines at the interval and at the end when the output is no terminal") {
  const std::string text = printed({.log_interval = 4}, 10);
  CHECK(text.find("step 4/10") != std::string::npos);
  CHECK(text.find("step 8/10") != std::string::npos);
  CHECK(text.find("step 10/10") != std::string::npos);
  CHECK(text.find("step 5/10") == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.ends_with("done\n"));
}

TEST_CASE("progress: quiet prints nothing") {
  CHECK(printed({.quiet = true}, 10).empty());
}
