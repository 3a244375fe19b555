#include "core/emulated/launch.h"

#include "base/error.h"
#include "core/emulated/fiber.h"
#include "core/emulated/memory.h"
#include "core/emulated/races.h"
#include "core/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace norma::emulated {

namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = size_t{48} << 10;  // of a block, without asking the driver for more
constexpr std::byte kPoison{0xFF};                    // NaN in every floating dtype
constexpr size_t kCanaryBytes = 256;

std::mutex checks_mutex;
LaunchChecks checks_of_all;
std::atomic<int64_t> launches_of_all;
std::atomic<int64_t> threads_of_all;

/// The state of a kernel's thread.
enum class Waits : uint8_t { no, at_shuffle, at_barrier, ended };

struct Lane {
  Fiber* fiber = nullptr;  ///< from its first step to its last
  Waits waits = Waits::no;
  bool odd = false;               ///< which of the two values is the latest: a lane is at most one exchange ahead
  std::array<Words, 2> value{};   ///< its values in the latest two exchanges
  const void* barrier = nullptr;  ///< the code after the barrier that it waits at
  const void* caller = nullptr;   ///< the code after the call of the function that has this barrier, where it is known
};

/// Runs one block after the other. Each thread of the host has one runner.
class BlockRunner {
 public:
  void prepare(int64_t blocks, int threads, size_t shared_bytes, void (*body)(void* context), void* context) {
    place_ = {.thread = 0, .threads = threads, .block = 0, .blocks = blocks, .shared_memory = nullptr};
    shared_bytes_ = shared_bytes;
    body_ = body;
    context_ = context;
    checks_ = launch_checks();
    lanes_.resize(static_cast<size_t>(threads));
    idle_.clear();
    for (const auto& fiber : fibers_) {
      idle_.push_back(fiber.get());
    }
    shared_.resize((shared_bytes + kCanaryBytes) / sizeof(Word) + 1);
    std::memset(shared_.data(), 0, shared_.size() * sizeof(Word));
    place_.shared_memory = shared_.data();
    if (races_are_watched() && races_ == nullptr) {
      races_ = std::make_unique<Races>();
    }
    if (races_ != nullptr) {
      races_->begin_launch(threads);
    }
  }

  void run(int64_t block) {
    place_.block = block;
    auto* bytes = reinterpret_cast<std::byte*>(shared_.data());
    if (checks_.poison_shared_memory) {
      std::memset(bytes, static_cast<int>(kPoison), shared_bytes_);
    }
    std::memset(bytes + shared_bytes_, 0x5A, kCanaryBytes);
    if (races_ != nullptr) {
      races_->begin_block(block, bytes, shared_bytes_);
    }
    order_ = checks_.order_seed * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(block);
    for (Lane& lane : lanes_) {
      lane.fiber = nullptr;
      lane.waits = Waits::no;
      lane.odd = false;
    }
    while (run_to_barrier()) {
    }
    for (size_t i = 0; i < kCanaryBytes; ++i) {
      check(bytes[shared_bytes_ + i] == std::byte{0x5A}, "launch",
            "block {} wrote behind the {} bytes of its shared memory", block, shared_bytes_);
    }
  }

  [[nodiscard]] const Place& place() const { return place_; }

  /// An access of the thread that runs now. Nobody shares what lies on its own stack.
  void touch(const void* address, size_t bytes, bool write, const void* code) {
    const Fiber* const fiber = running_;
    if (races_ != nullptr && fiber != nullptr && !fiber->has_on_stack(address)) {
      races_->touch(place_.thread, address, bytes, write, code);
    }
  }

  void wait_for_block(const void* code) {
    Lane& lane = lanes_[static_cast<size_t>(place_.thread)];
    lane.barrier = code;
    lane.caller = detail::last_caller();
    wait(lane, Waits::at_barrier);
  }

  Words exchange(const Words& value, int source) {
    const int thread = place_.thread;
    Lane& lane = lanes_[static_cast<size_t>(thread)];
    lane.odd = !lane.odd;
    const size_t which = lane.odd ? 1 : 0;
    lane.value[which] = value;
    wait(lane, Waits::at_shuffle);
    const int from = thread / kWarpSize * kWarpSize + (source & (kWarpSize - 1));
    return lanes_[static_cast<size_t>(from)].value[which];
  }

 private:
  using Word = std::array<uint64_t, 2>;  // 16 bytes, which vectors are loaded by

  void wait(Lane& lane, Waits for_what) {
    lane.waits = for_what;
    // The next lane of the warp goes on from here, if it can: that is one switch instead of two. What looks for races
    // wants to be asked after each step.
    if (kHandsOver && races_ == nullptr && turn_ + 1 < kWarpSize) {
      const int warp = place_.thread / kWarpSize;
      Lane& next = lanes_[static_cast<size_t>(warp) * kWarpSize + static_cast<size_t>((turn_ + 1) ^ order_in_warp_)];
      if (next.waits == Waits::no && (next.fiber != nullptr || !idle_.empty())) {
        ++turn_;
        take_turn(warp);
        running_ = fiber_of(next);
        lane.fiber->hand_over_to(*running_);
        return;
      }
    }
    lane.fiber->leave();
  }

  /// " (kernels.cpp:41)" of a barrier that some thread waits at; "" where that is not known.
  [[nodiscard]] std::string line_of_barrier() const {
    const auto waiting = std::ranges::find(lanes_, Waits::at_barrier, &Lane::waits);
    if (races_ == nullptr || waiting == lanes_.end()) {
      return "";
    }
    const std::string line = source_line(waiting->barrier);
    return line.empty() ? source_line(waiting->caller) : line;
  }

  uint64_t next_order() {
    order_ = order_ * 6364136223846793005U + 1442695040888963407U;
    return checks_.order_seed == 0 ? 0 : order_ >> 33U;
  }

  /// False when all threads have ended.
  bool run_to_barrier() {
    const int warps = place_.threads / kWarpSize;
    const auto first = static_cast<int>(next_order() % static_cast<uint64_t>(warps));
    for (int i = 0; i < warps; ++i) {
      run_warp((first + i) % warps);
    }
    int waiting = 0;
    for (int thread = 0; thread < place_.threads; ++thread) {
      waiting += lanes_[static_cast<size_t>(thread)].waits == Waits::at_barrier ? 1 : 0;
    }
    // Where a barrier is missed by some threads, that is the fault, and a race follows from it.
    if (waiting != 0 && waiting != place_.threads) {  // only now: to find the line takes a while
      fail("launch", "{} of the {} threads of block {} wait at a barrier{}, the others have ended", waiting,
           place_.threads, place_.block, line_of_barrier());
    }
    if (races_ != nullptr) {
      if (races_->found()) {
        fail("launch", "{}", races_->text());
      }
      races_->pass_barrier();
    }
    for (int thread = 0; waiting > 0 && thread < place_.threads; ++thread) {
      lanes_[static_cast<size_t>(thread)].waits = Waits::no;
    }
    return waiting > 0;
  }

  /// Runs a warp until each of its lanes has ended or waits at the barrier of the block.
  void run_warp(int warp) {
    while (true) {
      order_in_warp_ = static_cast<int>(next_order() % kWarpSize);
      for (turn_ = 0; turn_ < kWarpSize; ++turn_) {
        Lane& lane = take_turn(warp);
        if (lane.waits == Waits::no) {
          step(lane);
        }
      }
      const int first = warp * kWarpSize;
      int shuffling = 0;
      for (int lane = first; lane < first + kWarpSize; ++lane) {
        shuffling += lanes_[static_cast<size_t>(lane)].waits == Waits::at_shuffle ? 1 : 0;
      }
      if (shuffling == 0) {
        return;
      }
      if (shuffling != kWarpSize) {
        fail("launch",
             "{} of the 32 lanes of warp {} of block {} take part in a shuffle, the others have ended or wait at a "
             "barrier{}",
             shuffling, warp, place_.block, line_of_barrier());
      }
      for (int lane = first; lane < first + kWarpSize; ++lane) {
        lanes_[static_cast<size_t>(lane)].waits = Waits::no;
      }
    }
  }

  /// Makes the lane whose turn it is the thread that runs.
  Lane& take_turn(int warp) {
    place_.thread = warp * kWarpSize + (turn_ ^ order_in_warp_);
    return lanes_[static_cast<size_t>(place_.thread)];
  }

  /// The fiber that a lane runs on, or begins on.
  Fiber* fiber_of(Lane& lane) {
    if (lane.fiber == nullptr) {
      if (idle_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>());
        idle_.push_back(fibers_.back().get());
      }
      lane.fiber = idle_.back();
      idle_.pop_back();
      lane.fiber->start([](void* runner) { static_cast<BlockRunner*>(runner)->run_new_lanes(); }, this);
    }
    return lane.fiber;
  }

  /// Runs a lane, and those that it hands over to, to the next shuffle or barrier, or to the end.
  void step(Lane& lane) {
    running_ = fiber_of(lane);
    running_->enter();
    Fiber* const last = std::exchange(running_, nullptr);
    if (races_ != nullptr && races_->is_past_end()) {
      fail("launch", "{}", races_->text());
    }
    if (last->ended()) {
      lanes_[static_cast<size_t>(place_.thread)].fiber = nullptr;
      idle_.push_back(last);
    }
  }

  /// Runs inside a fiber. Lanes that end without a shuffle or a barrier run on it one after the other: a switch for
  /// each would take longer than most of them.
  void run_new_lanes() {
    while (true) {
      body_(context_);
      Lane& lane = lanes_[static_cast<size_t>(place_.thread)];
      lane.waits = Waits::ended;
      if (turn_ + 1 == kWarpSize) {
        return;
      }
      const int warp = place_.thread / kWarpSize;
      Lane& next = lanes_[static_cast<size_t>(warp) * kWarpSize + static_cast<size_t>((turn_ + 1) ^ order_in_warp_)];
      if (next.fiber != nullptr || next.waits != Waits::no) {
        return;
      }
      next.fiber = std::exchange(lane.fiber, nullptr);
      ++turn_;
      take_turn(warp);
    }
  }

  Place place_{};
  size_t shared_bytes_ = 0;
  void (*body_)(void* context) = nullptr;
  void* context_ = nullptr;
  LaunchChecks checks_;
  uint64_t order_ = 0;
  // In the warp that runs, lane turn_ ^ order_in_warp_ runs now.
  int turn_ = 0;
  int order_in_warp_ = 0;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;  // the fibers that no thread runs on
  std::vector<Word> shared_;
  std::unique_ptr<Races> races_;  // null: not looked for
  Fiber* running_ = nullptr;      // the fiber that runs now; null between two
};

/// The runner of this thread of the host, while it runs kernels.
constinit thread_local BlockRunner* current = nullptr;

BlockRunner& runner() {
  static thread_local BlockRunner instance;
  current = &instance;
  current_place = &instance.place();
  return instance;
}

}  // namespace

constinit thread_local const Place* current_place = nullptr;

void set_launch_checks(const LaunchChecks& checks) {
  const std::lock_guard lock(checks_mutex);
  checks_of_all = checks;
}
LaunchChecks launch_checks() {
  const std::lock_guard lock(checks_mutex);
  return checks_of_all;
}

void wait_for_block() {
  current->wait_for_block(__builtin_return_address(0));
}
Words exchange(const Words& value, int source) {
  return current->exchange(value, source);
}

void run_grid(int64_t blocks, int threads, size_t shared_bytes, void (*body)(void* context), void* context) {
  check(blocks > 0 && blocks <= INT32_MAX, "launch", "expected 1 to 2147483647 blocks, got {}", blocks);
  check(threads > 0 && threads <= kMaxThreads && threads % kWarpSize == 0, "launch",
        "expected a multiple of 32 threads, at most 1024, got {}", threads);
  check(shared_bytes <= kMaxSharedBytes, "launch", "expected at most {} bytes of shared memory, got {}",
        kMaxSharedBytes, shared_bytes);
  const Access access;  // a dispatcher has opened memory before; a launch by hand has not
  ++launches_of_all;
  threads_of_all += blocks * threads;
  const LaunchChecks checks = launch_checks();
  const bool backwards = (checks.order_seed & 1U) != 0;
  const int64_t all_run = checks.end_blocks == 0 ? blocks : std::min(blocks, 2 * checks.end_blocks);
  // Races between blocks are seen where one runner has all of them.
  const int64_t grain = races_are_watched() ? all_run : std::max<int64_t>(1, 1024 / threads);
  parallel_for(0, all_run, grain, [&](int64_t begin, int64_t end) {
    BlockRunner& runs = runner();
    runs.prepare(blocks, threads, shared_bytes, body, context);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i < all_run / 2 ? i : blocks - all_run + i;
      runs.run(backwards ? blocks - 1 - block : block);
    }
  });
}

void detail::touch(const void* address, size_t bytes, bool write, const void* code) {
  if (current != nullptr) {
    current->touch(address, bytes, write, code);
  }
}

LaunchCounts launch_counts() {
  return {.launches = launches_of_all, .threads = threads_of_all};
}

}  // namespace norma::emulated
