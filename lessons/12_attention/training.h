#pragma once

#include <norma/norma.h>

#include <cmath>
#include <cstdint>

using namespace norma;  // NOLINT: a lesson reads better without prefixes

inline Tensor random(const Sizes& sizes, uint64_t seed) {
  Generator generator(seed);
  return randn(sizes, {.dtype = DType::float64}, generator);
}

struct Trained {
  double loss = 0;           ///< the mean of the last 20 steps
  double largest_logit = 0;  ///< of the last step
};

/// One head learns, in 300 steps of SGD, to find the token that a query names: the query is one of 16 tokens, a little
/// changed, and the loss is the cross entropy of the probabilities of attention. Only the weights of q and k, and those
/// of their norms, are trained.
inline Trained train_head(bool qk_norm, double rate) {
  constexpr int64_t kTokens = 16;
  constexpr int64_t kE = 8;
  Generator data(7);
  const TensorOptions options{.dtype = DType::float64};
  Tensors weights = {random({kE, kE}, 8) / std::sqrt(8.0), random({kE, kE}, 9) / std::sqrt(8.0), ones({kE}, options),
                     ones({kE}, options)};
  for (Tensor& weight : weights) {
    weight.set_requires_grad();
  }
  double recent = 0;
  double largest = 0;
  for (int step = 0; step < 300; ++step) {
    const Tensor keys = randn({32, kTokens, kE}, options, data);
    const Tensor target = randint(0, kTokens, {32}, {.dtype = DType::int64}, data);
    Tensors asked;
    for (int64_t n = 0; n < 32; ++n) {
      asked.push_back(narrow(select(keys, 0, n), 0, target.to_vector<int64_t>()[static_cast<size_t>(n)], 1));
    }
    const Tensor queries = stack(asked, 0) + randn({32, 1, kE}, options, data) * 0.1;
    Tensor q = matmul(queries, weights[0]);
    Tensor k = matmul(keys, weights[1]);
    if (qk_norm) {
      q = rms_norm(q, {kE}, weights[2]);
      k = rms_norm(k, {kE}, weights[3]);
    }
    const Tensor z = view(matmul(q, transpose(k, 1, 2)), {32, kTokens}) / std::sqrt(static_cast<double>(kE));
    const Tensor loss = cross_entropy(z, target);
    backward(loss);
    recent += step < 280 ? 0 : loss.item<double>() / 20;
    largest = max(abs(z.detach())).item<double>();
    const NoGradGuard guard;
    for (Tensor& weight : weights) {
      if (weight.grad().defined()) {
        add_(weight, weight.grad() * -rate);
        weight.set_grad({});
      }
    }
  }
  return {.loss = recent, .largest_logit = largest};
}
