#pragma once

#include "core/half.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/norm/kernels.h"
#include "ops/norm/layout.h"
#include "ops/norm/norm.h"

#include <string>
#include <type_traits>

// What the files of this family share; nothing here is for others.

namespace norma::norm_kernels {

/// x is (N, C, …) of `low` to `high` axes. Throws Error.
void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high);
/// A floating dtype.
void check_norm_dtype(std::string_view op, const Tensor& x);
/// Dtype and device of a parameter of a norm: those of x; float32 also beside bfloat16 and float16.
void check_parameter(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x);
/// A parameter of (C).
void check_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x);
/// The spec with its axes sorted and not negative. Throws Error for one that x cannot have.
NormSpec checked_spec(std::string_view op, const Tensor& x, const NormSpec& spec);
/// running_mean and running_var are there, or neither.
bool check_running_statistics(std::string_view op, const Tensor& running_mean, const Tensor& running_var,
                              const Tensor& x);

/// first, first + 1, … , last - 1
Axes axes_from(int64_t first, int64_t last);
/// The spec of batch norm for x (N, C, …).
NormSpec batch_norm_spec(const Tensor& x, const BatchNormOptions& options);
Sizes sizes_along(const Tensor& x, const Axes& axes);

/// Writes to running: (1 - momentum) * running + momentum * factor * batch.
void update_running(const Tensor& running, const Tensor& batch, double momentum, double factor);

/// float32 for bfloat16 and float16, else the dtype itself.
DType compute_dtype(DType dtype);
/// x in another dtype with the same strides if those are dense, off the tape; x itself if it has the dtype. An
/// undefined tensor stays undefined.
Tensor converted(const Tensor& x, DType dtype);

/// Whether both strides put the elements in the same places. Those of axes of size 1 do not matter.
bool same_places(const Sizes& sizes, const Strides& a, const Strides& b);

/// Rows mean, rest, rstd of constants, one per channel: mean and biased variance of rank 1.
Tensor given_statistics(const Tensor& mean, const Tensor& var, double eps, DType dtype);

struct NormExtras {
  NormStatistics* statistics = nullptr;  ///< receives them
  Tensor given = {};                     ///< given_statistics(), in place of what x has
  NormActOptions then = {};
};

/// normalize() for a spec whose axes are sorted and not negative, and arguments that fit; see norm.h. With extras.given
/// nothing is computed from x, and the gradient takes mean and variance for constants.
Tensor run_norm(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                const NormExtras& extras);
/// Mean and variance alone.
NormStatistics run_statistics(std::string_view op, const Tensor& x, const NormSpec& spec);

/// Which of run_norm's inputs want a gradient.
struct NeededGradients {
  bool x;
  bool weight;
  bool bias;
  bool residual;
};

/// What backward works with. All tensors but `bits` as the caller gave them.
struct SavedNorm {
  std::string op;
  NormSpec spec;
  Activation activation = Activation::identity;
  bool given = false;   ///< rows were given
  bool affine = false;  ///< there was a weight or a bias
  DType bias_dtype = DType::float32;
  Tensor x = {};
  Tensor rows = {};  ///< (3, sets): mean, rest, rstd; (5, sets) with centre and its rest for Centring::deviation
  Tensor weight = {};
  Tensor bias = {};      ///< only where z is computed again
  Tensor residual = {};  ///< likewise
  Tensor bits = {};      ///< of relu behind a residual: whether z > 0
};

/// The gradients of x, weight, bias and residual for dy. 16-bit gradients are rounded once.
Tensors fused_backward(const SavedNorm& norm, const Tensor& dy, NeededGradients needs);
/// The same as an op of its own on the tape, for higher derivatives.
Tensors recorded_backward(const SavedNorm& norm, const Tensor& dy, NeededGradients needs);
/// Where norm.bits are set dy, else 0.
Tensor masked_by_bits(const SavedNorm& norm, const Tensor& dy);
/// bits: one bit per element in memory order: y > 0 or NaN. y: dense.
void positive_bits(const Tensor& y, const Tensor& bits);

/// The gradients of x, weight and bias for dz, the gradient of what the activation was given, written in differentiable
/// functions, for higher derivatives. Undefined results where `needs` is false.
Tensors composed_backward(const SavedNorm& norm, const Tensor& dz, NeededGradients needs);
/// dz from dy likewise, in the compute dtype.
Tensor composed_activation_backward(const SavedNorm& norm, const Tensor& dy);

// --- calling the kernels --------------------------------------------------------------------------------------------

/// For profiles.
inline std::string_view name_of(Walk walk) {
  return walk == Walk::rows ? "rows" : walk == Walk::columns ? "columns" : "groups";
}

template <class S>
void norm_forward(Device device, const NormProblem& problem, const NormForward<S>& arrays) {
  OpScope::set_implementation(name_of(problem.walk));
  device.type == DeviceType::cpu ? cpu::norm_forward(problem, arrays) : cuda::norm_forward(problem, arrays);
}

template <class S>
void norm_backward(Device device, const NormProblem& problem, const NormBackward<S>& arrays) {
  OpScope::set_implementation(name_of(problem.walk));
  device.type == DeviceType::cpu ? cpu::norm_backward(problem, arrays) : cuda::norm_backward(problem, arrays);
}

/// Calls f(S{}) for the dtypes a norm takes.
template <class F>
void dispatch_stored(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::float16: return f(float16{});
    case DType::bfloat16: return f(bfloat16{});
    default: return dispatch_floating(op, dtype, f);
  }
}

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

/// The rows of the statistics: mean, rest, rstd, and centre and its rest for Centring::deviation.
inline int64_t statistics_rows(const NormSpec& spec) {
  return spec.centring == Centring::deviation ? 5 : 3;
}

NormProblem problem_of(const NormLayout& layout, const NormSpec& spec, bool given);

/// x itself if it lies in the order of the walk, else an uninitialised tensor to write to; put_in_place() copies that
/// back.
Tensor writable_in_order(const NormLayout& layout, const Tensor& x);
void put_in_place(const NormLayout& layout, const Tensor& in_order, const Tensor& x);

/// y = f(z + residual). x, y and residual have the dtype of x, all else its compute dtype. `rows` are read when they
/// are given, else written; y, `var`, residual and bits may be undefined.
struct ForwardTensors {
  Tensor x = {};
  Tensor weight = {};
  Tensor bias = {};
  Tensor y = {};
  Tensor rows = {};
  Tensor var = {};
  Activation activation = Activation::identity;
  Tensor residual = {};
  Tensor bits = {};  ///< see positive_bits()
};
void forward_kernel(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool given,
                    const ForwardTensors& tensors);

}  // namespace norma::norm_kernels
