#pragma once

#include "core/tensor.h"
#include "nn/module.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::nn {

// calibrate.cpp, fold_statistics.cpp and train/evaluate.cpp share what follows.

/// A layer that has another norm than before.
struct ChangedNorm {
  std::string path;
  Module* after;
  Module* before;
};
/// All changed norms, in the order of the modules. Throws Error, in the name of `op`, if `old` lacks the path of one of
/// model's norms.
std::vector<ChangedNorm> changed_norms(std::string_view op, Module& model, Module& old);

/// Numbers of each channel.
struct MeanAndDeviation {
  std::vector<double> mean;
  std::vector<double> deviation;  ///< biased, as a norm's
};

/// Mean and deviation of each channel of (N, channels, …), over all tensors added, in float64. The parts are merged by
/// Chan's formula.
class ChannelMoments {
 public:
  void add(const Tensor& x);
  [[nodiscard]] MeanAndDeviation result() const;
  [[nodiscard]] const std::vector<double>& mean() const { return mean_; }
  /// The variances; with correction 1 as running statistics have them.
  [[nodiscard]] std::vector<double> var(int64_t correction) const;
  /// The root mean square over all channels.
  [[nodiscard]] double root_mean_square() const;

 private:
  int64_t count_ = 0;  ///< of each channel
  std::vector<double> mean_;
  std::vector<double> squares_;  ///< of the differences from the mean
};

/// Weight and bias of a norm. `bias` is undefined where it has none.
struct WeightAndBias {
  Tensor weight;
  Tensor bias;
  double offset;  ///< Norm::weight_offset(), which the numbers of the functions below contain

  /// Throws Error, in the name of `op`, for a norm without a weight for each channel.
  WeightAndBias(std::string_view op, const std::string& path, const Module& norm);
  /// Sets them so that the norm returns scale · v + shift.
  void set(double scale, double shift) const;
  /// Sets γ' and β' (calibrate.h) by mean and deviation of each channel of the old output and of v. A channel where v
  /// has no deviation gets `old_weight`; the others have its sign.
  void match(const MeanAndDeviation& output, const MeanAndDeviation& v, const std::vector<double>& old_weight) const;
};

/// The values of the tensor `name` of a module itself, those of a weight with its offset; `otherwise` for each channel
/// if it has none.
std::vector<double> values_of(const Module& module, const std::string& name, int64_t channels, double otherwise);
/// The weights of the old norm by which the new weights get their signs; 1 where it has none that is a factor.
std::vector<double> old_weights(const ChangedNorm& changed, int64_t channels);
/// Writes the values to a tensor of any floating dtype.
void write(const std::vector<double>& values, const Tensor& to);
/// The tensor of that name in a module itself, a parameter or a buffer; undefined if there is none.
Tensor tensor_of(const Module& module, const std::string& name);
/// True for a norm of single elements that has one factor of its inputs, the parameter alpha.
bool has_alpha(const Module& norm);
/// For such a norm in the place of another kind, alpha becomes its value over `root_mean_square` of the inputs, if that
/// is not 0.
void scale_alpha(const ChangedNorm& changed, double root_mean_square);

}  // namespace norma::nn
