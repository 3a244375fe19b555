#include "core/cuda/copies_of_many.h"
#include "core/cuda/sequences.h"
#include "core/cuda/strided.h"

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const TensorKernels NORMA_TABLE(tensor){.copy = copy,
                                                  .add = add,
                                                  .copy_all = copy_all,
                                                  .add_all = add_all,
                                                  .fill = fill,
                                                  .find_not_finite = find_not_finite,
                                                  .arange = arange,
                                                  .uniform = uniform,
                                                  .normal = normal,
                                                  .truncated_normal = truncated_normal,
                                                  .randint = randint};

}  // namespace norma::kernels
