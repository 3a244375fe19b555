#include "core/cuda/flat_loop.h"
#include "core/strided_loop.h"
#include "ops/shape/kernels.h"

#include <algorithm>

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kIndexThreads = 256;

/// An IndexShape as kernels take it.
struct IndexLoop {
  FlatLoop<2> row;  ///< offsets of an element of a row in y and x
  int64_t x_step;
  int64_t y_step;
  int64_t count;
  /// True iff neighbouring rows lie closer together in y than neighbours in a row: then neighbouring threads take them.
  bool rows_are_neighbours;

  explicit IndexLoop(const IndexShape& shape)
      : IndexLoop(shape, make_strided_loop<2>(shape.sizes, {shape.y_strides, shape.x_strides})) {}

 private:
  IndexLoop(const IndexShape& shape, const StridedLoop<2>& loop)
      : row(loop),
        x_step(shape.x_step),
        y_step(shape.y_step),
        count(shape.count),
        rows_are_neighbours(loop.numel() > 1 && shape.y_step < loop.strides[0].back()) {}
};

/// y[i] = x[index[i]] for every row i. A word may stand for an element of any dtype of its size.
template <class Word>
NORMA_KERNEL void select_rows(IndexLoop loop, const Word* x, const int64_t* index, Word* y) {
  const int64_t inner = loop.rows_are_neighbours ? loop.count : loop.row.count;
  for (int64_t i = global_thread(); i < loop.count * loop.row.count; i += global_threads()) {
    const int64_t outer = quotient(i, inner);
    const int64_t row = loop.rows_are_neighbours ? i - outer * inner : outer;
    const int64_t element = loop.rows_are_neighbours ? outer : i - outer * inner;
    int64_t at[2];
    loop.row.offsets(element, at);
    y[at[0] + row * loop.y_step] = x[at[1] + index[row] * loop.x_step];
  }
}

/// x[index[i]] += y[i], in the order of i. Thread (element, team) adds that element of all rows i whose index[i] is
/// `team` modulo `teams`, a power of two, so no two threads add to the same place.
template <class S>
NORMA_KERNEL void add_rows(IndexLoop loop, int64_t teams, S* x, const int64_t* index, const S* y) {
  for (int64_t i = global_thread(); i < loop.row.count * teams; i += global_threads()) {
    const int64_t team = quotient(i, loop.row.count);
    int64_t at[2];
    loop.row.offsets(i - team * loop.row.count, at);
    for (int64_t row = 0; row < loop.count; ++row) {
      const int64_t to = index[row];
      if ((to & (teams - 1)) == team) {
        S& sum = x[at[1] + to * loop.x_step];
        sum = to_element<S>(to_number(sum) + to_number(y[at[0] + row * loop.y_step]));
      }
    }
  }
}

void index_select(const IndexShape& shape, DType dtype, const void* x, const int64_t* index, void* y) {
  const IndexLoop loop(shape);
  const int64_t elements = loop.count * loop.row.count;
  if (elements == 0) {
    return;
  }
  dispatch_word("index_select", size_of(dtype), [&]<class Word>(Word) {
    launch_over(elements, kIndexThreads, select_rows<Word>, loop, static_cast<const Word*>(x), index,
                static_cast<Word*>(y));
  });
}

void index_add(const IndexShape& shape, DType dtype, void* x, const int64_t* index, const void* y) {
  const IndexLoop loop(shape);
  if (loop.count * loop.row.count == 0) {
    return;
  }
  // Every team reads the whole index, so there are no more than fill a device.
  constexpr int64_t kThreadsToFill = int64_t{1} << 17;
  int64_t teams = 1;
  while (2 * teams <= std::min(loop.count, kThreadsToFill / loop.row.count)) {
    teams *= 2;
  }
  const int64_t threads_in_all = teams * loop.row.count;
  dispatch_any_floating("index_select", dtype, [&]<class S>(S) {
    launch_over(threads_in_all, kIndexThreads, add_rows<S>, loop, teams, static_cast<S*>(x), index,
                static_cast<const S*>(y));
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const IndexKernels NORMA_TABLE(index){.select = index_select, .add = index_add};

}  // namespace norma::kernels
