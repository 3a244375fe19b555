#include "ops/map_norm/reference.h"

#include "core/parallel.h"

#include <algorithm>

namespace norma::formula {

namespace {

/// The places of the elements of x along the axes before the channels, of the channels, and after them.
struct Places {
  explicit Places(const Arguments& a) {
    const int64_t axis = a.axis < 0 ? a.axis + a.sizes.size() : a.axis;
    channels = static_cast<size_t>(a.sizes[axis]);
    for (int64_t behind = axis + 1; behind < a.sizes.size(); ++behind) {
      pixels *= static_cast<size_t>(a.sizes[behind]);
    }
    images = a.x.size() / (channels * pixels);
  }
  [[nodiscard]] size_t channel(size_t i) const { return i / pixels % channels; }
  [[nodiscard]] size_t image(size_t i) const { return i / pixels / channels; }
  [[nodiscard]] size_t map(size_t i) const { return i / pixels; }
  /// The element of another channel at the same pixel.
  [[nodiscard]] size_t beside(size_t i, size_t other) const { return i + other * pixels - channel(i) * pixels; }

  size_t channels = 0;
  size_t images = 0;
  size_t pixels = 1;
};

/// f(i, channel of i) for each element i.
template <class F>
std::vector<Number> outputs(const Arguments& a, const F& f) {
  const Places places(a);
  std::vector<Number> y;
  y.reserve(a.x.size());
  for (size_t i = 0; i < a.x.size(); ++i) {
    y.push_back(f(i, places.channel(i)));
  }
  return y;
}

/// The same with each output times weight plus bias of its channel.
template <class F>
std::vector<Number> scaled_outputs(const Arguments& a, const F& f) {
  const auto weight = a.parameters.find("weight");
  const auto bias = a.parameters.find("bias");
  return outputs(a, [&](size_t i, size_t c) {
    Number y = f(i, c);
    y = weight == a.parameters.end() ? y : y * weight->second[c];
    return bias == a.parameters.end() ? y : y + bias->second[c];
  });
}

struct Moments {
  std::vector<Number> mean;
  std::vector<Number> rest;      ///< the part of the mean that rounding lost
  std::vector<Number> variance;  ///< biased
  [[nodiscard]] Number centred(const Number& x, size_t set) const { return (x - mean[set]) - rest[set]; }
};

/// mean = sum(x) / n, var = sum((x - mean)²) / n over the elements with the same set_of(i).
template <class SetOf>
Moments moments(const std::vector<Number>& x, size_t sets, const SetOf& set_of) {
  Moments m{std::vector<Number>(sets), std::vector<Number>(sets), std::vector<Number>(sets)};
  std::vector<Wide> count(sets, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    count[set_of(i)] += 1;
  }
  const auto means_of = [&](const auto& summand) {
    std::vector<Number> sums(sets);
    for (size_t i = 0; i < x.size(); ++i) {
      sums[set_of(i)] = sums[set_of(i)] + summand(x[i], set_of(i));
    }
    for (size_t set = 0; set < sets; ++set) {
      sums[set] = sums[set] * constant(1 / count[set]);
    }
    return sums;
  };
  m.mean = means_of([](const Number& one, size_t) { return one; });
  m.rest = means_of([&](const Number& one, size_t set) { return m.centred(one, set); });
  m.variance = means_of([&](const Number& one, size_t set) {
    const Number d = m.centred(one, set);
    return d * d;
  });
  return m;
}

/// sqrt(var + eps)
Number deviation(const Number& variance, double eps) {
  return sqrt(variance + constant(eps));
}

/// The sum of x² of each map.
std::vector<Number> square_sums(const Arguments& a, const Places& places) {
  std::vector<Number> sums(places.images * places.channels);
  for (size_t i = 0; i < a.x.size(); ++i) {
    sums[places.map(i)] = sums[places.map(i)] + a.x[i] * a.x[i];
  }
  return sums;
}

}  // namespace

// --- numbers --------------------------------------------------------------------------------------------------------

Number Numbers::record(Wide value, const Number& a, Wide by_a, const Number& b, Wide by_b) {
  Node& node = nodes_.emplace_back();
  if (a.among != nullptr) {
    node.from[0] = a.place;
    node.slope[0] = by_a;
  }
  if (b.among != nullptr) {
    node.from[1] = b.place;
    node.slope[1] = by_b;
  }
  return {.value = value, .among = this, .place = nodes_.size() - 1};
}

/// Passes the slopes of the numbers up to `last` on to what they were made from.
void Numbers::sweep(std::vector<Slope>& slopes, size_t last) const {
  for (size_t place = last + 1; place-- > 0;) {
    const Slope slope = slopes[place];
    if (!slope.reached) {
      continue;
    }
    const Node& node = nodes_[place];
    for (size_t i = 0; i < 2; ++i) {
      if (node.from[i] != Node::kNone) {
        slopes[node.from[i]].value += slope.value * node.slope[i];
        slopes[node.from[i]].size += slope.size * std::abs(node.slope[i]);
        slopes[node.from[i]].reached = true;
      }
    }
  }
}

Gradient Numbers::gradient(const std::vector<Number>& y, const std::vector<double>& dy, bool by_output) const {
  // Outputs are swept in a fixed number of blocks, so that the sums do not depend on the number of threads.
  const int64_t blocks = by_output ? std::min<int64_t>(16, static_cast<int64_t>(y.size())) : 1;
  std::vector<Gradient> of_block(static_cast<size_t>(blocks),
                                 {std::vector<Wide>(nodes_.size()), std::vector<Wide>(nodes_.size()),
                                  std::vector<Wide>(by_output ? nodes_.size() : 0)});
  parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (auto block = static_cast<size_t>(begin); block < static_cast<size_t>(end); ++block) {
      Gradient& sum = of_block[block];
      std::vector<Slope> slopes(nodes_.size());
      const auto pass_on = [&](size_t last, Wide size) {
        sweep(slopes, last);
        for (size_t place = 0; place <= last; ++place) {
          if (slopes[place].reached) {
            sum.values[place] += slopes[place].value;
            sum.sizes[place] += by_output ? std::abs(slopes[place].value) : slopes[place].size;
            if (by_output) {
              sum.reached[place] += size;
            }
            slopes[place] = {};
          }
        }
      };
      size_t last = 0;
      for (size_t j = block; j < y.size(); j += static_cast<size_t>(blocks)) {
        if (y[j].among == nullptr) {
          continue;
        }
        const Wide size = std::abs(static_cast<Wide>(dy[j]));
        slopes[y[j].place].value += dy[j];
        slopes[y[j].place].size += size;
        slopes[y[j].place].reached = true;
        last = std::max(last, y[j].place);
        if (by_output) {
          pass_on(y[j].place, size);
        }
      }
      if (!by_output && !nodes_.empty()) {
        pass_on(last, 0);
      }
    }
  });
  for (size_t block = 1; block < of_block.size(); ++block) {
    for (size_t place = 0; place < nodes_.size(); ++place) {
      of_block[0].values[place] += of_block[block].values[place];
      of_block[0].sizes[place] += of_block[block].sizes[place];
      if (by_output) {
        of_block[0].reached[place] += of_block[block].reached[place];
      }
    }
  }
  return of_block.empty() ? Gradient{} : of_block[0];
}

Number maximum(const Number& a, const Number& b) {
  if (Numbers* const among = a.among != nullptr ? a.among : b.among; among != nullptr) {
    BranchEdge& edge = among->edge;
    edge.below = edge.below || a.value < b.value;
    edge.above = edge.above || a.value > b.value;
    edge.nearest = std::min(edge.nearest, std::abs(a.value - b.value));
  }
  return std::isnan(a.value) || a.value >= b.value ? a : b;
}

Evaluation::Evaluation(const Formula& formula, const Tensor& x,
                       const std::vector<std::pair<std::string, Tensor>>& parameters, double eps, int64_t axis) {
  const auto inputs_from = [&](const std::string& name, const Tensor& from) {
    std::vector<Number> result;
    for (const double value : from.to_vector<double>()) {
      result.push_back(numbers_.input(value));
    }
    inputs_.emplace_back(name, result.size());
    return result;
  };
  Arguments arguments{.sizes = x.sizes(), .axis = axis, .eps = eps, .x = inputs_from("x", x), .parameters = {}};
  for (const auto& [name, parameter] : parameters) {
    if (parameter.defined()) {
      arguments.parameters[name] = inputs_from(name, parameter);
    }
  }
  y_ = formula(arguments);
}

std::map<std::string, Gradient> Evaluation::gradients(const Tensor& dy, bool by_output) const {
  const Gradient all = numbers_.gradient(y_, dy.to_vector<double>(), by_output);
  std::map<std::string, Gradient> result;
  size_t first = 0;
  for (const auto& [name, count] : inputs_) {
    const auto part = [&, count = count](const std::vector<Wide>& of_all) {
      return of_all.empty() ? of_all : std::vector<Wide>(of_all.data() + first, of_all.data() + first + count);
    };
    result[name] = {part(all.values), part(all.sizes), part(all.reached)};
    first += count;
  }
  return result;
}

// --- formulas -------------------------------------------------------------------------------------------------------

// batch norm of each `sub_batch` images
Formula ghost_batch_norm(int64_t sub_batch) {
  return [per_part = static_cast<size_t>(sub_batch)](const Arguments& a) {
    const Places places(a);
    const size_t parts = (places.images + per_part - 1) / per_part;
    const auto set_of = [&](size_t i) { return places.image(i) / per_part * places.channels + places.channel(i); };
    const Moments m = moments(a.x, parts * places.channels, set_of);
    return scaled_outputs(
        a, [&](size_t i, size_t) { return m.centred(a.x[i], set_of(i)) / deviation(m.variance[set_of(i)], a.eps); });
  };
}

// y = (xhat * r + d) * weight + bias; r and d come from the batch's values and are constants for the gradient
Formula batch_renorm(const std::vector<double>& running_mean, const std::vector<double>& running_var, double r_max,
                     double d_max) {
  return [=](const Arguments& a) {
    const Places places(a);
    const Moments m = moments(a.x, places.channels, [&](size_t i) { return places.channel(i); });
    return scaled_outputs(a, [&](size_t i, size_t c) {
      const Number s = deviation(m.variance[c], a.eps);
      const Wide running = std::sqrt(static_cast<Wide>(running_var[c]) + static_cast<Wide>(a.eps));
      const Wide mean = m.mean[c].value + m.rest[c].value;
      const Wide r = std::clamp<Wide>(s.value / running, 1 / static_cast<Wide>(r_max), r_max);
      const Wide d = std::clamp<Wide>((mean - running_mean[c]) / running, -d_max, d_max);
      return m.centred(a.x[i], c) / s * constant(r) + constant(d);
    });
  };
}

// x / max(v * x + sqrt(var_instance + eps), sqrt(var_batch + eps)) * weight + bias
Formula evo_norm_b0(const std::vector<double>& running_var) {
  return [running_var](const Arguments& a) {
    const Places places(a);
    const Moments batch = moments(a.x, places.channels, [&](size_t i) { return places.channel(i); });
    const Moments instance = moments(a.x, places.images * places.channels, [&](size_t i) { return places.map(i); });
    return scaled_outputs(a, [&](size_t i, size_t c) {
      const Number variance = running_var.empty() ? batch.variance[c] : constant(running_var[c]);
      const Number right = a.parameters.at("v")[c] * a.x[i] + deviation(instance.variance[places.map(i)], a.eps);
      return a.x[i] / maximum(right, deviation(variance, a.eps));
    });
  };
}

// x * sigmoid(v * x) / sqrt(var_group + eps) * weight + bias
Formula evo_norm_s0(int64_t groups) {
  return [groups = static_cast<size_t>(groups)](const Arguments& a) {
    const Places places(a);
    const size_t per_group = places.channels / groups;
    const auto set_of = [&](size_t i) { return places.map(i) / per_group; };
    const Moments m = moments(a.x, places.images * groups, set_of);
    return scaled_outputs(a, [&](size_t i, size_t c) {
      return a.x[i] / deviation(m.variance[set_of(i)], a.eps) * sigmoid(a.parameters.at("v")[c] * a.x[i]);
    });
  };
}

// max(x / sqrt(mean(x²) + eps) * weight + bias, tau), with the mean over the map
Formula filter_response_norm() {
  return [](const Arguments& a) {
    const Places places(a);
    const std::vector<Number> sums = square_sums(a, places);
    const Number share = constant(1 / static_cast<Wide>(places.pixels));
    const std::vector<Number> z =
        scaled_outputs(a, [&](size_t i, size_t) { return a.x[i] / deviation(sums[places.map(i)] * share, a.eps); });
    const auto tau = a.parameters.find("tau");
    return outputs(
        a, [&](size_t i, size_t c) { return tau == a.parameters.end() ? z[i] : maximum(z[i], tau->second[c]); });
  };
}

// x + weight * x * n + bias, n = g / (mean of g over the channels + eps), g = sqrt(sum of x² of the map)
Formula global_response_norm() {
  return [](const Arguments& a) {
    const Places places(a);
    std::vector<Number> g;
    for (const Number& sum : square_sums(a, places)) {
      g.push_back(sqrt(sum));
    }
    std::vector<Number> means(places.images);
    for (size_t map = 0; map < g.size(); ++map) {
      Number& mean = means[map / places.channels];
      mean = mean + g[map] * constant(1 / static_cast<Wide>(places.channels));
    }
    const std::vector<Number> scaled = scaled_outputs(
        a, [&](size_t i, size_t) { return a.x[i] * (g[places.map(i)] / (means[places.image(i)] + constant(a.eps))); });
    return outputs(a, [&](size_t i, size_t) { return a.x[i] + scaled[i]; });
  };
}

// x * (k + alpha / size * sum of x² over the window of channels) ^ -beta
Formula local_response_norm(int64_t size, const LocalResponseNormOptions& options) {
  return [=, window = static_cast<size_t>(size)](const Arguments& a) {
    const Places places(a);
    const Number factor = constant(static_cast<Wide>(options.alpha) / static_cast<Wide>(window));
    return outputs(a, [&](size_t i, size_t c) {
      Number sum;
      for (size_t from = 0; from < places.channels; ++from) {
        if (from + window / 2 >= c && from <= c + (window - 1) / 2) {
          const Number& neighbour = a.x[places.beside(i, from)];
          sum = sum + neighbour * neighbour;
        }
      }
      return a.x[i] * pow(constant(options.k) + factor * sum, -static_cast<Wide>(options.beta));
    });
  };
}

Formula dynamic_tanh() {
  return [](const Arguments& a) {
    return scaled_outputs(a, [&](size_t i, size_t) { return tanh(a.parameters.at("alpha")[0] * a.x[i]); });
  };
}

Formula dynamic_erf() {
  return [](const Arguments& a) {
    return scaled_outputs(
        a, [&](size_t i, size_t) { return erf(a.parameters.at("alpha")[0] * a.x[i] + a.parameters.at("shift")[0]); });
  };
}

// (weight + tanh(sum of x * beta) * alpha) * x / sqrt(mean(x²) + eps), sums over the channels of a pixel
Formula seed_norm() {
  return [](const Arguments& a) {
    const Places places(a);
    const auto pixel = [&](size_t i) { return places.image(i) * places.pixels + i % places.pixels; };
    std::vector<Number> squares(places.images * places.pixels);
    std::vector<Number> s(squares.size());
    for (size_t i = 0; i < a.x.size(); ++i) {
      squares[pixel(i)] = squares[pixel(i)] + a.x[i] * a.x[i];
      s[pixel(i)] = s[pixel(i)] + a.x[i] * a.parameters.at("beta")[places.channel(i)];
    }
    const Number share = constant(1 / static_cast<Wide>(places.channels));
    return outputs(a, [&](size_t i, size_t c) {
      const Number scale = a.parameters.at("weight")[c] + tanh(s[pixel(i)]) * a.parameters.at("alpha")[c];
      return scale * a.x[i] / deviation(squares[pixel(i)] * share, a.eps);
    });
  };
}

// (weight - mean) / sqrt(var + eps) [* gamma / sqrt(fan-in)] [* gain] of each output channel
Formula standardized_weight(std::optional<double> gamma) {
  return [gamma](const Arguments& a) {
    const auto out = static_cast<size_t>(a.sizes[0]);
    const size_t fan_in = a.x.size() / out;
    const auto set_of = [&](size_t i) { return i / fan_in; };
    const Moments m = moments(a.x, out, set_of);
    const auto gain = a.parameters.find("gain");
    const Number factor = constant(gamma ? *gamma / std::sqrt(static_cast<Wide>(fan_in)) : 1);
    return outputs(a, [&](size_t i, size_t) {
      const size_t o = set_of(i);
      const Number u = m.centred(a.x[i], o) / deviation(m.variance[o], a.eps) * factor;
      return gain == a.parameters.end() ? u : u * gain->second[o];
    });
  };
}

}  // namespace norma::formula
