#pragma once

#include <cstdint>

namespace norma::test {

// Each starts a kernel on `blocks` blocks. kernels.cpp is compiled so that its accesses are seen.

/// Lines of kernels.cpp: on which the sums below write and read shared memory, and of a barrier inside an if.
int line_of_write();
int line_of_read();
int line_of_barrier();

void sum_with_barriers(int64_t blocks, int threads);
void sum_without_first_barrier(int64_t blocks, int threads);
void sum_without_last_barrier(int64_t blocks, int threads);
void shuffle_for_a_barrier(int64_t blocks, int threads);
void all_write_one_place(int64_t blocks, int threads);
void neighbours_write_halves(int64_t blocks, int threads);
void last_reader_is_the_writer(int64_t blocks, int threads);
void blocks_share_a_counter(int64_t blocks, int threads);
void barrier_in_if(int64_t blocks, int threads);
/// The last thread writes after the last of blocks · threads numbers.
void past_the_end(int64_t blocks, int threads, int* to);
void own_stack(int64_t blocks, int threads);

}  // namespace norma::test
