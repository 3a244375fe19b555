#pragma once

#include <norma/norma.h>

#include <span>

// The three parts of your norm. It normalizes each image as a whole: n = C · H · W numbers share one mean and one rstd.
//
//   y = xhat * weight + bias,  xhat = (x - mean) * rstd,  rstd = 1 / sqrt(var + kEps)
//
// weight and bias have one number for each channel. my_norm.cpp makes a layer of the parts.

inline constexpr double kEps = 1e-5;

/// The statistics of an image. T is float or double; compute in T.
template <class T>
struct MeanAndRstd {
  T mean = 0;
  T rstd = 1;
};

/// Gap 1: the statistics of an image.
template <class T>
MeanAndRstd<T> statistics_of(std::span<const T> x);

/// What the backward pass of an image is given, and where it writes. Each span has n numbers, one for each element.
template <class T>
struct Backward {
  MeanAndRstd<T> statistics;
  std::span<const T> x;
  std::span<const T> dy;      ///< the gradient that arrives
  std::span<const T> weight;  ///< the weight of each element's channel
  std::span<T> dx;            ///< to write
  std::span<double> dweight;  ///< to write, for each element; my_norm.cpp adds up those of a channel
  std::span<double> dbias;    ///< to write, as dweight
};

/// Gap 2: the gradients.
template <class T>
void backward_of(const Backward<T>& image);

/// Gap 3: the same norm made of Norma's ops, which are differentiable. x: (N, C, H, W); weight, bias: (C).
norma::Tensor norm_of_ops(const norma::Tensor& x, const norma::Tensor& weight, const norma::Tensor& bias);

/// Makes the norm known to Norma by the name "mine" (my_norm.cpp).
void register_my_norm();
