#include "lab/report/page.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace norma::lab {

namespace {

// Limits for a page of many runs.
constexpr size_t kMostGroups = 12;
constexpr size_t kMostCurves = 8;  ///< in a chart: more cannot be told apart
constexpr size_t kOpenFigures = 6;

/// A chart of one group: its words, and the curve of a run.
struct Drawing {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::function<Series(const NamedTelemetry&)> curve;
};

/// The samples of a run that have dynamics, with their steps.
std::vector<const HealthSample*> samples_of(const NamedTelemetry& run) {
  std::vector<const HealthSample*> samples;
  for (const HealthSample& sample : run.telemetry->health) {
    if (sample.dynamics) {
      samples.push_back(&sample);
    }
  }
  return samples;
}

/// The heads of the last sample that has some; null: none has.
const std::vector<AttentionHead>* last_heads(const NamedTelemetry& run) {
  const std::vector<HealthSample>& samples = run.telemetry->health;
  const auto last = std::ranges::find_if(samples.rbegin(), samples.rend(),
                                         [](const HealthSample& sample) { return !sample.attention.empty(); });
  return last == samples.rend() ? nullptr : &last->attention;
}

double log_of(double value) {
  return value > 0 ? std::log10(value) : NAN;
}

/// A figure of each layer that has it, in the first or the last sample. `multiply`: of convolutions and products alone.
Drawing by_depth(std::string title, std::string y_label, bool last, bool multiply, double (*value)(double),
                 double LayerDynamics::*figure) {
  const auto curve = [=](const NamedTelemetry& run) {
    Series series;
    const std::vector<const HealthSample*> samples = samples_of(run);
    if (samples.empty()) {
      return series;
    }
    for (const LayerDynamics& layer : (last ? samples.back() : samples.front())->dynamics->layers) {
      const bool counts = !multiply || layer.kind == LayerKind::convolution || layer.kind == LayerKind::linear;
      if (counts && !std::isnan(layer.*figure)) {
        series.x.push_back(static_cast<double>(series.x.size() + 1));
        series.y.push_back(value(layer.*figure));
      }
    }
    return series;
  };
  return {
      .title = std::move(title), .x_label = "layer, from the input on", .y_label = std::move(y_label), .curve = curve};
}

/// A figure of each sample that has it.
Drawing over_steps(std::string title, std::string y_label, std::function<double(const DynamicsSample&)> value) {
  const auto curve = [value = std::move(value)](const NamedTelemetry& run) {
    Series series;
    for (const HealthSample* sample : samples_of(run)) {
      if (const double y = value(*sample->dynamics); !std::isnan(y)) {
        series.x.push_back(static_cast<double>(sample->step - 1));
        series.y.push_back(y);
      }
    }
    return series;
  };
  return {.title = std::move(title), .x_label = "updates before", .y_label = std::move(y_label), .curve = curve};
}

/// The middle of a figure over the weights whose scale has no effect; NaN if there are none.
double median_of_invariant(const DynamicsSample& sample, double LayerDynamics::*figure) {
  std::vector<double> values;
  for (const LayerDynamics& layer : sample.layers) {
    if (!std::isnan(layer.effective_lr)) {
      values.push_back(layer.*figure);
    }
  }
  if (values.empty()) {
    return NAN;
  }
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

std::vector<Drawing> drawings() {
  const auto share = [](double value) { return 100 * value; };
  return {
      by_depth("gradient norm before the first update", "log₁₀ of the norm", /* last= */ false, /* multiply= */ true,
               log_of, &LayerDynamics::gradient_norm),
      by_depth("gradient norm at the end", "log₁₀ of the norm", /* last= */ true, /* multiply= */ true, log_of,
               &LayerDynamics::gradient_norm),
      over_steps("norm of scale-invariant weights", "norm, the middle weight",
                 [](const DynamicsSample& sample) { return median_of_invariant(sample, &LayerDynamics::weight_norm); }),
      over_steps("effective learning rate", "log₁₀ of lr / norm², the middle weight",
                 [](const DynamicsSample& sample) {
                   return log_of(median_of_invariant(sample, &LayerDynamics::effective_lr));
                 }),
      by_depth("saturation before the first update", "% of inputs", /* last= */ false, /* multiply= */ false, share,
               &LayerDynamics::saturation),
      by_depth("saturation at the end", "% of inputs", /* last= */ true, /* multiply= */ false, share,
               &LayerDynamics::saturation),
      over_steps("sharpness", "largest eigenvalue",
                 [](const DynamicsSample& sample) { return sample.sharpness ? sample.sharpness->value : NAN; })};
}

/// The heads of the last sample that has some; each layer begins at a whole number.
Drawing by_head(std::string title, std::string y_label, double AttentionHead::*figure) {
  const auto curve = [figure](const NamedTelemetry& run) {
    Series series;
    const std::vector<AttentionHead>* heads = last_heads(run);
    double layer = 0;
    for (size_t i = 0; heads != nullptr && i < heads->size(); ++i) {
      const AttentionHead& one = (*heads)[i];
      layer += one.head == 0 ? 1 : 0;
      const auto of_layer = std::ranges::count((*heads), one.layer, &AttentionHead::layer);
      series.x.push_back(layer + static_cast<double>(one.head) / static_cast<double>(of_layer));
      series.y.push_back(one.*figure);
    }
    return series;
  };
  return {.title = std::move(title),
          .x_label = "layer, and in it the heads",
          .y_label = std::move(y_label),
          .curve = curve};
}

std::vector<Drawing> attention_drawings() {
  const auto largest = [](const NamedTelemetry& run) {
    Series series;
    for (const HealthSample& sample : run.telemetry->health) {
      if (!sample.attention.empty()) {
        series.x.push_back(static_cast<double>(sample.step - 1));
        series.y.push_back(std::ranges::max(sample.attention, {}, &AttentionHead::largest_logit).largest_logit);
      }
    }
    return series;
  };
  return {by_head("largest logit of each head at the end", "q · k, scaled", &AttentionHead::largest_logit),
          by_head("entropy of each head at the end", "nats", &AttentionHead::entropy),
          {.title = "largest logit of all heads",
           .x_label = "updates before",
           .y_label = "q · k, scaled",
           .curve = largest}};
}

std::vector<Figure> charts_of(const std::vector<const NamedTelemetry*>& runs, size_t group, std::string_view section,
                              const std::vector<Drawing>& drawings) {
  std::vector<Figure> charts;
  for (const Drawing& drawing : drawings) {
    const std::string title = fmt::format("{}: {}", runs.front()->group, drawing.title);
    LineChart chart{.id = fmt::format("{}-{}-{}", section, group + 1, charts.size() + 1),
                    .title = title,
                    .description = "A curve for each norm:",
                    .x_label = drawing.x_label,
                    .y_label = drawing.y_label,
                    .series = {}};
    size_t left_out = 0;
    for (const NamedTelemetry* run : runs) {
      Series series = drawing.curve(*run);
      if (series.x.empty()) {
        continue;
      }
      if (chart.series.size() == kMostCurves) {
        ++left_out;
        continue;
      }
      series.name = run->label;
      series.style = run->style;
      chart.description += fmt::format(" {} from {:.3g} to {:.3g};", run->label, series.y.front(), series.y.back());
      chart.series.push_back(std::move(series));
    }
    chart.description.back() = '.';
    if (!chart.series.empty()) {
      charts.push_back({.title = title,
                        .note = left_out > 0 ? fmt::format("{} more are in results.json.", left_out) : "",
                        .chart = std::move(chart)});
    }
  }
  return charts;
}

/// The charts of all groups with a run that is `wanted`.
Figures figures_of(const std::vector<NamedTelemetry>& runs, std::string_view section,
                   const std::vector<Drawing>& drawings, bool (*wanted)(const NamedTelemetry& run)) {
  std::vector<std::pair<std::string, std::vector<const NamedTelemetry*>>> groups;
  for (const NamedTelemetry& run : runs) {
    if (!wanted(run)) {
      continue;
    }
    const auto found = std::ranges::find_if(groups, [&](const auto& group) { return group.first == run.group; });
    if (found != groups.end()) {
      found->second.push_back(&run);
    } else if (groups.size() < kMostGroups) {
      groups.push_back({run.group, {&run}});
    }
  }
  Figures charts{.figures = {}, .open = kOpenFigures};
  for (size_t i = 0; i < groups.size(); ++i) {
    std::ranges::move(charts_of(groups[i].second, i, section, drawings), std::back_inserter(charts.figures));
  }
  return charts;
}

Table cost_of_sharpness(const std::vector<NamedTelemetry>& runs) {
  Table table{.heads = {"network", "norm", "updates before", "sharpness", "last change", "products", "seconds"},
              .words = 2};
  for (const NamedTelemetry& run : runs) {
    for (const HealthSample* sample : samples_of(run)) {
      if (const auto& found = sample->dynamics->sharpness) {
        table.add(run.group, run.label, sample->step - 1,
                  found->problem.empty() ? fmt::format("{:.4g}", found->value) : found->problem,
                  std::isnan(found->change) ? "–" : fmt::format("{:.2g} %", 100 * found->change), found->products,
                  fmt::format("{:.1f}", found->seconds));
      }
    }
  }
  return table;
}

/// What was asked for and is not in the charts, and in which networks.
std::vector<Block> missing_parts(const std::vector<NamedTelemetry>& runs) {
  std::map<std::string, std::string> labels;
  for (const NamedTelemetry& run : runs) {
    for (const std::string& text : missing_dynamics(*run.telemetry, run.dynamics)) {
      labels[text] += fmt::format("{}{} with {}", labels[text].empty() ? "" : ", ", run.group, run.label);
    }
  }
  std::vector<Block> notes;
  for (const auto& [text, networks] : labels) {
    notes.emplace_back(Note{fmt::format("{}: {}.", networks, text)});
  }
  return notes;
}

}  // namespace

Section dynamics_section(const std::vector<NamedTelemetry>& runs) {
  Figures charts =
      figures_of(runs, "dynamics", drawings(), [](const NamedTelemetry& run) { return !samples_of(run).empty(); });
  Section section{.id = "dynamics", .menu = "Dynamics", .title = "How the networks move"};
  std::vector<Block> missing = missing_parts(runs);
  if (charts.figures.empty() && missing.empty()) {
    return section;
  }
  section.blocks.emplace_back(std::move(charts));
  if (Table cost = cost_of_sharpness(runs); !cost.rows.empty()) {
    section.blocks.emplace_back(
        Fold{.summary = "What the sharpness cost",
             .blocks = {CaptionedTable{"Each power iteration, its end and its cost", std::move(cost)}},
             .on_page_only = true});
  }
  std::ranges::move(missing, std::back_inserter(section.blocks));
  section.blocks.emplace_back(Note{
      "Gradient norms are those of the weights of convolutions and products, in the order of the network, before "
      "clipping. The effective learning rate is lr / norm² of weights whose scale the norm behind them takes away; "
      "curves show the middle one of them. Saturation is the share of a bounded norm's inputs at which its slope is "
      "below a tenth of the largest. Sharpness is the largest eigenvalue of the Hessian of the loss of the first "
      "batch. "
      "The first seed of each row is shown."});
  return section;
}

Section attention_section(const std::vector<NamedTelemetry>& runs) {
  Section section{.id = "attention", .menu = "Attention", .title = "The heads of attention"};
  Figures charts = figures_of(runs, "attention", attention_drawings(),
                              [](const NamedTelemetry& run) { return last_heads(run) != nullptr; });
  if (charts.figures.empty()) {
    return section;
  }
  section.blocks.emplace_back(std::move(charts));
  section.blocks.emplace_back(Note{
      "A logit is a scaled product of a query and a key, before the softmax. The entropy is the mean over queries of "
      "-Σ p log p: 0 where a query sees one token, the logarithm of the number of tokens where it sees all alike. "
      "Training often fails where logits grow and entropies go to 0. The first seed of each row is shown."});
  return section;
}

}  // namespace norma::lab
