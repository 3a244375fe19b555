#include "ops/pointwise/cpu/pointwise_kernels.h"

namespace norma::kernels {

constinit const PointwiseKernels pointwise_cpu{.unary = cpu::unary,
                                               .unary_backward = cpu::unary_backward,
                                               .binary = cpu::binary,
                                               .compare = cpu::compare,
                                               .where = cpu::where};

namespace detail {

template <size_t N>
void run(const Sizes& sizes, const std::array<Strides, N>& strides, RunFunction<N> function, const void* body) {
  const StridedLoop<N> loop = make_strided_loop<N>(sizes, strides);
  for_each_run(loop, [&](const Places<N>& offsets, int64_t count, const Places<N>& inner_strides) {
    function(body, offsets, count, inner_strides);
  });
}

template void run<2>(const Sizes&, const std::array<Strides, 2>&, RunFunction<2>, const void*);
template void run<3>(const Sizes&, const std::array<Strides, 3>&, RunFunction<3>, const void*);
template void run<4>(const Sizes&, const std::array<Strides, 4>&, RunFunction<4>, const void*);

}  // namespace detail

}  // namespace norma::kernels
