#pragma once

#include "core/tensor.h"
#include "lab/judge/check_norm.h"
#include "nn/module.h"
#include "nn/norm/factory.h"

#include <memory>
#include <string>
#include <vector>

namespace norma::lab {

/// The norm to check.
struct Subject {
  nn::NormChoice choice;
  int64_t channels = 8;

  /// A layer for inputs like x, in training mode, as its constructor makes it.
  [[nodiscard]] std::shared_ptr<nn::Module> make_new(const Tensor& x) const;
  /// Likewise. Its parameters have `dtype` and random numbers around 1, the same in every call with one seed.
  [[nodiscard]] std::shared_ptr<nn::Module> make(const Tensor& x, DType dtype = DType::float32,
                                                 uint64_t seed = 7) const;
};

/// Random float32 numbers with deviation 1 around `mean`, in a memory format; the same in every call.
Tensor random_input(const Sizes& sizes, MemoryFormat format = MemoryFormat::contiguous, double mean = 0);

/// The largest |a - b|; infinity if one of them is NaN or their sizes differ.
double largest_difference(const Tensor& a, const Tensor& b);
/// The largest |x|.
double largest(const Tensor& x);

/// y and dx of a forward and a backward pass.
struct Results {
  Tensor y;
  Tensor dx;
};
/// Runs both passes; dy is random, in the memory format of y. Throws Error unless y is like x and finite.
Results apply_norm(nn::Module& layer, const Tensor& x);
/// Likewise with a new layer.
Results apply_norm(const Subject& subject, const Tensor& x, DType parameters = DType::float32);

/// A set has at least so many numbers, where the norm has sets at all.
constexpr int64_t kSetSize = 16;
/// How many numbers of a small image an output depends on, up to kSetSize. What the norm throws passes through.
int64_t set_size(const Subject& subject);

struct Finding {
  CheckOutcome outcome = CheckOutcome::passed;
  std::string text = {};
  std::vector<HardInput> hard_inputs = {};
};

// The checks. A check that throws has failed.

Finding check_sizes(const Subject& subject);
Finding check_formats(const Subject& subject);
Finding check_dtypes(const Subject& subject);
Finding check_exactness(const Subject& subject);
Finding check_repeatability(const Subject& subject);
Finding check_evaluation(const Subject& subject);
Finding check_running_statistics(const Subject& subject);
Finding check_saving(const Subject& subject);
Finding check_gradients(const Subject& subject);
Finding check_parameter_gradients(const Subject& subject);
Finding check_second_derivatives(const Subject& subject);
Finding check_copies(const Subject& subject);
Finding check_networks(const Subject& subject);
Finding check_speed(const Subject& subject);
/// Whether both norms give the same: outputs, gradients, and outputs in evaluation after a step of training. Both have
/// as many channels.
Finding check_likeness(const Subject& subject, const Subject& other);

}  // namespace norma::lab
