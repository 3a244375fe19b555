#include "train/agreement.h"

#include "core/factory.h"
#include "train/stop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <stop_token>
#include <thread>
#include <vector>

namespace norma::train {

namespace {

using Clock = std::chrono::steady_clock;

/// The text of what `work` throws; "" if it does not.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "an error without a text" : error.what();
  }
  return "";
}

/// True iff the first process goes on with its work. All know of a signal then that came to one.
bool goes_on(parallel::ProcessGroup& group, bool first_does) {
  const Tensor x = zeros({2}, {.dtype = DType::float64, .device = kCpu});
  auto* const values = x.data<double>();
  values[0] = group.is_first() && first_does ? 1 : 0;
  values[1] = StopFlag::is_pending() ? 1 : 0;
  group.all_reduce(x);
  StopFlag::settle(values[1] > 0);
  return values[0] > 0;
}

/// Tells the others from time to time that this process works, so that they do not take it for lost.
class Beat {
 public:
  explicit Beat(parallel::ProcessGroup& group)
      : thread_([this, &group](const std::stop_token& stop) {
          constexpr std::chrono::milliseconds kBetween{200};
          try {
            std::unique_lock lock(mutex_);
            while (!changed_.wait_for(lock, stop, kBetween, [&] { return stop.stop_requested(); })) {
              goes_on(group, true);
            }
          } catch (...) {
            error_ = std::current_exception();
          }
        }) {}
  /// Throws where another process is lost.
  void stop() {
    thread_.request_stop();
    thread_.join();
    if (error_) {
      std::rethrow_exception(error_);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::exception_ptr error_;
  std::jthread thread_;
};

}  // namespace

std::string first_text(parallel::ProcessGroup& group, const std::string& text) {
  if (group.size() == 1) {
    return text;
  }
  const std::vector<std::string> all = group.all_gather_text(text);
  const auto found = std::ranges::find_if(all, [](const std::string& one) { return !one.empty(); });
  return found == all.end() ? "" : *found;
}

std::string text_of_first(parallel::ProcessGroup& group, const std::string& text) {
  return first_text(group, group.is_first() ? text : "");
}

bool of_first(parallel::ProcessGroup& group, bool value) {
  return group.size() == 1 ? value : !text_of_first(group, value ? "true" : "").empty();
}

void rethrow_unless_agreed(const parallel::ProcessGroup& group) {
  if (group.size() == 1) {
    return;
  }
  try {
    throw;
  } catch (const AgreedError&) {
  }
}

void do_together(parallel::ProcessGroup& group, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  if (const std::string error = first_text(group, error_of(work)); !error.empty()) {
    throw AgreedError(error);
  }
}

void do_in_first(parallel::ProcessGroup& group, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  std::string error;
  if (group.is_first()) {
    Beat beat(group);
    error = error_of(work);
    beat.stop();
    goes_on(group, false);
  } else {
    // Waiting for a message takes some of the processor, which the first one works with.
    const Clock::time_point start = Clock::now();
    while (goes_on(group, false)) {
      std::this_thread::sleep_for(std::min<Clock::duration>((Clock::now() - start) / 4, std::chrono::seconds(1)));
    }
  }
  error = first_text(group, error);
  if (!error.empty()) {
    throw Error(error);
  }
}

}  // namespace norma::train
