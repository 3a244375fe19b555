#include "lab/report/page.h"

#include "base/lists.h"
#include "lab/report/decisions.h"
#include "lab/report/table.h"
#include "lab/telemetry/summary.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>

namespace norma::lab {

namespace {

/// The limit of runs shown layer by layer, and of lines of a run's ledger: a page of 500 runs must stay small.
constexpr size_t kMostDetails = 12;
constexpr size_t kMostCopies = 20;

std::string milliseconds(double seconds) {
  return fmt::format("{:.1f}", 1e3 * seconds);
}

/// "12.3 (45 %)"
std::string share_of_step(double seconds, const StepTime& time) {
  return fmt::format("{} ({:.0f} %)", milliseconds(seconds), time.total() > 0 ? 100 * seconds / time.total() : 0);
}

std::string number(double value) {
  return std::isnan(value) ? "–" : fmt::format("{:.3g}", value);
}

std::string figure_text(const std::optional<LayerFigure>& figure, bool percent = false) {
  if (!figure) {
    return "–";
  }
  const std::string value = percent ? fmt::format("{:.1f} %", 100 * figure->value) : number(figure->value);
  return fmt::format("{} ({}, step {})", value, figure->layer, figure->step);
}

/// The same parts of a step that takes so long.
StepTime in_seconds(StepTime time, std::optional<double> seconds) {
  const double factor = seconds && time.total() > 0 ? *seconds / time.total() : 1;
  for (double* part : {&time.forward, &time.backward, &time.optimizer}) {
    *part *= factor;
  }
  for (std::optional<PassTime>* pass : {&time.forward_split, &time.backward_split}) {
    if (*pass) {
      for (double* part : {&(*pass)->norm, &(*pass)->convolution, &(*pass)->product, &(*pass)->rest}) {
        *part *= factor;
      }
    }
  }
  return time;
}

Section times(const std::vector<NamedTelemetry>& runs) {
  Section section = section_called("step");
  bool scaled = false;
  Table table{.heads = {"network", "norm", "step ms", "forward", "backward", "optimizer", "norms", "convolutions",
                        "products", "rest", "rate of steps, % of the median", "kept for backward", "by norms"},
              .words = 2};
  for (const NamedTelemetry& run : runs) {
    if (run.telemetry->step_time.samples == 0) {
      continue;
    }
    scaled |= run.step_seconds.has_value();
    const StepTime time = in_seconds(run.telemetry->step_time, run.step_seconds);
    Table::Row& row = table.add(run.group, run.label, milliseconds(time.total()), share_of_step(time.forward, time),
                                share_of_step(time.backward, time), share_of_step(time.optimizer, time));
    if (time.forward_split && time.backward_split) {
      const PassTime& f = *time.forward_split;
      const PassTime& b = *time.backward_split;
      for (const double seconds :
           {f.norm + b.norm, f.convolution + b.convolution, f.product + b.product, f.rest + b.rest}) {
        row.add(share_of_step(seconds, time));
      }
    } else {
      row.add("–", "–", "–", "–");
    }
    const Throughput& rate = run.telemetry->throughput;
    row.add(rate.median > 0
                ? fmt::format("{:.0f} to {:.0f}", 100 * rate.min / rate.median, 100 * rate.max / rate.median)
                : "–",
            format_bytes(run.telemetry->saved_bytes()), format_bytes(saved_bytes(*run.telemetry, LayerKind::norm)));
  }
  if (!table.rows.empty()) {
    section.blocks = {CaptionedTable{"Milliseconds of a training step, and their share of it", std::move(table)},
                      Note{text_of("step", scaled ? text_of("scaled-step") : "")}};
  }
  return section;
}

Section ledgers(const std::vector<NamedTelemetry>& runs) {
  Section section = section_called("ledger");
  Table table{.heads = {"network", "norm", "layer", "op", "pass", "from", "to", "copies", "moved per step"},
              .words = 7};
  size_t known = 0;
  size_t clean = 0;
  for (const NamedTelemetry& run : runs) {
    const std::vector<LayoutCopy>& ledger = run.telemetry->ledger;
    known += run.telemetry->ledger_known ? 1 : 0;
    clean += run.telemetry->ledger_known && ledger.empty() ? 1 : 0;
    for (size_t i = 0; i < std::min(ledger.size(), kMostCopies); ++i) {
      const LayoutCopy& copy = ledger[i];
      table.add(run.group, run.label, copy.layer, copy.op, to_string(copy.pass), copy.from, copy.to, copy.count,
                format_bytes(copy.bytes));
    }
    if (ledger.size() > kMostCopies) {
      const std::span<const LayoutCopy> rest = std::span(ledger).subspan(kMostCopies);
      table.add(run.group, run.label, fmt::format("{} more", rest.size()), "", "", "", "", "",
                format_bytes(sum_of(rest, &LayoutCopy::bytes)));
    }
  }
  if (known > 0) {
    section.blocks = {
        Note{fmt::format("{} of {} networks make no copy of images in another memory format.", clean, known)}};
  }
  if (known > 0 && !table.rows.empty()) {
    section.blocks.emplace_back(
        CaptionedTable{"Copies that a training step makes and nobody asked for by name", std::move(table)});
  }
  return section;
}

void add_health(Table& table, const LayerHealth& layer) {
  const TensorHealth none{.mean = NAN, .deviation = NAN, .largest = NAN};
  const TensorHealth gradient = layer.gradient.value_or(none);
  const auto range = [](const std::optional<ParameterSpread>& spread) {
    return spread ? fmt::format("{:.3g} to {:.3g}", spread->min, spread->max) : "–";
  };
  table.add(layer.layer, to_string(layer.kind), number(layer.output.mean), number(layer.output.deviation),
            number(layer.output.largest), number(gradient.deviation), number(gradient.largest),
            layer.output.non_finite + gradient.non_finite, fmt::format("{:.1f} %", 100 * layer.dead_channels),
            range(layer.gamma), range(layer.beta), layer.gap ? number(layer.gap->mean) : "–");
}

Section health(const std::vector<NamedTelemetry>& runs) {
  Section section = section_called("health");
  Table table{.heads = {"network", "norm", "not finite", "largest |output|", "largest |gradient|",
                        "least gradient deviation", "dead channels", "least γ", "largest γ", "largest batch norm gap"},
              .words = 2};
  for (const NamedTelemetry& run : runs) {
    if (run.telemetry->health.empty()) {
      continue;
    }
    const HealthSummary summary = summarize_health(*run.telemetry);
    table.add(run.group, run.label, summary.non_finite, figure_text(summary.largest_output),
              figure_text(summary.largest_gradient), figure_text(summary.smallest_gradient),
              figure_text(summary.most_dead_channels, /* percent= */ true), figure_text(summary.least_gamma),
              figure_text(summary.largest_gamma), figure_text(summary.largest_gap));
  }
  if (table.rows.empty()) {
    return section;
  }
  section.blocks.emplace_back(CaptionedTable{"The extremes of each run, with their layer and step", std::move(table)});
  size_t shown = 0;
  for (const NamedTelemetry& run : runs) {
    if (run.telemetry->health.empty() || shown == kMostDetails) {
      continue;
    }
    ++shown;
    const HealthSample& last = run.telemetry->health.back();
    Table layers{.heads = {"layer", "kind", "mean", "deviation", "largest", "gradient deviation", "largest gradient",
                           "not finite", "dead channels", "γ", "β", "batch norm gap"}};
    for (const LayerHealth& layer : last.layers) {
      add_health(layers, layer);
    }
    section.blocks.emplace_back(
        Fold{.summary = fmt::format("{} {}: all layers in step {}", run.group, run.label, last.step),
             .blocks = {CaptionedTable{fmt::format("Layers of {} {}", run.group, run.label), std::move(layers)}},
             .on_page_only = true});
  }
  section.blocks.emplace_back(Note{text_of("health")});
  return section;
}

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
  auto samples = mapped(run.telemetry->health, [](const HealthSample& sample) { return &sample; });
  std::erase_if(samples, [](const HealthSample* sample) { return !sample->dynamics; });
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
    if (is_in(groups, run.group, [](const auto& group) { return group.first; }) || groups.size() < kMostGroups) {
      entry_of(groups, run.group).push_back(&run);
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
  return mapped(labels, [](const auto& one) { return Block(Note{fmt::format("{}: {}.", one.second, one.first)}); });
}

}  // namespace

std::vector<NamedTelemetry> named_telemetry(const Comparison& comparison) {
  std::vector<const Cell*> chosen;
  for (const Cell& cell : comparison.cells) {
    if (!cell.telemetry) {
      continue;
    }
    const auto found = std::ranges::find_if(chosen, [&](const Cell* other) { return same_but_seed(*other, cell); });
    if (found == chosen.end()) {
      chosen.push_back(&cell);
    } else if ((*found)->state == CellState::failed && cell.state == CellState::finished) {
      *found = &cell;
    }
  }
  std::vector<NamedTelemetry> runs;
  for (const Cell* cell : chosen) {
    std::optional<double> seconds = seconds_of_step(comparison, *cell);
    if (seconds) {  // a step of a round has one batch
      *seconds *= static_cast<double>(comparison.recipe.grad_accum_steps);
    }
    const std::string_view remark = cell->state == CellState::failed ? " (failed)" : "";
    runs.push_back({.group = group_label(comparison, *cell),
                    .label = fmt::format("{}{}", train::norm_label(cell->norm, comparison.recipe), remark),
                    .telemetry = &*cell->telemetry,
                    .dynamics = comparison.dynamics,
                    .step_seconds = seconds});
  }
  return runs;
}

std::vector<Section> telemetry_sections(const std::vector<NamedTelemetry>& runs) {
  return {times(runs), ledgers(runs), health(runs), attention_section(runs), dynamics_section(runs)};
}

Section dynamics_section(const std::vector<NamedTelemetry>& runs) {
  Figures charts =
      figures_of(runs, "dynamics", drawings(), [](const NamedTelemetry& run) { return !samples_of(run).empty(); });
  Section section = section_called("dynamics");
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
  section.blocks.emplace_back(Note{text_of("dynamics")});
  return section;
}

Section attention_section(const std::vector<NamedTelemetry>& runs) {
  Section section = section_called("attention");
  Figures charts = figures_of(runs, "attention", attention_drawings(),
                              [](const NamedTelemetry& run) { return last_heads(run) != nullptr; });
  if (!charts.figures.empty()) {
    section.blocks.emplace_back(std::move(charts));
    section.blocks.emplace_back(Note{text_of("attention")});
  }
  return section;
}

}  // namespace norma::lab
