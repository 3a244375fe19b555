#include "core/copy.h"
#include "core/factory.h"
#include "lab/audit/composite.h"
#include "ops/map_norm/norms.h"
#include "ops/norm/norm.h"

#include <algorithm>
#include <cmath>

namespace norma::lab::audit {

namespace {

using Arguments = CompositeArguments;
using Length = CompositeParameter::Length;

constexpr int64_t kSubBatch = 2;
constexpr int64_t kGroups = 2;
constexpr int64_t kWindow = 5;
constexpr double kRMax = 3;
constexpr double kDMax = 5;

constexpr CompositeParameter kWeight{.length = Length::channels, .low = 0.5};
constexpr CompositeParameter kBias{.length = Length::channels, .low = -0.25, .is_bias = true};

Dual constant(long double value) {
  return {.value = value};
}

/// Indices of x (N, C, H, W), in row-major order.
struct Places {
  explicit Places(const Sizes& sizes)
      : channels(static_cast<size_t>(sizes[1])),
        images(static_cast<size_t>(sizes[0])),
        pixels(static_cast<size_t>(sizes[2] * sizes[3])) {}
  [[nodiscard]] size_t channel(size_t i) const { return i / pixels % channels; }
  [[nodiscard]] size_t image(size_t i) const { return i / pixels / channels; }
  [[nodiscard]] size_t map(size_t i) const { return i / pixels; }

  size_t channels;
  size_t images;
  size_t pixels;
};

struct Moments {
  std::vector<Dual> mean;
  std::vector<Dual> rest;      ///< the part of the mean that rounding lost
  std::vector<Dual> variance;  ///< biased
  [[nodiscard]] Dual centred(const Dual& x, size_t set) const { return (x - mean[set]) - rest[set]; }
};

/// mean = sum(x) / n, var = sum((x - mean)²) / n over the elements with the same set_of(i).
template <class SetOf>
Moments moments(const std::vector<Dual>& x, size_t sets, const SetOf& set_of) {
  Moments m{std::vector<Dual>(sets), std::vector<Dual>(sets), std::vector<Dual>(sets)};
  std::vector<long double> count(sets, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    count[set_of(i)] += 1;
  }
  for (std::vector<Dual>* part : {&m.mean, &m.rest}) {
    std::vector<Dual> sums(sets);
    for (size_t i = 0; i < x.size(); ++i) {
      sums[set_of(i)] = sums[set_of(i)] + m.centred(x[i], set_of(i));
    }
    for (size_t set = 0; set < sets; ++set) {
      (*part)[set] = sums[set] * constant(1 / count[set]);
    }
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t set = set_of(i);
    const Dual d = m.centred(x[i], set);
    m.variance[set] = m.variance[set] + d * d;
  }
  for (size_t set = 0; set < sets; ++set) {
    m.variance[set] = m.variance[set] * constant(1 / count[set]);
  }
  return m;
}

/// sqrt(var + eps)
Dual deviation(const Dual& variance, double eps) {
  return sqrt(variance + constant(eps));
}

/// The sum of x² of each map.
std::vector<Dual> square_sums(const Arguments& a, const Places& places) {
  std::vector<Dual> sums(places.images * places.channels);
  for (size_t i = 0; i < a.x.size(); ++i) {
    sums[places.map(i)] = sums[places.map(i)] + a.x[i] * a.x[i];
  }
  return sums;
}

/// f(i, channel of i) for each element i.
template <class F>
std::vector<Dual> outputs(const Arguments& a, const F& f) {
  const Places places(a.sizes);
  std::vector<Dual> y;
  for (size_t i = 0; i < a.x.size(); ++i) {
    y.push_back(f(i, places.channel(i)));
  }
  return y;
}

std::vector<Dual> ghost_batch(const Arguments& a) {
  const Places places(a.sizes);
  const size_t parts = (places.images + kSubBatch - 1) / kSubBatch;
  const auto set_of = [&](size_t i) { return places.image(i) / kSubBatch * places.channels + places.channel(i); };
  const Moments m = moments(a.x, parts * places.channels, set_of);
  return outputs(a, [&](size_t i, size_t c) {
    return m.centred(a.x[i], set_of(i)) / deviation(m.variance[set_of(i)], a.eps) * a.parameters[0][c] +
           a.parameters[1][c];
  });
}

/// The running mean of a channel; the running variance is 1.
double running_mean_of(size_t channel) {
  return 0.25 * static_cast<double>(channel);
}

// y = (xhat * r + d) * weight + bias; r and d come from the batch's values and are constants for the gradient
std::vector<Dual> batch_renorm_definition(const Arguments& a) {
  const Places places(a.sizes);
  const Moments m = moments(a.x, places.channels, [&](size_t i) { return places.channel(i); });
  const long double running = std::sqrt(1 + static_cast<long double>(a.eps));
  return outputs(a, [&](size_t i, size_t c) {
    const Dual s = deviation(m.variance[c], a.eps);
    const long double mean = m.mean[c].value + m.rest[c].value;
    const long double r = std::clamp<long double>(s.value / running, 1 / kRMax, kRMax);
    const long double d = std::clamp<long double>((mean - running_mean_of(c)) / running, -kDMax, kDMax);
    return (m.centred(a.x[i], c) / s * constant(r) + constant(d)) * a.parameters[0][c] + a.parameters[1][c];
  });
}

// x / max(sqrt(var_batch + eps), v * x + sqrt(var_instance + eps)) * weight + bias
std::vector<Dual> evonorm_b0(const Arguments& a) {
  const Places places(a.sizes);
  const Moments batch = moments(a.x, places.channels, [&](size_t i) { return places.channel(i); });
  const Moments instance = moments(a.x, places.images * places.channels, [&](size_t i) { return places.map(i); });
  return outputs(a, [&](size_t i, size_t c) {
    const Dual right = a.parameters[2][c] * a.x[i] + deviation(instance.variance[places.map(i)], a.eps);
    const Dual divisor = maximum(right, deviation(batch.variance[c], a.eps));
    return a.x[i] / divisor * a.parameters[0][c] + a.parameters[1][c];
  });
}

// x * sigmoid(v * x) / sqrt(var_group + eps) * weight + bias
std::vector<Dual> evonorm_s0(const Arguments& a) {
  const Places places(a.sizes);
  const size_t per_group = std::max<size_t>(1, places.channels / kGroups);
  const auto set_of = [&](size_t i) { return places.map(i) / per_group; };
  const Moments m = moments(a.x, places.images * places.channels / per_group, set_of);
  return outputs(a, [&](size_t i, size_t c) {
    const Dual gate = sigmoid(a.parameters[2][c] * a.x[i]);
    return a.x[i] / deviation(m.variance[set_of(i)], a.eps) * gate * a.parameters[0][c] + a.parameters[1][c];
  });
}

// max(x / sqrt(mean(x²) + eps) * weight + bias, tau)
std::vector<Dual> filter_response(const Arguments& a) {
  const Places places(a.sizes);
  const std::vector<Dual> sums = square_sums(a, places);
  const Dual share = constant(1 / static_cast<long double>(places.pixels));
  return outputs(a, [&](size_t i, size_t c) {
    const Dual xhat = a.x[i] / deviation(sums[places.map(i)] * share, a.eps);
    return maximum(xhat * a.parameters[0][c] + a.parameters[1][c], a.parameters[2][c]);
  });
}

// x + weight * x * n + bias, n = g / (mean of g over the channels + eps), g = sqrt(sum of x² of the map)
std::vector<Dual> global_response(const Arguments& a) {
  const Places places(a.sizes);
  std::vector<Dual> g;
  for (const Dual& sum : square_sums(a, places)) {
    g.push_back(sqrt(sum));
  }
  std::vector<Dual> means(places.images);
  for (size_t map = 0; map < g.size(); ++map) {
    means[map / places.channels] =
        means[map / places.channels] + g[map] * constant(1 / static_cast<long double>(places.channels));
  }
  return outputs(a, [&](size_t i, size_t c) {
    const Dual n = g[places.map(i)] / (means[places.image(i)] + constant(a.eps));
    return a.x[i] + a.parameters[0][c] * a.x[i] * n + a.parameters[1][c];
  });
}

// x * (k + alpha / size * sum of x² over the window of channels) ^ -beta
std::vector<Dual> local_response(const Arguments& a) {
  const Places places(a.sizes);
  const LocalResponseNormOptions options;
  const Dual factor = constant(static_cast<long double>(options.alpha) / kWindow);
  return outputs(a, [&](size_t i, size_t c) {
    Dual sum;
    for (size_t from = 0; from < places.channels; ++from) {
      if (from + kWindow / 2 >= c && from <= c + (kWindow - 1) / 2) {
        const Dual& neighbour = a.x[i - c * places.pixels + from * places.pixels];
        sum = sum + neighbour * neighbour;
      }
    }
    return a.x[i] * pow(constant(options.k) + factor * sum, -static_cast<long double>(options.beta));
  });
}

std::vector<Dual> dynamic_tanh_definition(const Arguments& a) {
  return outputs(a, [&](size_t i, size_t c) {
    return tanh(a.parameters[2][0] * a.x[i]) * a.parameters[0][c] + a.parameters[1][c];
  });
}

std::vector<Dual> dynamic_erf_definition(const Arguments& a) {
  return outputs(a, [&](size_t i, size_t c) {
    return erf(a.parameters[2][0] * a.x[i] + a.parameters[3][0]) * a.parameters[0][c] + a.parameters[1][c];
  });
}

// (weight + tanh(sum of x * beta) * alpha) * x / sqrt(mean(x²) + eps), sums over the channels of a pixel
std::vector<Dual> seed_norm_definition(const Arguments& a) {
  const Places places(a.sizes);
  const std::vector<Dual>& weight = a.parameters[0];
  const std::vector<Dual>& alpha = a.parameters[1];
  const std::vector<Dual>& beta = a.parameters[2];
  return outputs(a, [&](size_t i, size_t c) {
    Dual squares;
    Dual s;
    for (size_t from = 0; from < places.channels; ++from) {
      const Dual& x = a.x[i - c * places.pixels + from * places.pixels];
      squares = squares + x * x;
      s = s + x * beta[from];
    }
    const Dual rms = sqrt(squares / constant(static_cast<long double>(places.channels)) + constant(a.eps));
    return (weight[c] + tanh(s) * alpha[c]) * a.x[i] / rms;
  });
}

// (weight - mean) / sqrt(var + eps) * gain [* gamma / sqrt(fan-in)] of each output channel
std::vector<Dual> standardized(const Arguments& a, long double gamma) {
  const auto out = static_cast<size_t>(a.sizes[0]);
  const size_t fan_in = a.x.size() / out;
  const auto set_of = [&](size_t i) { return i / fan_in; };
  const Moments m = moments(a.x, out, set_of);
  std::vector<Dual> y;
  for (size_t i = 0; i < a.x.size(); ++i) {
    const size_t o = set_of(i);
    y.push_back(m.centred(a.x[i], o) / deviation(m.variance[o], a.eps) * a.parameters[0][o] * constant(gamma));
  }
  return y;
}

constexpr double kGamma = 1.7139588594436646;  // for relu

std::vector<Composite> make_composites() {
  constexpr CompositeParameter kGain{.length = Length::first_axis, .low = 0.5};
  return {
      {.name = "ghost_batch",
       .parameters = {kWeight, kBias},
       .apply =
           [](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
             return ghost_batch_norm(x, kSubBatch, {}, {}, p[0], p[1], {.eps = eps, .statistics = statistics});
           },
       .define = ghost_batch},
      {.name = "batch_renorm",
       .parameters = {kWeight, kBias},
       .apply =
           [](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
             // Each call writes to the running statistics, so they are new.
             const DType dtype = compute_dtype(x.dtype());
             std::vector<double> means;
             for (int64_t c = 0; c < x.size(1); ++c) {
               means.push_back(running_mean_of(static_cast<size_t>(c)));
             }
             const Tensor mean = from_vector<double>(means, {x.size(1)}, {.dtype = dtype});
             const Tensor var = ones({x.size(1)}, {.dtype = dtype});
             return batch_renorm(
                 x, mean, var, p[0], p[1],
                 {.batch_norm = {.eps = eps, .statistics = statistics}, .r_max = kRMax, .d_max = kDMax});
           },
       .define = batch_renorm_definition},
      {.name = "evonorm_b0",
       .one_each = Sizes{7, 5, 1, 1},
       .parameters = {kWeight, kBias, kWeight},
       .apply = [](const Tensor& x, const Tensors& p, Statistics statistics,
                   double eps) { return evo_norm_b0(x, {}, p[2], p[0], p[1], {.eps = eps, .statistics = statistics}); },
       .define = evonorm_b0},
      {.name = "evonorm_s0",
       .one_each = Sizes{7, kGroups, 1, 1},
       .parameters = {kWeight, kBias, kWeight},
       .apply =
           [](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
             return evo_norm_s0(x, kGroups, p[2], p[0], p[1], {.eps = eps, .statistics = statistics});
           },
       .define = evonorm_s0},
      {.name = "frn",
       .one_each = Sizes{7, 5, 1, 1},
       .has_statistics = false,
       .parameters = {kWeight, kBias, {.length = Length::channels, .low = -0.5}},
       .apply = [](const Tensor& x, const Tensors& p, Statistics,
                   double eps) { return filter_response_norm(x, p[0], p[1], p[2], {.eps = eps}); },
       .define = filter_response},
      {.name = "grn",
       .one_each = Sizes{7, 5, 1, 1},
       .has_statistics = false,
       .relative = true,
       .parameters = {kWeight, kBias},
       .apply = [](const Tensor& x, const Tensors& p, Statistics,
                   double eps) { return global_response_norm(x, p[0], p[1], {.eps = eps}); },
       .define = global_response},
      {.name = "local_response",
       .one_each = Sizes{7, 1, 2, 1},
       .has_statistics = false,
       .relative = true,
       .apply = [](const Tensor& x, const Tensors&, Statistics, double) { return local_response_norm(x, kWindow); },
       .define = local_response},
      {.name = "dyt",
       .why_not_one_each = "it has no sets",
       .has_statistics = false,
       .least_dx = 1,
       .parameters = {kWeight, kBias, {.length = Length::one, .low = 0.5}},
       .apply = [](const Tensor& x, const Tensors& p, Statistics, double) { return dynamic_tanh(x, p[2], p[0], p[1]); },
       .define = dynamic_tanh_definition},
      {.name = "derf",
       .why_not_one_each = "it has no sets",
       .has_statistics = false,
       .least_dx = 1,
       .parameters = {kWeight, kBias, {.length = Length::one, .low = 0.5}, {.length = Length::one}},
       .apply = [](const Tensor& x, const Tensors& p, Statistics,
                   double) { return dynamic_erf(x, p[2], p[3], p[0], p[1]); },
       .define = dynamic_erf_definition},
      {.name = "seednorm",
       .one_each = Sizes{7, 1, 2, 1},
       .has_statistics = false,
       .parameters = {kWeight, kWeight, {.length = Length::channels, .low = -0.5}},
       .apply = [](const Tensor& x, const Tensors& p, Statistics,
                   double eps) { return seed_norm(x, p[0], p[1], p[2], {.eps = eps}); },
       .define = seed_norm_definition},
      {.name = "std_conv",
       .parameters = {kGain},
       .apply = [](const Tensor& x, const Tensors& p, Statistics statistics,
                   double eps) { return standardize_weight(x, p[0], {.eps = eps, .statistics = statistics}); },
       .define = [](const Arguments& a) { return standardized(a, 1); }},
      {.name = "scaled_std_conv",
       .parameters = {kGain},
       .apply =
           [](const Tensor& x, const Tensors& p, Statistics statistics, double eps) {
             return standardize_weight(x, p[0], {.eps = eps, .statistics = statistics, .gamma = kGamma});
           },
       .define =
           [](const Arguments& a) {
             const auto fan_in = static_cast<long double>(a.x.size()) / static_cast<long double>(a.sizes[0]);
             return standardized(a, kGamma / std::sqrt(fan_in));
           }},
  };
}

}  // namespace

const std::vector<Composite>& all_composites() {
  static const std::vector<Composite> composites = make_composites();
  return composites;
}

}  // namespace norma::lab::audit
