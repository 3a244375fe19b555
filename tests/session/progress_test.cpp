#include "session/progress.h"
#include "session/pseudo_terminal.h"

#include <doctest/doctest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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
  ProgressOptions batches = options;
  batches.unit = "batch";
  CHECK(progress_line(batches, state, 65, /* width= */ 0) ==
        "resnet18 batch   25%  batch 50/200  loss 0.6123  412 img/s  1:05 left");
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

namespace {

/// An environment variable of one value while it lives; none for a null pointer.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) {
      before_ = before;
    }
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

/// What a run of three steps prints on a terminal.
std::string printed_on_terminal() {
  int master = -1;
  int slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  std::string text;
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(::fdopen(slave, "w"), std::fclose);
    {
      Progress progress({.total_steps = 3, .log_interval = 1, .out = out.get()});
      for (int64_t step = 1; step <= 3; ++step) {
        progress.update({.step = step, .images_per_second = 100, .loss = 1});
      }
      progress.print("done");
    }
    // What was printed fits into the terminal's buffer, and lies there now.
    while (!text.ends_with("done\r\n")) {
      char c = 0;
      REQUIRE(::read(master, &c, 1) == 1);
      text += c;
    }
  }
  ::close(master);
  return text;
}

}  // namespace

TEST_CASE("progress: a terminal's line is redrawn, unless TERM or NO_COLOR ask for plain lines") {
  if (no_pseudo_terminals()) {
    return;
  }
  {
    const Variable term("TERM", "xterm");
    const Variable color("NO_COLOR", nullptr);
    const std::string text = printed_on_terminal();
    CHECK(text.find("\x1b[K") != std::string::npos);
    const Variable empty("NO_COLOR", "");  // as if it were not there
    CHECK(printed_on_terminal().find("\x1b[K") != std::string::npos);
  }
  for (const auto& [term, color] :
       {std::pair<const char*, const char*>{"dumb", nullptr}, {nullptr, nullptr}, {"xterm", "1"}}) {
    const Variable first("TERM", term);
    const Variable second("NO_COLOR", color);
    const std::string text = printed_on_terminal();
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("step 1/3") != std::string::npos);
    CHECK(text.find("step 3/3") != std::string::npos);
    // The terminal itself puts one before each end of a line.
    CHECK(std::count(text.begin(), text.end(), '\r') == std::count(text.begin(), text.end(), '\n'));
    CHECK(std::count(text.begin(), text.end(), '\n') == 4);
  }
}
