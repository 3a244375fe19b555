#pragma once

#include "nn/norm/norm.h"

#include <memory>
#include <optional>
#include <utility>

namespace norma::nn {

// Norms that keep statistics. They have the parameters weight and bias, the buffers running_mean and running_var, all
// of (channels), and the buffer num_batches_tracked (int64, of rank 0). ops/norm/norm.h lists where other libraries
// differ.

/// The part that all of them share.
class StatisticsNorm : public Norm {
 public:
  [[nodiscard]] int64_t channels() const override { return channels_; }
  /// Invariance::none where the running statistics normalize: they do not follow a change of this input.
  [[nodiscard]] Invariance invariance() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }
  [[nodiscard]] const Tensor& running_mean() const { return running_mean_; }
  [[nodiscard]] const Tensor& running_var() const { return running_var_; }

 protected:
  StatisticsNorm(std::string_view layer, int64_t channels, double eps);
  void register_tensors(bool with_weight, bool with_bias, bool with_statistics);

  int64_t channels_;
  Tensor weight_;
  Tensor bias_;
  Tensor running_mean_;
  Tensor running_var_;
  Tensor num_batches_tracked_;
};

struct BatchNormLayerOptions {
  double eps = norma::BatchNormOptions{}.eps;
  /// Share of the new batch in the running statistics; none: their plain average over all batches; 0: they are frozen.
  /// In Keras, Flax (0.99) and Paddle (0.9), momentum is the share of the old ones, 1 - ours.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool bias = true;                 ///< false: affine is a weight alone
  bool track_running_stats = true;  ///< false: batch statistics also in evaluation
  Statistics statistics = Statistics::stable;
  bool biased_running_var = false;  ///< as Keras, Flax and Paddle keep it
};

/// The part that the batch norms share: inputs have `low` to `high` axes (N, channels, …).
class BatchNorm : public StatisticsNorm {
 public:
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override;
  /// None without running statistics.
  [[nodiscard]] std::optional<StatisticSets> sets() const override;
  [[nodiscard]] std::optional<BatchEvaluation> evaluation() const override;
  [[nodiscard]] const BatchNormLayerOptions& options() const { return options_; }
  /// In training, x is a part of a batch from now on: see BatchNormOptions::parts. Ghost batch norm and batch renorm
  /// throw Error.
  virtual void set_parts(std::shared_ptr<const PartsOfBatch> parts) { parts_ = std::move(parts); }
  /// True iff the running statistics are those of all parts, the same in all processes.
  [[nodiscard]] bool has_parts() const { return parts_ != nullptr; }
  /// The number of batches seen in training; 0 without statistics.
  [[nodiscard]] int64_t num_batches_tracked() const;

 protected:
  BatchNorm(std::string layer, int64_t channels, int64_t low, int64_t high, const BatchNormLayerOptions& options);
  /// Runs the op itself. `options` has the momentum of this call.
  virtual Tensor apply(const Tensor& x, const norma::BatchNormOptions& options, const ActOptions& then);
  /// The text of name() behind the channels: ", sub_batch=32".
  [[nodiscard]] virtual std::string own_options() const { return ""; }

 private:
  std::string layer_;
  int64_t low_;
  int64_t high_;
  BatchNormLayerOptions options_;
  std::shared_ptr<const PartsOfBatch> parts_;
};

/// Batch norm of (N, channels) or (N, channels, L).
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm("BatchNorm1d", channels, 2, 3, options) {}
};
/// Batch norm of (N, channels, H, W).
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm("BatchNorm2d", channels, 4, 4, options) {}
};
/// Batch norm of (N, channels, H, W) over the images of all processes that train together, as PyTorch's SyncBatchNorm.
/// Training calls set_parts() (train/processes.h); in one process it is BatchNorm2d.
class SyncBatchNorm2d : public BatchNorm {
 public:
  explicit SyncBatchNorm2d(int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm("SyncBatchNorm2d", channels, 4, 4, options) {}
};
/// Batch norm of (N, channels, D, H, W).
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm("BatchNorm3d", channels, 5, 5, options) {}
};

/// Batch norm of each `sub_batch` images of (N, channels, H, W) on their own; see ghost_batch_norm().
class GhostBatchNorm2d : public BatchNorm {
 public:
  GhostBatchNorm2d(int64_t channels, int64_t sub_batch, const BatchNormLayerOptions& options = {});
  void set_parts(std::shared_ptr<const PartsOfBatch> parts) override;

 protected:
  Tensor apply(const Tensor& x, const norma::BatchNormOptions& options, const ActOptions& then) override;
  [[nodiscard]] std::string own_options() const override;

 private:
  int64_t sub_batch_;
};

/// The steps of training in which the bounds of batch renorm grow from 1 and 0, where it is batch norm. They are
/// counted by num_batches_tracked, so that a checkpoint knows the position. All 0: the bounds do not change. The paper
/// (Ioffe, 2017) has 5000, 35000 and 20000.
struct BatchRenormSchedule {
  int64_t warmup_steps = 0;  ///< as batch norm
  int64_t r_ramp_steps = 0;  ///< after these, the bound of r grows in equal steps to r_max
  int64_t d_ramp_steps = 0;  ///< likewise for d_max
};

/// Batch renorm of (N, channels, H, W); see batch_renorm(). The running statistics must be tracked.
class BatchRenorm2d : public BatchNorm {
 public:
  explicit BatchRenorm2d(int64_t channels, double r_max = 3, double d_max = 5,
                         const BatchNormLayerOptions& options = {}, const BatchRenormSchedule& schedule = {});
  /// Sets the bounds at which a schedule, if any, ends. Throws Error unless r_max >= 1 and d_max >= 0.
  void set_bounds(double r_max, double d_max);
  /// Invariance::none: within its bounds it normalizes by the running statistics.
  [[nodiscard]] Invariance invariance() const override { return Invariance::none; }
  [[nodiscard]] double r_max() const { return r_max_; }
  [[nodiscard]] double d_max() const { return d_max_; }
  void set_parts(std::shared_ptr<const PartsOfBatch> parts) override;

 protected:
  Tensor apply(const Tensor& x, const norma::BatchNormOptions& options, const ActOptions& then) override;
  [[nodiscard]] std::string own_options() const override;

 private:
  double r_max_ = 1;
  double d_max_ = 0;
  BatchRenormSchedule schedule_;
};

/// Batch norm of (N, channels, H, W) whose statistics, weight and bias are all buffers, so nothing of it is trained. As
/// in torchvision, it has no num_batches_tracked.
class FrozenBatchNorm2d : public StatisticsNorm {
 public:
  explicit FrozenBatchNorm2d(int64_t channels, double eps = norma::BatchNormOptions{}.eps);
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] Invariance invariance() const override { return Invariance::none; }
  [[nodiscard]] std::optional<StatisticSets> sets() const override { return StatisticSets{.channels = 1, .eps = eps_}; }
  [[nodiscard]] std::optional<BatchEvaluation> evaluation() const override {
    return BatchEvaluation{running_mean_, running_var_, weight_, bias_, eps_};
  }
  [[nodiscard]] double eps() const { return eps_; }

 private:
  double eps_;
};

struct InstanceNormLayerOptions {
  double eps = norma::InstanceNormOptions{}.eps;
  double momentum = 0.1;             ///< as BatchNormLayerOptions::momentum, but never none
  bool affine = false;               ///< PyTorch's default; Flax's is true
  bool bias = true;                  ///< false: affine is a weight alone
  bool track_running_stats = false;  ///< running statistics in evaluation
  Statistics statistics = Statistics::stable;
};

/// The part that the instance norms share: statistics over all axes behind the channels. x: (N, channels, …), or one
/// image without the N. As in PyTorch, num_batches_tracked exists with the statistics, but nothing counts it.
class InstanceNorm : public StatisticsNorm {
 public:
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::optional<StatisticSets> sets() const override {
    return StatisticSets{.channels = 1, .eps = options_.eps};
  }
  [[nodiscard]] double eps() const { return options_.eps; }

 protected:
  /// `axes`: the number of axes behind the channels.
  InstanceNorm(int64_t axes, int64_t channels, const InstanceNormLayerOptions& options);

 private:
  int64_t axes_;
  InstanceNormLayerOptions options_;
};

/// Instance norm of (N, channels, L) or (channels, L).
class InstanceNorm1d : public InstanceNorm {
 public:
  explicit InstanceNorm1d(int64_t channels, const InstanceNormLayerOptions& options = {})
      : InstanceNorm(1, channels, options) {}
};
/// Instance norm of (N, channels, H, W) or (channels, H, W).
class InstanceNorm2d : public InstanceNorm {
 public:
  explicit InstanceNorm2d(int64_t channels, const InstanceNormLayerOptions& options = {})
      : InstanceNorm(2, channels, options) {}
};
/// Instance norm of (N, channels, D, H, W) or (channels, D, H, W).
class InstanceNorm3d : public InstanceNorm {
 public:
  explicit InstanceNorm3d(int64_t channels, const InstanceNormLayerOptions& options = {})
      : InstanceNorm(3, channels, options) {}
};

}  // namespace norma::nn
