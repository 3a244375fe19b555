#include "base/lists.h"
#include "lab/report/decisions.h"
#include "lab/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

// The sections of charts: a chart for each group of rows.

namespace norma::lab {

namespace {

constexpr size_t kOpenFigures = 8;   ///< further ones are folded away
constexpr size_t kOpenRows = 40;     ///< of a chart; a longer one is folded away
constexpr size_t kOpenCurves = 6;    ///< charts of curves
constexpr size_t kMostCurves = 8;    ///< in a chart: more cannot be told apart
constexpr size_t kMostPoints = 300;  ///< in a curve: more cannot be told apart
constexpr size_t kFewestPoints = 40;
constexpr size_t kPointsOfPage = 90000;  ///< in all curves: about half a megabyte

/// A chart of a group; none if nothing is known for it.
using Draw = std::optional<Figure> (*)(const PageGroup& group, const std::string& id);

/// A section with a chart for each group, as far as `draw` makes one.
Section section_of(const Page& page, Section section, Draw draw) {
  Figures shown{.figures = {}, .open = 0};
  std::vector<Figure> folded;
  for (size_t i = 0; i < page.groups.size(); ++i) {
    if (std::optional<Figure> figure = draw(page.groups[i], fmt::format("{}-{}", section.id, i + 1))) {
      (page.groups[i].rows.size() > kOpenRows ? folded : shown.figures).push_back(std::move(*figure));
    }
  }
  shown.open = std::min(shown.figures.size(), kOpenFigures);
  std::ranges::move(folded, std::back_inserter(shown.figures));
  if (!shown.figures.empty()) {
    section.blocks.emplace_back(std::move(shown));
  }
  return section;
}

/// Puts a part after the others of a description, which ends with a full stop.
void describe(std::string& description, const std::string& part) {
  description.back() = description.back() == '.' ? ';' : description.back();
  description += fmt::format(" {}.", part);
}

/// A plot with a row for each norm that `dot_of` has a dot for; none without any.
std::optional<Figure> plot_of(const PageGroup& group, DotPlot plot,
                              const std::function<std::optional<Dot>(const PageRow&)>& dot_of) {
  for (const PageRow& row : group.rows) {
    if (std::optional<Dot> dot = dot_of(row)) {
      dot->name = row.label;
      dot->style = row.style;
      describe(plot.description, fmt::format("{} {}", row.label, dot->text));
      plot.dots.push_back(std::move(*dot));
    }
  }
  return plot.dots.empty() ? std::nullopt : std::optional(Figure{.title = group.label, .chart = std::move(plot)});
}

std::optional<Figure> accuracy_chart(const PageGroup& group, const std::string& id) {
  const auto dot_of = [](const PageRow& row) -> std::optional<Dot> {
    Dot dot{.value = 100 * row.row.accuracy.mean, .text = format_spread(row.row.accuracy, 2, 100) + " %"};
    for (const Cell* cell : row.cells) {
      if (cell->state == CellState::finished && row.row.finished > 1) {
        dot.parts.push_back(100 * cell->accuracy);
      }
    }
    return row.row.finished == 0 ? std::nullopt : std::optional(std::move(dot));
  };
  return plot_of(group,
                 {.id = id,
                  .title = "Test accuracy of " + group.label,
                  .description = "A dot for each norm at its mean accuracy over the seeds, in percent:",
                  .x_label = "test accuracy, %"},
                 dot_of);
}

/// A dot and an interval for each norm with a decision.
std::optional<Figure> decision_chart(const PageGroup& group, DotPlot plot, std::optional<Decision> Row::*decision,
                                     std::string (*text)(const std::optional<Decision>&), double factor) {
  plot.reference = 0;
  return plot_of(group, std::move(plot), [&](const PageRow& row) -> std::optional<Dot> {
    const std::optional<Decision>& decided = row.row.*decision;
    Dot dot{.value = NAN, .text = text(decided)};
    if (decided && decided->known()) {
      dot.value = factor * decided->difference;
      dot.low = factor * decided->low;
      dot.high = factor * decided->high;
    }
    return decided ? std::optional(std::move(dot)) : std::nullopt;
  });
}

std::optional<Figure> difference_chart(const PageGroup& group, const std::string& id) {
  return decision_chart(group,
                        {.id = id,
                         .title = "Accuracy of norms beside batch norm in " + group.label,
                         .description = "A dot and an interval for each norm, in points:",
                         .x_label = "points more accurate than batch norm"},
                        &Row::accuracy_difference, format_difference, 1);
}

std::optional<Figure> tax_chart(const PageGroup& group, const std::string& id) {
  return decision_chart(group,
                        {.id = id,
                         .title = "Norm tax of " + group.label,
                         .description = "A dot and an interval for each norm:",
                         .x_label = "% of batch norm's throughput lost"},
                        &Row::tax, format_tax, 100);
}

/// Seconds of all training steps of a row, by the images per second of the table; none before all rounds are made.
std::optional<double> seconds_in_turns(const PageRow& row) {
  const Comparison& comparison = *row.source->comparison;
  const std::optional<double> step = seconds_of_step(comparison, row.row);
  const auto finished = std::ranges::find(row.cells, CellState::finished, &Cell::state);
  if (!step || finished == row.cells.end()) {
    return std::nullopt;
  }
  return *step * static_cast<double>((*finished)->losses.size()) *
         static_cast<double>(comparison.recipe.grad_accum_steps);  // a step of a round has one batch
}

/// Seconds of the whole run, the mean of the seeds.
double seconds_of_runs(const PageRow& row) {
  const auto seconds = [](const Cell* cell) { return cell->state == CellState::finished ? cell->seconds : 0; };
  return sum_of(row.cells, seconds) / static_cast<double>(row.row.finished);
}

std::optional<Figure> time_chart(const PageGroup& group, const std::string& id) {
  auto rows = mapped(group.rows, [](const PageRow& row) { return &row; });
  std::erase_if(rows, [](const PageRow* row) { return row->row.finished == 0; });
  if (rows.size() < 2) {
    return std::nullopt;
  }
  const bool in_turns =
      std::ranges::all_of(rows, [](const PageRow* row) { return seconds_in_turns(*row).has_value(); });
  const std::vector<double> seconds =
      mapped(rows, [&](const PageRow* row) { return in_turns ? *seconds_in_turns(*row) : seconds_of_runs(*row); });
  constexpr double kMinute = 60;
  const bool minutes = std::ranges::max(seconds) > 5 * kMinute;
  PointChart chart{.id = id,
                   .title = fmt::format("Test accuracy of {} against training time", group.label),
                   .description = "A point for each norm:",
                   .x_label = minutes ? "minutes of training" : "seconds of training",
                   .y_label = "test accuracy, %",
                   .points = {}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const Point& point = chart.points.emplace_back(Point{.name = rows[i]->label,
                                                         .style = rows[i]->style,
                                                         .x = seconds[i] / (minutes ? kMinute : 1),
                                                         .y = 100 * rows[i]->row.accuracy.mean});
    describe(chart.description,
             fmt::format("{} {:.2f} % after {:.1f} {}", point.name, point.y, point.x, minutes ? "minutes" : "seconds"));
  }
  return Figure{.title = group.label,
                .note = in_turns ? "Time: the training steps, at the images per second of the table."
                                 : "Time: of the runs, which met different moments of the machine.",
                .chart = std::move(chart)};
}

std::optional<Figure> memory_chart(const PageGroup& group, const std::string& id) {
  const auto dot_of = [](const PageRow& row) -> std::optional<Dot> {
    return row.row.finished == 0 ? std::nullopt
                                 : std::optional(Dot{.value = static_cast<double>(row.row.peak_bytes) / 1e6,
                                                     .text = format_bytes(row.row.peak_bytes)});
  };
  return plot_of(group,
                 {.id = id,
                  .title = "Most memory of tensors in " + group.label,
                  .description = "A bar for each norm:",
                  .x_label = "MB",
                  .bars = true},
                 dot_of);
}

// --- accuracy against an axis -----------------------------------------------------------------------------------

/// The axes to draw accuracy against: numbers and precisions, and models if there are several of a row. An axis that
/// follows another is left out.
std::vector<Axis> axes_to_draw(const Page& page) {
  std::vector<Axis> axes;
  for (const Axis& axis : page.axes) {
    const bool drawn = axis.name == "batch size" || axis.name == "lr" || axis.name == "precision";
    if (drawn && std::ranges::none_of(axes, [&](const Axis& other) {
          return follows(axis, other, page.groups, &PageGroup::settings) &&
                 follows(other, axis, page.groups, &PageGroup::settings);
        })) {
      axes.push_back(axis);
    }
  }
  std::set<std::string> models;
  for (const PageGroup& group : page.groups) {
    models.insert(group.settings.model);
  }
  if (models.size() > 2) {
    axes.push_back({.name = "model", .value = [](const Settings& settings) { return settings.model; }});
  }
  return axes;
}

/// The curves of groups that differ on one axis, a curve for each norm.
Figure axis_chart(const Axis& axis, const std::string& label, std::vector<const PageGroup*> groups, size_t number) {
  LineChart chart{
      .id = fmt::format("against-{}-{}", axis.name == "batch size" ? "batch" : axis.name, number),
      .title = fmt::format("Test accuracy{} against {}", label, axis.name),
      .description = fmt::format("A curve for each norm over {} values; the table has the numbers.", groups.size()),
      .x_label = std::string(axis.name),
      .y_label = "test accuracy, %",
      .series = {}};
  std::ranges::stable_sort(groups, {}, [&](const PageGroup* group) {  // names stay in the given order
    return axis.name == "lr"           ? group->settings.lr
           : axis.name == "batch size" ? static_cast<double>(group->settings.batch_size)
                                       : 0;
  });
  for (const PageGroup* group : groups) {
    const auto x = static_cast<double>(chart.x_names.size());
    chart.x_names.push_back(axis.value(group->settings));
    for (const PageRow& row : group->rows) {
      if (row.row.finished == 0) {
        continue;
      }
      auto series = std::ranges::find(chart.series, row.label, &Series::name);
      if (series == chart.series.end()) {
        chart.series.push_back({.name = row.label, .style = row.style, .x = {}, .y = {}});
        series = chart.series.end() - 1;
      }
      series->x.push_back(x);
      series->y.push_back(100 * row.row.accuracy.mean);
    }
  }
  return {.title = chart.title, .chart = std::move(chart)};
}

/// Accuracy against an axis for each combination of the other axes.
Figures axis_charts(const Page& page, const Axis& axis) {
  std::vector<std::pair<std::string, std::vector<const PageGroup*>>> panels;
  for (const PageGroup& group : page.groups) {
    std::string label = axis.name == "model" ? "" : " of " + group.settings.model;
    for (const Axis& other : page.axes) {
      if (other.name != axis.name && !follows(other, axis, page.groups, &PageGroup::settings)) {
        label += fmt::format(", {} {}", other.name, other.value(group.settings));
      }
    }
    entry_of(panels, label).push_back(&group);
  }
  Figures charts{.figures = {}, .open = kOpenFigures};
  for (const auto& [label, groups] : panels) {
    Figure figure = axis_chart(axis, label, groups, charts.figures.size() + 1);
    if (groups.size() > 1 && !std::get<LineChart>(figure.chart).series.empty()) {
      charts.figures.push_back(std::move(figure));
    }
  }
  return charts;
}

// --- loss curves ------------------------------------------------------------------------------------------------

/// Exponential moving average over about a fortieth of the run, without the pull towards 0 at the start.
std::vector<double> smoothed(const std::vector<double>& values) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(values.size()) / 40);
  std::vector<double> result;
  double sum = 0;
  double weight = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {  // a step that was left out may have any loss
      sum = keep * sum + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    result.push_back(sum / weight);
  }
  return result;
}

/// The mean of each step, as far as all curves go.
std::vector<double> mean_curve_of(const std::vector<const std::vector<double>*>& curves) {
  const size_t steps = std::ranges::min(mapped(curves, [](const auto* curve) { return curve->size(); }));
  std::vector<double> mean(steps);
  for (size_t i = 0; i < steps; ++i) {
    for (const std::vector<double>* curve : curves) {
      mean[i] += (*curve)[i] / static_cast<double>(curves.size());
    }
  }
  return mean;
}

std::vector<double> images_at(size_t steps, const PageRow& row) {
  const int64_t images_per_step = row.row.batch_size * row.source->comparison->recipe.grad_accum_steps;
  std::vector<double> images(steps);
  for (size_t i = 0; i < steps; ++i) {
    images[i] = static_cast<double>(images_per_step) * static_cast<double>(i + 1);
  }
  return images;
}

/// The pale curves of a row's seeds and the strong one of their smoothed mean.
void put_curves(LineChart& chart, const PageRow& row) {
  std::vector<const std::vector<double>*> losses;
  for (const Cell* cell : row.cells) {
    if (!cell->losses.empty()) {
      losses.push_back(&cell->losses);
      chart.series.push_back({.name = fmt::format("{}, seed {}", row.label, cell->seed),
                              .style = row.style,
                              .x = images_at(cell->losses.size(), row),
                              .y = cell->losses,
                              .faint = true});
    }
  }
  if (!losses.empty()) {
    std::vector<double> mean = smoothed(mean_curve_of(losses));
    std::vector<double> images = images_at(mean.size(), row);
    describe(chart.description, fmt::format("{} ends at {:.3f}", row.label, mean.back()));
    chart.series.push_back({.name = row.label, .style = row.style, .x = std::move(images), .y = std::move(mean)});
  }
}

}  // namespace

Section axes_section(const Page& page) {
  Section section = section_called("axes");
  for (const Axis& axis : axes_to_draw(page)) {
    if (Figures charts = axis_charts(page, axis); !charts.figures.empty()) {
      section.blocks.emplace_back(Heading{fmt::format("Against {}", axis.name)});
      section.blocks.emplace_back(std::move(charts));
    }
  }
  return section;
}

Section learning_section(const Page& page) {
  const size_t most_points = std::clamp(kPointsOfPage / (2 * page.cells), kFewestPoints, kMostPoints);
  Figures charts{.figures = {}, .open = kOpenCurves};
  for (const PageGroup& group : page.groups) {
    const size_t panels = (group.rows.size() + kMostCurves - 1) / kMostCurves;
    for (size_t panel = 0; panel < panels; ++panel) {
      const std::string part = panels > 1 ? fmt::format(", {} of {}", panel + 1, panels) : "";
      LineChart chart{.id = fmt::format("learning-{}", charts.figures.size() + 1),
                      .title = fmt::format("Training loss of {}{}", group.label, part),
                      .description = "A curve for each norm:",
                      .x_label = "training images",
                      .y_label = "loss",
                      .series = {},
                      .most_points = most_points};
      const size_t end = std::min(group.rows.size(), (panel + 1) * kMostCurves);
      for (size_t i = panel * kMostCurves; i < end; ++i) {
        put_curves(chart, group.rows[i]);
      }
      if (!chart.series.empty()) {
        charts.figures.push_back({.title = group.label + part, .chart = std::move(chart)});
      }
    }
  }
  Section section = section_called("learning");
  if (!charts.figures.empty()) {
    section.blocks.emplace_back(std::move(charts));
  }
  return section;
}

std::vector<Section> figure_sections(const Page& page) {
  const bool several_seeds = std::ranges::any_of(page.groups, [](const PageGroup& group) {
    return std::ranges::any_of(group.rows, [](const PageRow& row) { return row.row.finished > 1; });
  });
  Section accuracy = section_called("accuracy");
  accuracy.sentence = several_seeds ? accuracy.sentence : text_of("accuracy-of-one-seed");
  const auto charts = [&](const char* id, Draw draw) { return section_of(page, section_called(id), draw); };
  return {section_of(page, std::move(accuracy), accuracy_chart),
          charts("difference", difference_chart),
          statistics_section(page),
          charts("time", time_chart),
          charts("tax", tax_chart),
          charts("memory", memory_chart),
          learning_section(page)};
}

}  // namespace norma::lab
