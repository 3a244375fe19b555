#pragma once

#include "ops/conv/conv.h"
#include "support.h"

#include <algorithm>
#include <map>
#include <numbers>

// The norms that are more than one normalize(), and convolutions with a standardised weight, by their formulas: plain
// loops in float64 over tensors in row-major order.

namespace norma::test {

/// Results by name: "y", "dx", "d" and the name of a parameter, "running_var"; "terms": what the results are sums and
/// differences of.
using NormValues = std::map<std::string, std::vector<double>>;

/// x (images, channels, pixels), the gradient of y, and the parameters, those that are absent as 1 or 0.
struct ComposedInputs {
  ComposedInputs(const Tensor& x_in, const Tensor& dy_in, const Tensor& weight_in, const Tensor& bias_in,
                 int64_t axis = 1)
      : x(x_in.to_vector<double>()), dy(dy_in.to_vector<double>()) {
    images = static_cast<size_t>(x_in.size(0));
    channels = static_cast<size_t>(x_in.size(axis));
    count = x.size();
    pixels = 1;
    for (int64_t behind = axis < 0 ? axis + x_in.rank() + 1 : axis + 1; behind < x_in.rank(); ++behind) {
      pixels *= static_cast<size_t>(x_in.size(behind));
    }
    weight = weight_in.defined() ? weight_in.to_vector<double>() : std::vector<double>(channels, 1);
    bias = bias_in.defined() ? bias_in.to_vector<double>() : std::vector<double>(channels, 0);
  }

  /// Channel, map (an image's channel) and group of element i.
  [[nodiscard]] size_t channel(size_t i) const { return i / pixels % channels; }
  [[nodiscard]] size_t map(size_t i) const { return i / pixels; }
  [[nodiscard]] size_t group(size_t i, size_t groups) const { return i / (pixels * (channels / groups)); }

  std::vector<double> x, dy, weight, bias;
  size_t images, channels, pixels, count;
};

/// All sums and products start from 0: y and dx have a number for each element, the rest for each channel.
inline NormValues zeros_for(const ComposedInputs& in) {
  const std::vector<double> elements(in.count), channels(in.channels);
  return {{"y", elements}, {"dx", elements}, {"dweight", channels}, {"dbias", channels}, {"terms", {}}};
}

/// y = u * weight + bias of each channel, dweight and dbias. Returns the gradient of u.
inline std::vector<double> scale_and_shift(const ComposedInputs& in, const std::vector<double>& u, NormValues& out) {
  std::vector<double>& y = out["y"];
  std::vector<double>& dweight = out["dweight"];
  std::vector<double>& dbias = out["dbias"];
  std::vector<double> du(in.count);
  for (size_t i = 0; i < in.count; ++i) {
    const size_t c = in.channel(i);
    y[i] = u[i] * in.weight[c] + in.bias[c];
    dweight[c] += in.dy[i] * u[i];
    dbias[c] += in.dy[i];
    du[i] = in.dy[i] * in.weight[c];
  }
  return du;
}

struct MeanAndVariance {
  std::vector<double> mean;
  std::vector<double> var;  ///< biased
};

/// Of the elements with the same set(i).
template <class Set>
MeanAndVariance moments(const ComposedInputs& in, Set&& set) {
  std::vector<double> count(in.count);
  MeanAndVariance result{std::vector<double>(in.count), std::vector<double>(in.count)};
  for (size_t i = 0; i < in.count; ++i) {
    result.mean[set(i)] += in.x[i];
    ++count[set(i)];
  }
  for (size_t s = 0; s < in.count; ++s) {
    result.mean[s] /= std::max(1.0, count[s]);
  }
  for (size_t i = 0; i < in.count; ++i) {
    const double d = in.x[i] - result.mean[set(i)];
    result.var[set(i)] += d * d / count[set(i)];
  }
  return result;
}

/// Whether values on both sides of an edge have been seen, and none so near to it that rounding could move it over.
struct BranchEdge {
  bool below = false;
  bool above = false;
  double nearest = INFINITY;

  void see(double difference) {
    below = below || difference < 0;
    above = above || difference > 0;
    nearest = std::min(nearest, std::abs(difference));
  }
};

/// Local response norm: with D = k + alpha / size * sum of x² over the window, y = x D^-beta and
/// dx = dy D^-beta - 2 alpha beta / size * x * sum of dy x D^(-beta - 1) over the windows that x is in.
inline NormValues local_response_definition(const ComposedInputs& in, int64_t window, double alpha, double beta,
                                            double k) {
  const double share = alpha / static_cast<double>(window);
  // f(other) for the elements `first` to `last` channels away, where they exist
  const auto for_window = [&](size_t i, int64_t first, int64_t last, auto&& f) {
    for (int64_t away = first; away <= last; ++away) {
      const int64_t channel = static_cast<int64_t>(in.channel(i)) + away;
      if (channel >= 0 && channel < static_cast<int64_t>(in.channels)) {
        f(static_cast<size_t>(static_cast<int64_t>(i) + away * static_cast<int64_t>(in.pixels)));
      }
    }
  };
  const int64_t below = window / 2;
  const int64_t above = (window - 1) / 2;
  std::vector<double> d(in.count, k), y, dx, terms;
  for (size_t i = 0; i < in.count; ++i) {
    for_window(i, -below, above, [&](size_t j) { d[i] += share * in.x[j] * in.x[j]; });
    y.push_back(in.x[i] * std::pow(d[i], -beta));
  }
  for (size_t i = 0; i < in.count; ++i) {
    double sum = 0;
    double size = 0;
    for_window(i, -above, below, [&](size_t j) {
      const double term = 2 * share * beta * in.x[i] * in.dy[j] * in.x[j] * std::pow(d[j], -beta - 1);
      sum += term;
      size += std::abs(term);
    });
    const double own = in.dy[i] * std::pow(d[i], -beta);
    dx.push_back(own - sum);
    terms.push_back(std::abs(own) + size);
  }
  return {{"y", y}, {"dx", dx}, {"terms", terms}};
}

/// EvoNorm B0: with L = sqrt(var of the channel + eps), or of `running_var` where it is used, R = v x +
/// sqrt(var of the map + eps) and D = max(L, R): y = x / D * weight + bias. With du = dy weight and dD = -du x / D²,
/// dx = du / D + dD v (where D is R) + (sum of dD) (x - mean) / (n deviation) for the map (where it is R) and for the
/// channel (where it is L, unless L is given).
inline NormValues evonorm_b0_definition(const ComposedInputs& in, const std::vector<double>& v, double eps,
                                        const std::vector<double>& running_var, bool training, double momentum,
                                        BranchEdge& edge) {
  NormValues out = zeros_for(in);
  out["dv"] = std::vector<double>(in.channels);
  std::vector<double>& dx = out["dx"];
  std::vector<double>& dv = out["dv"];
  std::vector<double>& terms = out["terms"];
  const auto channel = [&](size_t i) { return in.channel(i); };
  const auto map = [&](size_t i) { return in.map(i); };
  const MeanAndVariance of_channel = moments(in, channel);
  const MeanAndVariance of_map = moments(in, map);
  const bool given = !training && !running_var.empty();
  std::vector<double> left(in.channels), d(in.count), u(in.count);
  std::vector<bool> is_right(in.count);
  for (size_t c = 0; c < in.channels; ++c) {
    left[c] = std::sqrt((given ? running_var[c] : of_channel.var[c]) + eps);
  }
  for (size_t i = 0; i < in.count; ++i) {
    const double right = v[channel(i)] * in.x[i] + std::sqrt(of_map.var[map(i)] + eps);
    edge.see(right - left[channel(i)]);
    is_right[i] = right > left[channel(i)];
    d[i] = is_right[i] ? right : left[channel(i)];
    u[i] = in.x[i] / d[i];
  }
  const std::vector<double> du = scale_and_shift(in, u, out);
  std::vector<double> map_sums(in.count), channel_sums(in.channels), dv_size(in.channels);
  for (size_t i = 0; i < in.count; ++i) {
    const double dd = -du[i] * in.x[i] / (d[i] * d[i]);
    dx[i] = du[i] / d[i];
    if (is_right[i]) {
      dx[i] += dd * v[channel(i)];
      dv[channel(i)] += dd * in.x[i];
      dv_size[channel(i)] += std::abs(dd * in.x[i]);
      map_sums[map(i)] += dd;
    } else if (!given) {
      channel_sums[channel(i)] += dd;
    }
    terms.push_back(std::abs(du[i] / d[i]) + std::abs(dd * v[channel(i)]));
  }
  const auto in_map = static_cast<double>(in.pixels);
  const double in_channel = in_map * static_cast<double>(in.images);
  for (size_t i = 0; i < in.count; ++i) {
    const double by_map =
        map_sums[map(i)] * (in.x[i] - of_map.mean[map(i)]) / (in_map * std::sqrt(of_map.var[map(i)] + eps));
    const double by_channel =
        channel_sums[channel(i)] * (in.x[i] - of_channel.mean[channel(i)]) / (in_channel * left[channel(i)]);
    dx[i] += by_map + by_channel;
    terms.push_back(std::abs(by_map) + std::abs(by_channel));
  }
  terms.insert(terms.end(), dv_size.begin(), dv_size.end());
  if (!running_var.empty()) {
    out["running_var"] = running_var;
    for (size_t c = 0; c < in.channels && training; ++c) {
      out["running_var"][c] =
          (1 - momentum) * running_var[c] + momentum * of_channel.var[c] * in_channel / (in_channel - 1);
    }
  }
  return out;
}

/// EvoNorm S0: with g = x sigmoid(v x) and s = 1 / sqrt(var of the group + eps), y = g s weight + bias. With
/// du = dy weight, dx = du s (sigmoid + x v sigmoid (1 - sigmoid)) - s³ (x - mean) (sum of du g) / n.
inline NormValues evonorm_s0_definition(const ComposedInputs& in, const std::vector<double>& v, size_t groups,
                                        double eps) {
  NormValues out = zeros_for(in);
  out["dv"] = std::vector<double>(in.channels);
  std::vector<double>& dx = out["dx"];
  std::vector<double>& dv = out["dv"];
  std::vector<double>& terms = out["terms"];
  const auto group = [&](size_t i) { return in.group(i, groups); };
  const MeanAndVariance of_group = moments(in, group);
  std::vector<double> gate(in.count), s(in.count), u(in.count), sums(in.count), dv_size(in.channels);
  for (size_t i = 0; i < in.count; ++i) {
    gate[i] = 1 / (1 + std::exp(-v[in.channel(i)] * in.x[i]));
    s[i] = 1 / std::sqrt(of_group.var[group(i)] + eps);
    u[i] = in.x[i] * gate[i] * s[i];
  }
  const std::vector<double> du = scale_and_shift(in, u, out);
  for (size_t i = 0; i < in.count; ++i) {
    sums[group(i)] += du[i] * in.x[i] * gate[i];
    const double term = du[i] * s[i] * in.x[i] * in.x[i] * gate[i] * (1 - gate[i]);
    dv[in.channel(i)] += term;
    dv_size[in.channel(i)] += std::abs(term);
  }
  const double n = static_cast<double>(in.pixels * in.channels) / static_cast<double>(groups);
  for (size_t i = 0; i < in.count; ++i) {
    const double slope = gate[i] + in.x[i] * v[in.channel(i)] * gate[i] * (1 - gate[i]);
    const double direct = du[i] * s[i] * slope;
    const double by_group = s[i] * s[i] * s[i] * (in.x[i] - of_group.mean[group(i)]) * sums[group(i)] / n;
    dx[i] = direct - by_group;
    terms.push_back(std::abs(direct) + std::abs(by_group));
  }
  terms.insert(terms.end(), dv_size.begin(), dv_size.end());
  return out;
}

/// FRN: with s = 1 / sqrt(mean of x² over the map + eps), z = x s weight + bias and y = max(z, tau). Where z > tau
/// dz = dy, elsewhere dtau has it; dx = dz weight s - s³ x (sum of dz weight x) / n. Empty `tau`: nothing is cut off.
inline NormValues frn_definition(const ComposedInputs& given, const std::vector<double>& tau, double eps,
                                 BranchEdge& edge) {
  NormValues out = zeros_for(given);
  std::vector<double>& y = out["y"];
  std::vector<double>& dx = out["dx"];
  std::vector<double>& terms = out["terms"];
  std::vector<double> s(given.count), u(given.count), dtau(given.channels);
  for (size_t i = 0; i < given.count; ++i) {
    s[given.map(i)] += given.x[i] * given.x[i] / static_cast<double>(given.pixels);
  }
  for (double& value : s) {
    value = 1 / std::sqrt(value + eps);
  }
  ComposedInputs in = given;  // dy becomes dz
  for (size_t i = 0; i < in.count; ++i) {
    const size_t c = in.channel(i);
    u[i] = in.x[i] * s[in.map(i)];
    const double z = u[i] * in.weight[c] + in.bias[c];
    if (!tau.empty()) {
      edge.see(z - tau[c]);
      if (z < tau[c]) {
        dtau[c] += in.dy[i];
        in.dy[i] = 0;
      }
    }
  }
  const std::vector<double> du = scale_and_shift(in, u, out);
  std::vector<double> sums(in.count);
  for (size_t i = 0; i < in.count; ++i) {
    sums[in.map(i)] += du[i] * in.x[i];
    if (!tau.empty()) {
      y[i] = std::max(y[i], tau[in.channel(i)]);
    }
  }
  for (size_t i = 0; i < in.count; ++i) {
    const double scale = s[in.map(i)];
    const double by_map = scale * scale * scale * in.x[i] * sums[in.map(i)] / static_cast<double>(in.pixels);
    dx[i] = du[i] * scale - by_map;
    terms.push_back(std::abs(du[i] * scale) + std::abs(by_map));
  }
  out["dtau"] = dtau;
  return out;
}

/// GRN: with g = sqrt(sum of x² over the map), G = mean of g over the channels + eps and n = g / G,
/// y = x + weight x n + bias. With a = weight * sum of dy x over the map and dg = a / G - (sum of a g over the
/// channels) / (channels G²), dx = dy (1 + weight n) + dg x / g.
inline NormValues grn_definition(const ComposedInputs& in, double eps) {
  NormValues out = zeros_for(in);
  std::vector<double>& y = out["y"];
  std::vector<double>& dx = out["dx"];
  std::vector<double>& dweight = out["dweight"];
  std::vector<double>& dbias = out["dbias"];
  std::vector<double>& terms = out["terms"];
  const size_t maps = in.images * in.channels;
  std::vector<double> g(maps), a(maps), total(in.images), sums(in.images);
  for (size_t i = 0; i < in.count; ++i) {
    g[in.map(i)] += in.x[i] * in.x[i];
    a[in.map(i)] += in.dy[i] * in.x[i] * in.weight[in.channel(i)];
  }
  for (size_t map = 0; map < maps; ++map) {
    g[map] = std::sqrt(g[map]);
    total[map / in.channels] += g[map] / static_cast<double>(in.channels);
    sums[map / in.channels] += a[map] * g[map];
  }
  for (double& value : total) {
    value += eps;
  }
  for (size_t i = 0; i < in.count; ++i) {
    const size_t c = in.channel(i);
    const size_t map = in.map(i);
    const double mean = total[map / in.channels];
    const double n = g[map] / mean;
    const double by_own = a[map] / mean;
    const double by_mean = sums[map / in.channels] / (static_cast<double>(in.channels) * mean * mean);
    const double direction = g[map] == 0 ? 0 : in.x[i] / g[map];
    y[i] = in.x[i] + in.weight[c] * in.x[i] * n + in.bias[c];
    dx[i] = in.dy[i] * (1 + in.weight[c] * n) + (by_own - by_mean) * direction;
    dweight[c] += in.dy[i] * in.x[i] * n;
    dbias[c] += in.dy[i];
    terms.push_back(std::abs(in.dy[i] * (1 + in.weight[c] * n)) + std::abs(by_own) + std::abs(by_mean));
  }
  return out;
}

/// DyT: y = tanh(alpha x) weight + bias, dx = dy weight alpha (1 - tanh²), dalpha = sum of dy weight x (1 - tanh²).
inline NormValues dyt_definition(const ComposedInputs& in, double alpha) {
  NormValues out = zeros_for(in);
  std::vector<double>& dx = out["dx"];
  std::vector<double>& terms = out["terms"];
  std::vector<double> t;
  for (const double x : in.x) {
    t.push_back(std::tanh(alpha * x));
  }
  const std::vector<double> du = scale_and_shift(in, t, out);
  double dalpha = 0;
  double size = 0;
  for (size_t i = 0; i < in.count; ++i) {
    const double slope = du[i] * (1 - t[i] * t[i]);
    dx[i] = alpha * slope;
    dalpha += slope * in.x[i];
    size += std::abs(slope * in.x[i]);
  }
  out["dalpha"] = {dalpha};
  terms.push_back(size);
  return out;
}

/// Derf: y = erf(z) weight + bias with z = alpha x + shift; dx = dy weight alpha erf'(z), dshift = sum of dy weight
/// erf'(z), dalpha = sum of dy weight x erf'(z); erf'(z) = 2 / sqrt(pi) e^(-z²).
inline NormValues derf_definition(const ComposedInputs& in, double alpha, double shift) {
  NormValues out = zeros_for(in);
  std::vector<double>& dx = out["dx"];
  std::vector<double> e;
  for (const double x : in.x) {
    e.push_back(std::erf(alpha * x + shift));
  }
  const std::vector<double> du = scale_and_shift(in, e, out);
  double dalpha = 0;
  double dshift = 0;
  double size = 0;
  for (size_t i = 0; i < in.count; ++i) {
    const double z = alpha * in.x[i] + shift;
    const double slope = du[i] * 2 / std::sqrt(std::numbers::pi) * std::exp(-z * z);
    dx[i] = alpha * slope;
    dalpha += slope * in.x[i];
    dshift += slope;
    size += std::abs(slope * in.x[i]) + std::abs(slope);
  }
  out["dalpha"] = {dalpha};
  out["dshift"] = {dshift};
  out["terms"].push_back(size);
  return out;
}

/// A convolution with u = (weight - mean) s factor of each output channel in the place of its weight, with
/// s = 1 / sqrt(var + eps) and factor = gamma / sqrt(fan-in) * gain, or 1 where `gain` is undefined. With du the
/// gradient of a convolution's weight and g = du factor, dgain = sum of du u / gain and
/// dweight = s (g - mean(g)) - s³ (weight - mean) mean(g (weight - mean)).
inline NormValues std_conv_definition(const Tensor& x_in, const Tensor& dy_in, const Tensor& weight_in,
                                      const Tensor& bias_in, const Tensor& gain_in, const Conv2dOptions& options,
                                      double gamma, double eps) {
  const std::vector<double> x = x_in.to_vector<double>();
  const std::vector<double> dy = dy_in.to_vector<double>();
  const std::vector<double> weight = weight_in.to_vector<double>();
  const auto out_channels = static_cast<size_t>(weight_in.size(0));
  const size_t fan_in = weight.size() / out_channels;
  const auto n = static_cast<double>(fan_in);
  const std::vector<double> bias =
      bias_in.defined() ? bias_in.to_vector<double>() : std::vector<double>(out_channels, 0);
  const std::vector<double> gain =
      gain_in.defined() ? gain_in.to_vector<double>() : std::vector<double>(out_channels, 1);
  const double factor = gain_in.defined() ? gamma / std::sqrt(n) : 1;

  std::vector<double> mean(out_channels), s(out_channels), u(weight.size());
  for (size_t o = 0; o < out_channels; ++o) {
    double var = 0;
    for (size_t i = 0; i < fan_in; ++i) {
      mean[o] += weight[o * fan_in + i] / n;
    }
    for (size_t i = 0; i < fan_in; ++i) {
      var += (weight[o * fan_in + i] - mean[o]) * (weight[o * fan_in + i] - mean[o]) / n;
    }
    s[o] = 1 / std::sqrt(var + eps);
    for (size_t i = 0; i < fan_in; ++i) {
      u[o * fan_in + i] = (weight[o * fan_in + i] - mean[o]) * s[o] * factor * gain[o];
    }
  }

  std::vector<double> y(dy.size()), y_size(dy.size()), dx(x.size()), dx_size(x.size()), du(weight.size()),
      du_size(weight.size()), dbias(out_channels);
  const int64_t in_per_group = weight_in.size(1);
  const int64_t out_per_group = weight_in.size(0) / options.groups;
  size_t at = 0;
  for (int64_t image = 0; image < x_in.size(0); ++image) {
    for (int64_t o = 0; o < weight_in.size(0); ++o) {
      for (int64_t h = 0; h < dy_in.size(2); ++h) {
        for (int64_t w = 0; w < dy_in.size(3); ++w, ++at) {
          y[at] = bias[static_cast<size_t>(o)];
          y_size[at] = std::abs(y[at]);
          dbias[static_cast<size_t>(o)] += dy[at];
          size_t k = static_cast<size_t>(o) * fan_in;
          for (int64_t c = 0; c < in_per_group; ++c) {
            for (int64_t kh = 0; kh < weight_in.size(2); ++kh) {
              for (int64_t kw = 0; kw < weight_in.size(3); ++kw, ++k) {
                const int64_t row = h * options.stride.h - options.padding.h + kh * options.dilation.h;
                const int64_t column = w * options.stride.w - options.padding.w + kw * options.dilation.w;
                if (row < 0 || row >= x_in.size(2) || column < 0 || column >= x_in.size(3)) {
                  continue;
                }
                const int64_t channel = o / out_per_group * in_per_group + c;
                const auto i = static_cast<size_t>(
                    ((image * x_in.size(1) + channel) * x_in.size(2) + row) * x_in.size(3) + column);
                y[at] += x[i] * u[k];
                y_size[at] += std::abs(x[i] * u[k]);
                dx[i] += dy[at] * u[k];
                dx_size[i] += std::abs(dy[at] * u[k]);
                du[k] += dy[at] * x[i];
                du_size[k] += std::abs(dy[at] * x[i]);
              }
            }
          }
        }
      }
    }
  }

  std::vector<double> dweight(weight.size()), dgain(out_channels), terms;
  for (size_t o = 0; o < out_channels; ++o) {
    double g_mean = 0;
    double gd_mean = 0;
    for (size_t k = o * fan_in; k < (o + 1) * fan_in; ++k) {
      const double g = du[k] * factor * gain[o];
      g_mean += g / n;
      gd_mean += g * (weight[k] - mean[o]) / n;
      dgain[o] += du[k] * (weight[k] - mean[o]) * s[o] * factor;
    }
    for (size_t k = o * fan_in; k < (o + 1) * fan_in; ++k) {
      dweight[k] = s[o] * (du[k] * factor * gain[o] - g_mean) - s[o] * s[o] * s[o] * (weight[k] - mean[o]) * gd_mean;
      terms.push_back(du_size[k] * std::max(1.0, s[o] * factor * std::abs(gain[o])));
    }
  }
  for (const std::vector<double>* sizes : {&y_size, &dx_size}) {
    terms.insert(terms.end(), sizes->begin(), sizes->end());
  }
  NormValues out = {{"y", y}, {"dx", dx}, {"dweight", dweight}, {"dbias", dbias}, {"terms", terms}};
  if (gain_in.defined()) {
    out["dgain"] = dgain;
  }
  return out;
}

}  // namespace norma::test
