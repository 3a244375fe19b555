#pragma once

#include <cstddef>
#include <cstdint>

// Runs kernels written for CUDA on the host, with one fiber per thread. The lanes of a warp run one after the other to
// each shuffle, the warps of a block to each barrier. Kernels see it through core/cuda/kernel.h.

namespace norma::emulated {

/// Checks that show faults which a GPU may forgive.
struct LaunchChecks {
  /// Not 0: lanes, warps and blocks come in another order, which depends on this number.
  uint64_t order_seed = 0;
  /// Shared memory is full of NaN when a block begins.
  bool poison_shared_memory = true;
  /// Blocks of 128 threads that a multiprocessor is said to run at the same time; a GPU has a number for each kernel.
  int resident_blocks = 8;
  /// Multiprocessors. With very many, each block of a kernel has one step of its loop.
  int processors = 2;
  /// Not 0: only so many blocks at each end of a launch run, for tensors that are too large to go over. Launch counts
  /// still count all.
  int64_t end_blocks = 0;
};
/// Sets the checks of all launches from now on, on all threads.
void set_launch_checks(const LaunchChecks& checks);
LaunchChecks launch_checks();

/// Threads of a warp.
inline constexpr int kWarpSize = 32;

/// The place of the kernel's thread that runs now.
struct Place {
  int thread;
  int threads;
  int64_t block;
  int64_t blocks;
  void* shared_memory;
};
extern constinit thread_local const Place* current_place;
inline const Place& place() {
  return *current_place;
}

/// Waits at the barrier of the block.
void wait_for_block();
/// The value that a lane brings to an exchange.
struct Words {
  uint64_t first = 0;
  uint64_t second = 0;
};
/// Returns the value of lane number `source` of the warp in this exchange. All 32 lanes must take part.
Words exchange(const Words& value, int source);

/// Calls body(context) once for each thread of each block. Throws Error("launch: …") where the threads of a block wait
/// for some that have ended or wait elsewhere, where a block writes past its shared memory, and for numbers that a
/// GPU does not take.
void run_grid(int64_t blocks, int threads, size_t shared_bytes, void (*body)(void* context), void* context);

/// What has been launched so far, by all threads of the host.
struct LaunchCounts {
  int64_t launches = 0;
  int64_t threads = 0;
};
LaunchCounts launch_counts();

}  // namespace norma::emulated
