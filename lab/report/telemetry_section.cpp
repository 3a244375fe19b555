#include "lab/report/page.h"

#include "lab/report/decide_rows.h"
#include "lab/telemetry/summary.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
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
  Section section{.id = "step", .menu = "Step time", .title = "Where the step's time goes"};
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
    section.blocks = {
        CaptionedTable{"Milliseconds of a training step, and their share of it", std::move(table)},
        Note{fmt::format(
            "Of the middle one of some steps of each run, without waiting for its batch, in milliseconds. {}Norms, "
            "convolutions, products and the rest are forward and backward together; a relu that a norm's op adds "
            "counts "
            "as norm. What is kept for backward counts once, for the first layer that keeps it.",
            scaled
                ? "Runs met different moments of the machine, so each step is scaled to the time that the images per "
                  "second of the results say; its shares are the run's own. "
                : "")}};
  }
  return section;
}

Section ledgers(const std::vector<NamedTelemetry>& runs) {
  Section section{.id = "ledger", .menu = "Implicit copies", .title = "Implicit copies"};
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
      int64_t bytes = 0;
      for (size_t i = kMostCopies; i < ledger.size(); ++i) {
        bytes += ledger[i].bytes;
      }
      table.add(run.group, run.label, fmt::format("{} more", ledger.size() - kMostCopies), "", "", "", "", "",
                format_bytes(bytes));
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
  Section section{.id = "health", .menu = "Layers", .title = "Numbers in the layers"};
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
  section.blocks.emplace_back(Note{
      "Outputs are those of the layer with the activation that its op adds. A channel is dead when it is 0 for a whole "
      "batch. The gap of a batch norm is how far the means of a batch lie from the running ones, in running standard "
      "deviations. results.json has all layers of all runs."});
  return section;
}

}  // namespace

std::vector<NamedTelemetry> named_telemetry(const Comparison& comparison) {
  std::vector<const Cell*> chosen;
  for (const Cell& cell : comparison.cells) {
    if (!cell.telemetry) {
      continue;
    }
    const auto same_row = [&](const Cell* other) {
      Settings settings = *other;
      settings.seed = cell.seed;
      return settings == cell;
    };
    const auto found = std::find_if(chosen.begin(), chosen.end(), same_row);
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

}  // namespace norma::lab
