#include "lab/telemetry/telemetry.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/parse_number.h"
#include "data/json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

namespace norma::lab {

namespace {

using Json = nlohmann::ordered_json;

template <class Enum>
constexpr std::array kValues = {Enum::forward, Enum::backward, Enum::optimizer};  // of OpPass
template <>
constexpr std::array kValues<LayerKind> = {LayerKind::norm, LayerKind::convolution, LayerKind::linear,
                                           LayerKind::other};

/// Times and losses have more digits than the figures of layers, since there are many of the latter.
constexpr int kDigits = 6;
constexpr int kDigitsOfLayers = 4;

double rounded(double value, int digits) {
  if (!std::isfinite(value)) {
    return kNotKnown;
  }
  return parse_number<double>(fmt::format("{:.{}g}", value, digits)).value_or(0);
}

template <class T>
Json to_cell(const T& value, int digits) {
  if constexpr (std::is_same_v<T, double>) {
    return rounded(value, digits);
  } else if constexpr (std::is_enum_v<T>) {
    return to_string(value);
  } else {
    return value;
  }
}

template <class T>
T from_cell(const nlohmann::json& value, const std::string& where, const std::string& name) {
  if constexpr (std::is_same_v<T, double>) {  // null stands for NaN and infinity
    return data::json_as<std::optional<double>>(where, name, value).value_or(kNotKnown);
  } else if constexpr (std::is_enum_v<T>) {
    const auto text = data::json_as<std::string>(where, name, value);
    for (const T one : kValues<T>) {
      if (to_string(one) == text) {
        return one;
      }
    }
    fail(where, "{}: expected one of those that are known, got '{}'", name, excerpt(text));
  } else if constexpr (std::is_same_v<T, int64_t>) {
    constexpr int64_t kMost = int64_t{1} << 45;  // more bytes than any machine has; sums of such numbers do not
                                                 // overflow
    const auto number = data::json_as<T>(where, name, value);
    check(number >= -1 && number <= kMost, where, "{}: expected a whole number from -1 to {}, got {}", name, kMost,
          number);
    return number;
  } else {
    return data::json_as<T>(where, name, value);
  }
}

/// Calls field(name, value) for each pair of arguments.
template <class T, class... Rest>
void each(auto&& field, const char* name, T& value, Rest&&... rest) {
  field(name, value);
  if constexpr (sizeof...(rest) > 0) {
    each(field, rest...);
  }
}

// Visits the fields of a struct by name, for the writer and the reader alike, so that both know the same ones.
void visit(auto&& field, LossPoint& p) {
  each(field, "step", p.step, "seconds", p.seconds, "loss", p.loss);
}
void visit(auto&& field, TestPoint& p) {
  each(field, "step", p.step, "seconds", p.seconds, "loss", p.loss, "accuracy", p.accuracy);
}
void visit(auto&& field, Throughput& t) {
  each(field, "steps", t.steps, "min", t.min, "median", t.median, "max", t.max);
}
void visit(auto&& field, PassTime& t) {
  each(field, "norm", t.norm, "convolution", t.convolution, "product", t.product, "rest", t.rest);
}
void visit(auto&& field, StepTime& t) {
  each(field, "samples", t.samples, "forward", t.forward, "backward", t.backward, "optimizer", t.optimizer);
}
void visit(auto&& field, SavedBytes& s) {
  each(field, "layer", s.layer, "kind", s.kind, "bytes", s.bytes);
}
void visit(auto&& field, LayoutCopy& c) {
  each(field, "op", c.op, "layer", c.layer, "pass", c.pass, "from", c.from, "to", c.to, "count", c.count, "bytes",
       c.bytes);
}
void visit(auto&& field, LayerDynamics& d) {
  each(field, "layer", d.layer, "kind", d.kind, "gradient_norm", d.gradient_norm, "weight_norm", d.weight_norm,
       "effective_lr", d.effective_lr, "saturation", d.saturation);
}
void visit(auto&& field, AttentionHead& h) {
  each(field, "layer", h.layer, "head", h.head, "largest_logit", h.largest_logit, "entropy", h.entropy);
}
void visit(auto&& field, Sharpness& s) {
  each(field, "value", s.value, "change", s.change, "products", s.products, "seconds", s.seconds, "problem", s.problem);
}

/// Visits a part that a layer may lack by `fields`. Where it lacks the part, its columns hold `none`, which is null
/// for numbers; the reader keeps what is not `none`.
template <class T>
void visit_part(std::optional<T>& part, const T& none, const auto& is_there, const auto& fields) {
  T value = part.value_or(none);
  fields(value);
  part = is_there(value) ? std::optional(value) : std::nullopt;
}

void visit(auto&& field, LayerHealth& layer) {
  each(field, "layer", layer.layer, "kind", layer.kind, "input_deviation", layer.input_deviation, "mean",
       layer.output.mean, "deviation", layer.output.deviation, "largest", layer.output.largest, "non_finite",
       layer.output.non_finite, "dead_channels", layer.dead_channels);
  visit_part(
      layer.gradient, {.mean = kNotKnown, .deviation = kNotKnown, .largest = kNotKnown, .non_finite = -1},
      [](const TensorHealth& g) { return g.non_finite >= 0; },
      [&](TensorHealth& g) {
        each(field, "gradient_mean", g.mean, "gradient_deviation", g.deviation, "gradient_largest", g.largest,
             "gradient_non_finite", g.non_finite);
      });
  const auto has_mean = [](const auto& of) { return !std::isnan(of.mean); };
  const ParameterSpread none{.min = kNotKnown, .max = kNotKnown, .mean = kNotKnown, .deviation = kNotKnown};
  visit_part(layer.gamma, none, has_mean, [&](ParameterSpread& s) {
    each(field, "gamma_min", s.min, "gamma_max", s.max, "gamma_mean", s.mean, "gamma_deviation", s.deviation);
  });
  visit_part(layer.beta, none, has_mean, [&](ParameterSpread& s) {
    each(field, "beta_min", s.min, "beta_max", s.max, "beta_mean", s.mean, "beta_deviation", s.deviation);
  });
  visit_part(layer.gap, {.mean = kNotKnown, .deviation = kNotKnown}, has_mean,
             [&](BatchGap& g) { each(field, "gap_mean", g.mean, "gap_deviation", g.deviation); });
}

template <class T>
Json object_of(T value) {
  Json json = Json::object();
  visit([&](const std::string& name, const auto& field) { json[name] = to_cell(field, kDigits); }, value);
  return json;
}

const nlohmann::json& part(const nlohmann::json& json, const std::string& name, const std::string& where) {
  check(json.is_object() && json.contains(name), where, "{}: missing", name);
  return json[name];
}

template <class T>
T object_from(const nlohmann::json& json, const std::string& where) {
  T value;
  visit([&]<class F>(const std::string& name, F& field) { field = from_cell<F>(part(json, name, where), where, name); },
        value);
  return value;
}

template <class T>
Json columns_of(const std::vector<T>& rows, int digits = kDigits) {
  Json json = Json::object();
  T names;
  visit([&](const std::string& name, const auto&) { json[name] = Json::array(); }, names);
  for (T row : rows) {
    visit([&](const std::string& name, const auto& field) { json[name].push_back(to_cell(field, digits)); }, row);
  }
  return json;
}

template <class T>
std::vector<T> columns_from(const nlohmann::json& json, const std::string& where) {
  check(json.is_object(), where, "expected an object of lists, got {}", data::json_excerpt(json));
  std::optional<size_t> count;
  T names;
  visit(
      [&](const std::string& name, const auto&) {
        check(json.contains(name), where, "{}: missing", name);
        check(json[name].is_array(), where, "{}: expected a list, got {}", name, data::json_excerpt(json[name]));
        count = count.value_or(json[name].size());
        check(json[name].size() == *count, where, "{}: expected {} values, got {}", name, *count, json[name].size());
      },
      names);
  constexpr size_t kMostRows = 65'536;  // more layers than any network has; sums of bytes do not overflow
  check(count.value_or(0) <= kMostRows, where, "expected at most {} rows, got {}", kMostRows, count.value_or(0));
  std::vector<T> rows(count.value_or(0));
  for (size_t i = 0; i < rows.size(); ++i) {
    visit([&]<class F>(const std::string& name, F& field) { field = from_cell<F>(json[name][i], where, name); },
          rows[i]);
  }
  return rows;
}

Json dynamics_to_json(const DynamicsSample& dynamics) {
  Json json = {{"lr", rounded(dynamics.lr, kDigits)}, {"layers", columns_of(dynamics.layers, kDigitsOfLayers)}};
  if (dynamics.sharpness) {
    json["sharpness"] = object_of(*dynamics.sharpness);
  }
  return json;
}

DynamicsSample dynamics_from_json(const nlohmann::json& json, const std::string& where) {
  DynamicsSample dynamics{.lr = from_cell<double>(part(json, "lr", where), where, "lr"),
                          .layers = columns_from<LayerDynamics>(part(json, "layers", where), where)};
  if (json.contains("sharpness")) {
    dynamics.sharpness = object_from<Sharpness>(json["sharpness"], where + ": sharpness");
  }
  return dynamics;
}

}  // namespace

Json step_time_to_json(const StepTime& time) {
  Json json = object_of(time);
  if (time.forward_split && time.backward_split) {
    json["forward_split"] = object_of(*time.forward_split);
    json["backward_split"] = object_of(*time.backward_split);
  }
  return json;
}

StepTime step_time_from_json(const nlohmann::json& json, const std::string& where) {
  auto time = object_from<StepTime>(json, where);
  if (json.contains("forward_split")) {
    time.forward_split = object_from<PassTime>(part(json, "forward_split", where), where);
    time.backward_split = object_from<PassTime>(part(json, "backward_split", where), where);
  }
  return time;
}

Json telemetry_to_json(const Telemetry& telemetry) {
  Json json = {{"losses", columns_of(telemetry.losses)},
               {"tests", columns_of(telemetry.tests)},
               {"throughput", object_of(telemetry.throughput)},
               {"step_time", step_time_to_json(telemetry.step_time)}};
  json["saved"] = columns_of(telemetry.saved);
  if (telemetry.ledger_known) {
    json["ledger"] = columns_of(telemetry.ledger);
  }
  json["health"] = Json::array();
  for (const HealthSample& sample : telemetry.health) {
    json["health"].push_back({{"step", sample.step}, {"layers", columns_of(sample.layers, kDigitsOfLayers)}});
    if (sample.dynamics) {
      json["health"].back()["dynamics"] = dynamics_to_json(*sample.dynamics);
    }
    if (!sample.attention.empty()) {
      json["health"].back()["attention"] = columns_of(sample.attention, kDigitsOfLayers);
    }
  }
  return json;
}

std::string telemetry_text(const Telemetry& telemetry) {
  return data::json_text(telemetry_to_json(telemetry), 1) + "\n";
}

Telemetry telemetry_from_json(const nlohmann::json& json, const std::string& where) {
  Telemetry telemetry;
  telemetry.losses = columns_from<LossPoint>(part(json, "losses", where), where + ": losses");
  telemetry.tests = columns_from<TestPoint>(part(json, "tests", where), where + ": tests");
  telemetry.throughput = object_from<Throughput>(part(json, "throughput", where), where + ": throughput");
  telemetry.step_time = step_time_from_json(part(json, "step_time", where), where + ": step_time");
  telemetry.saved = columns_from<SavedBytes>(part(json, "saved", where), where + ": saved");
  if (json.contains("ledger")) {
    telemetry.ledger = columns_from<LayoutCopy>(json["ledger"], where + ": ledger");
    telemetry.ledger_known = true;
  }
  const nlohmann::json& samples = part(json, "health", where);
  check(samples.is_array(), where, "health: expected a list, got {}", data::json_excerpt(samples));
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::string place = fmt::format("{}: health {}", where, i + 1);
    HealthSample sample{.step = data::json_field<int64_t>(place, samples[i], "step"), .layers = {}};
    nlohmann::json layers = part(samples[i], "layers", place);
    if (layers.contains("layer") && layers["layer"].is_array() && !layers.contains("input_deviation")) {
      layers["input_deviation"] = nlohmann::json::array_t(layers["layer"].size());  // a file of an earlier version
    }
    sample.layers = columns_from<LayerHealth>(layers, place);
    if (samples[i].contains("dynamics")) {
      sample.dynamics = dynamics_from_json(samples[i]["dynamics"], place + ": dynamics");
    }
    if (samples[i].contains("attention")) {
      sample.attention = columns_from<AttentionHead>(samples[i]["attention"], place + ": attention");
    }
    telemetry.health.push_back(std::move(sample));
  }
  return telemetry;
}

}  // namespace norma::lab
