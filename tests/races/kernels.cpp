#include "races/kernels.h"

#include "core/cuda/kernel.h"

#include <vector>

namespace norma::test {
namespace {

using namespace kernels::emulated;

template <class... Parameters, class... Arguments>
void start(int64_t blocks, int threads, void (*kernel)(Parameters...), Arguments... arguments) {
  launch(blocks, threads, /* shared_bytes= */ 4096, current_stream(), kernel, arguments...);
}

constexpr int kLineOfWrite = __LINE__ + 6;
constexpr int kLineOfRead = kLineOfWrite + 6;
/// Twice the sum of all threads' numbers, through shared memory. `first`, `last`: the barriers that are there.
void sum_twice(bool first, bool last, float* to) {
  float* const shared = shared_memory<float>();
  for (int round = 0; round < 2; ++round) {
    shared[thread()] = 1;
    if (first) {
      sync_threads();
    }
    float sum = 0;
    for (int i = 0; i < threads(); ++i) {
      sum += shared[i];
    }
    if (last) {
      sync_threads();
    }
    to[global_thread()] = sum;
  }
}

void exchange_by_shuffle(int* to) {
  int* const shared = shared_memory<int>();
  shared[thread()] = thread();
  (void)shuffle(0, 0);  // no barrier
  to[thread()] = shared[thread() ^ 1];
}

void write_first(int* to) {
  to[0] = 1;
}
void write_bytes(uint8_t* to) {
  to[thread()] = 1;
}
/// Thread 1 reads, thread 0 reads and then writes.
void read_read_write(int* to) {
  int* const shared = shared_memory<int>();
  if (thread() == 0) {
    shared[0] = 0;
  }
  sync_threads();
  if (thread() < 2) {
    to[thread()] = shared[0];
  }
  (void)shuffle(0, 0);
  if (thread() == 0) {
    to[0] += shared[0];
    shared[0] = 5;
  }
}
void count(int* counter) {
  if (thread() == 0) {
    counter[0] += 1;
  }
}
void use_stack(int* to) {
  volatile int numbers[4] = {1, 2, 3, 4};
  sync_threads();
  to[global_thread()] = numbers[thread() % 4];
}
constexpr int kLineOfBarrier = __LINE__ + 6;
/// Half of the threads meet a barrier, and the others read what the first have written.
void half_a_barrier(int* to) {
  int* const shared = shared_memory<int>();
  if (thread() < 32) {
    shared[thread()] = 1;
    sync_threads();
  }
  to[thread()] = shared[thread() % 32];
}
void write_next(int* to) {
  to[global_thread() + 1] = 0;
}

}  // namespace

int line_of_barrier() {
  return kLineOfBarrier;
}
int line_of_write() {
  return kLineOfWrite;
}
int line_of_read() {
  return kLineOfRead;
}

void sum_with_barriers(int64_t blocks, int threads) {
  start(blocks, threads, sum_twice, true, true, std::vector<float>(static_cast<size_t>(blocks * threads)).data());
}
void sum_without_first_barrier(int64_t blocks, int threads) {
  start(blocks, threads, sum_twice, false, true, std::vector<float>(static_cast<size_t>(blocks * threads)).data());
}
void sum_without_last_barrier(int64_t blocks, int threads) {
  start(blocks, threads, sum_twice, true, false, std::vector<float>(static_cast<size_t>(blocks * threads)).data());
}
void shuffle_for_a_barrier(int64_t blocks, int threads) {
  start(blocks, threads, exchange_by_shuffle, std::vector<int>(static_cast<size_t>(blocks * threads)).data());
}
void all_write_one_place(int64_t blocks, int threads) {
  start(blocks, threads, write_first, std::vector<int>(static_cast<size_t>(blocks * threads)).data());
}
void neighbours_write_halves(int64_t blocks, int threads) {
  start(blocks, threads, write_bytes, std::vector<uint8_t>(static_cast<size_t>(blocks * threads)).data());
}
void last_reader_is_the_writer(int64_t blocks, int threads) {
  start(blocks, threads, read_read_write, std::vector<int>(static_cast<size_t>(blocks * threads)).data());
}
void blocks_share_a_counter(int64_t blocks, int threads) {
  start(blocks, threads, count, std::vector<int>(static_cast<size_t>(blocks * threads)).data());
}
void barrier_in_if(int64_t blocks, int threads) {
  start(blocks, threads, half_a_barrier, std::vector<int>(static_cast<size_t>(blocks * threads)).data());
}
void past_the_end(int64_t blocks, int threads, int* to) {
  start(blocks, threads, write_next, to);
}
void own_stack(int64_t blocks, int threads) {
  start(blocks, threads, use_stack, std::vector<int>(static_cast<size_t>(blocks * threads)).data());
}

}  // namespace norma::test
