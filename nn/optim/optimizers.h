#pragma once

#include "nn/optim/optimizer.h"

#include <string>
#include <vector>

namespace norma::kernels {
struct SgdStep;  // ops/optimizer/kernels.h
struct AdamWStep;
struct LambStep;
}  // namespace norma::kernels

namespace norma::nn {

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;  ///< needs momentum and no dampening
};

/// Stochastic gradient descent (SGD), as in PyTorch:
///   g = gradient + weight_decay · p;  v = momentum · v + (1 - dampening) · g (v = g the first time);
///   p -= lr · v, or with Nesterov p -= lr · (g + momentum · v).
class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"momentum"}; }
  void update(const std::vector<Update>& updates) override;
  [[nodiscard]] std::vector<double> numbers_of(const ParameterGroup& group, int64_t number) const override;

 private:
  /// `first`: of a parameter without a velocity.
  [[nodiscard]] kernels::SgdStep step_of(const ParameterGroup& group, bool first) const;

  SgdOptions options_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

/// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), as in PyTorch. In the t-th update of
/// a parameter:
///   p *= 1 - lr · weight_decay;  m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
///   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps).
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const std::vector<Update>& updates) override;
  [[nodiscard]] std::vector<double> numbers_of(const ParameterGroup& group, int64_t number) const override;

 private:
  /// The numbers of the update with this number, from 1.
  [[nodiscard]] kernels::AdamWStep step_of(const ParameterGroup& group, int64_t number) const;

  AdamWOptions options_;
};

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double max_grad_norm = 1;  ///< gradients whose norm together is larger are first scaled down to it; 0: not scaled
};

/// LAMB (You et al., "Large batch optimization for deep learning", 2020), as timm's Lamb: AdamW's direction, including
/// the decay, scaled to the norm of the parameter:
///   m, v as AdamW, of g / max(1, |all g| / max_grad_norm);
///   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay · p;  p -= lr · r · u
/// with the trust ratio r = |p| / |u|, or 1 if either is 0 and for groups without weight decay, where t is steps(). The
/// gradients are not changed, and the host does not wait for the device.
class Lamb : public Optimizer {
 public:
  explicit Lamb(std::vector<ParameterGroup> groups, const LambOptions& options = {});

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void begin_step() override;
  void update(const std::vector<Update>& updates) override;
  [[nodiscard]] std::vector<double> numbers_of(const ParameterGroup& group, int64_t number) const override;

 private:
  /// The numbers of step number `step`, from 1.
  [[nodiscard]] kernels::LambStep step_of(const ParameterGroup& group, int64_t step) const;

  LambOptions options_;
  Tensor divisor_;  // of the gradients in this step: float64, of rank 0; undefined: 1
};

struct RmsPropTfOptions {
  double lr = 1e-2;
  double alpha = 0.9;
  double eps = 1e-10;
  double momentum = 0;
};

/// RMSprop as in TensorFlow and timm's RMSpropTF: eps stands inside the root, the average of squares begins at 1, and
/// the velocity includes the learning rate:
///   g = gradient + weight_decay · p;  s = s + (1 - alpha) · (g² - s);  v = momentum · v + lr · g / sqrt(s + eps);
///   p -= v.
/// It is made of tensor functions, so its steps cannot be recorded (can_be_recorded()).
class RmsPropTf : public Optimizer {
 public:
  explicit RmsPropTf(std::vector<ParameterGroup> groups, const RmsPropTfOptions& options = {});

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"square_avg", "momentum"}; }
  void update(const std::vector<Update>& updates) override;

 private:
  RmsPropTfOptions options_;
};

struct MuonOptions {
  double lr = 0.02;
  double momentum = 0.95;
  int64_t newton_schulz_steps = 5;
  double eps = 1e-7;    ///< AdamW's
  double beta1 = 0.9;   ///< of AdamW
  double beta2 = 0.95;  ///< of AdamW
};

/// Muon (Jordan et al., 2024), as timm's with its defaults: the momentum of a weight matrix is made orthogonal, so that
/// all directions of the step are equally long. A filter (out, in, h, w) is a matrix of out rows:
///   m = momentum · m + (1 - momentum) · g;  p *= 1 - lr · weight_decay;
///   p -= lr · 0.2 · sqrt(max(rows, columns)) · orthogonal(m).
/// orthogonal(m) is found by a few steps of Newton and Schulz's iteration, from X = m / |m|:
///   A = X Xᵀ;  X = a · X + (b · A + c · A²) X,
/// with numbers a, b, c for each step. It is computed in the dtype of the master weights; timm computes it in bfloat16.
/// The other parameters take AdamW's step with the same learning rate: vectors, depthwise filters, matrices with fewer
/// than 4 rows or columns, and matrices with more than 128 times as many rows as columns or columns as rows. Muon is
/// made of tensor functions, so its steps cannot be recorded (can_be_recorded()).
class Muon : public Optimizer {
 public:
  explicit Muon(std::vector<ParameterGroup> groups, const MuonOptions& options = {});
  /// True for the sizes of a parameter whose steps are made orthogonal.
  [[nodiscard]] static bool orthogonalizes(const Sizes& sizes);

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"momentum", "exp_avg", "exp_avg_sq"}; }
  void update(const std::vector<Update>& updates) override;

 private:
  void update_matrix(const Update& update) const;

  MuonOptions options_;
};

/// The matrix U Vᵀ of a matrix U S Vᵀ, to a few percent of each singular value: see Muon. x: (rows, columns).
Tensor newton_schulz(const Tensor& x, int64_t steps = 5);

}  // namespace norma::nn
