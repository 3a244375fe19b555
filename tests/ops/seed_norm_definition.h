#pragma once

#include "composed_definitions.h"

namespace norma::test {

/// SeedNorm: at each pixel, with r = 1 / sqrt(mean of x² over the channels + eps), u = x r and t = tanh(sum of x beta),
/// y = (weight + t alpha) u. With g = dy (weight + t alpha) and ds = (1 - t²) * sum of dy alpha u,
/// dx = r (g - u mean(g u)) + beta ds, dweight = sum of dy u, dalpha = sum of dy u t, dbeta = sum of x ds.
inline NormValues seed_norm_definition(const ComposedInputs& in, const std::vector<double>& alpha,
                                       const std::vector<double>& beta, double eps) {
  NormValues out = zeros_for(in);
  std::vector<double> dalpha(in.channels), dbeta(in.channels);
  double alpha_size = 0, beta_size = 0;
  for (size_t image = 0; image < in.images; ++image) {
    for (size_t pixel = 0; pixel < in.pixels; ++pixel) {
      const auto at = [&](size_t c) { return (image * in.channels + c) * in.pixels + pixel; };
      double squares = 0, s = 0;
      for (size_t c = 0; c < in.channels; ++c) {
        squares += in.x[at(c)] * in.x[at(c)];
        s += in.x[at(c)] * beta[c];
      }
      const double r = 1 / std::sqrt(squares / static_cast<double>(in.channels) + eps);
      const double t = std::tanh(s);
      double mean = 0, dt = 0;  // mean of g u
      for (size_t c = 0; c < in.channels; ++c) {
        const double u = in.x[at(c)] * r;
        const double scale = in.weight[c] + t * alpha[c];
        out["y"][at(c)] = scale * u;
        out["dweight"][c] += in.dy[at(c)] * u;
        dalpha[c] += in.dy[at(c)] * u * t;
        alpha_size += std::abs(in.dy[at(c)] * u);
        dt += in.dy[at(c)] * alpha[c] * u;
        mean += in.dy[at(c)] * scale * u / static_cast<double>(in.channels);
      }
      for (size_t c = 0; c < in.channels; ++c) {
        const double ds = dt * (1 - t * t);
        const double direct = in.dy[at(c)] * (in.weight[c] + t * alpha[c]);
        out["dx"][at(c)] = r * (direct - in.x[at(c)] * r * mean) + beta[c] * ds;
        out["terms"].push_back(std::abs(r * direct) + std::abs(in.x[at(c)] * r * r * mean) + std::abs(beta[c] * ds));
        dbeta[c] += in.x[at(c)] * ds;
        beta_size += std::abs(in.x[at(c)] * ds);
      }
    }
  }
  out["dalphas"] = dalpha;
  out["dbeta"] = dbeta;
  out["terms"].push_back(alpha_size + beta_size);
  return out;
}

}  // namespace norma::test
