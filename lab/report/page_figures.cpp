#include "lab/report/chart.h"
#include "lab/report/decide_rows.h"
#include "lab/report/page.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace norma::lab {

namespace {

constexpr size_t kOpenFigures = 8;  ///< further ones are folded away
constexpr size_t kOpenRows = 40;    ///< of a chart; a longer one is folded away

/// A section with a chart for each group, as far as `chart` makes one; "" without any. `notes` stand above the charts.
std::string section(const Page& page, std::string_view id, std::string_view title, std::string_view note,
                    const std::function<std::string(const PageGroup&, const std::string& id)>& chart) {
  std::vector<std::string> shown;
  std::vector<std::string> folded;
  for (size_t i = 0; i < page.groups.size(); ++i) {
    std::string html = chart(page.groups[i], fmt::format("{}-{}", id, i + 1));
    if (!html.empty()) {
      (page.groups[i].rows.size() > kOpenRows ? folded : shown).push_back(std::move(html));
    }
  }
  const size_t open = std::min(shown.size(), kOpenFigures);
  shown.insert(shown.end(), folded.begin(), folded.end());
  return shown.empty()
             ? ""
             : section_head(id, title) + fmt::format("<p class=\"note\">{}</p>\n", note) + figures(shown, open);
}

/// True iff a norm has several dots.
bool has_several_seeds(const Page& page) {
  return std::any_of(page.groups.begin(), page.groups.end(), [](const PageGroup& group) {
    return std::any_of(group.rows.begin(), group.rows.end(), [](const PageRow& row) { return row.row.finished > 1; });
  });
}

std::string accuracy_chart(const PageGroup& group, const std::string& id) {
  DotPlot plot{.id = id,
               .title = "Test accuracy of " + group.label,
               .description = "A dot for each norm at its mean accuracy over the seeds, in percent:",
               .x_label = "test accuracy, %",
               .dots = {}};
  for (const PageRow& row : group.rows) {
    if (row.row.finished == 0) {
      continue;
    }
    Dot dot{.name = row.label,
            .style = row.style,
            .value = 100 * row.row.accuracy.mean,
            .parts = {},
            .text = format_spread(row.row.accuracy, 2, 100) + " %"};
    if (row.row.finished > 1) {
      for (const Cell* cell : row.cells) {
        if (cell->state == CellState::finished) {
          dot.parts.push_back(100 * cell->accuracy);
        }
      }
    }
    plot.description += fmt::format(" {} {};", row.label, dot.text);
    plot.dots.push_back(std::move(dot));
  }
  plot.description.back() = '.';
  return plot.dots.empty() ? "" : figure(group.label, "", dot_plot(plot));
}

/// True iff groups with equal values on one axis have equal values on the other, as when the learning rate follows the
/// batch size.
bool follows(const Page& page, const Axis& other, const Axis& axis) {
  std::map<std::string, std::string> values;
  return std::all_of(page.groups.begin(), page.groups.end(), [&](const PageGroup& group) {
    const auto [known, fresh] = values.try_emplace(axis.value(group.settings), other.value(group.settings));
    return fresh || known->second == other.value(group.settings);
  });
}

/// The axes to draw accuracy against: numbers and precisions, and models if there are several of a row. An axis that
/// follows another is left out.
std::vector<Axis> axes_to_draw(const Page& page) {
  const Axis model{.name = "model", .value = [](const Settings& settings) { return settings.model; }};
  std::set<std::string> models;
  for (const PageGroup& group : page.groups) {
    models.insert(group.settings.model);
  }
  std::vector<Axis> axes;
  for (const Axis& axis : page.axes) {
    const bool drawn = axis.name == "batch size" || axis.name == "lr" || axis.name == "precision";
    if (drawn && std::none_of(axes.begin(), axes.end(), [&](const Axis& other) {
          return follows(page, axis, other) && follows(page, other, axis);
        })) {
      axes.push_back(axis);
    }
  }
  if (models.size() > 2) {
    axes.push_back(model);
  }
  return axes;
}

/// Accuracy against an axis, one curve for each norm, for each combination of the other axes.
std::vector<std::string> axis_charts(const Page& page, const Axis& axis) {
  struct Panel {
    std::string label;
    std::vector<const PageGroup*> groups;  // one per value
  };
  std::vector<Panel> panels;
  for (const PageGroup& group : page.groups) {
    std::string label = axis.name == "model" ? "" : " of " + group.settings.model;
    for (const Axis& other : page.axes) {
      if (other.name != axis.name && !follows(page, other, axis)) {
        label += fmt::format(", {} {}", other.name, other.value(group.settings));
      }
    }
    const auto found =
        std::find_if(panels.begin(), panels.end(), [&](const Panel& panel) { return panel.label == label; });
    (found != panels.end() ? *found : panels.emplace_back(Panel{label, {}})).groups.push_back(&group);
  }
  std::vector<std::string> charts;
  for (Panel& panel : panels) {
    LineChart chart{
        .id = fmt::format("against-{}-{}", axis.name == "batch size" ? "batch" : axis.name, charts.size() + 1),
        .title = fmt::format("Test accuracy{} against {}", panel.label, axis.name),
        .description =
            fmt::format("A curve for each norm over {} values; the table has the numbers.", panel.groups.size()),
        .x_label = std::string(axis.name),
        .y_label = "test accuracy, %",
        .series = {}};
    const auto number = [&](const PageGroup* group) {  // names stay in the given order
      return axis.name == "lr"           ? group->settings.lr
             : axis.name == "batch size" ? static_cast<double>(group->settings.batch_size)
                                         : 0;
    };
    std::stable_sort(panel.groups.begin(), panel.groups.end(),
                     [&](const PageGroup* a, const PageGroup* b) { return number(a) < number(b); });
    for (const PageGroup* group : panel.groups) {
      const auto x = static_cast<double>(chart.x_names.size());
      chart.x_names.push_back(axis.value(group->settings));
      for (const PageRow& row : group->rows) {
        if (row.row.finished == 0) {
          continue;
        }
        auto series = std::find_if(chart.series.begin(), chart.series.end(),
                                   [&](const Series& other) { return other.name == row.label; });
        if (series == chart.series.end()) {
          chart.series.push_back({.name = row.label, .style = row.style, .x = {}, .y = {}});
          series = chart.series.end() - 1;
        }
        series->x.push_back(x);
        series->y.push_back(100 * row.row.accuracy.mean);
      }
    }
    if (chart.x_names.size() > 1 && !chart.series.empty()) {
      charts.push_back(figure(chart.title, "", line_chart(chart)));
    }
  }
  return charts;
}

/// Seconds of all training steps of a row, as timed in turns; none before all rounds are made.
std::optional<double> seconds_in_turns(const PageRow& row) {
  const Comparison& comparison = *row.source->comparison;
  const std::optional<double> step = seconds_of_step(comparison, row.row);
  const auto finished = std::find_if(row.cells.begin(), row.cells.end(),
                                     [](const Cell* cell) { return cell->state == CellState::finished; });
  if (!step || finished == row.cells.end()) {
    return std::nullopt;
  }
  const auto batches = static_cast<double>((*finished)->losses.size()) *  // a step of a round has one batch
                       static_cast<double>(comparison.recipe.grad_accum_steps);
  return *step * batches;
}

/// Seconds of the whole run, the mean of the seeds.
double seconds_of_runs(const PageRow& row) {
  double sum = 0;
  for (const Cell* cell : row.cells) {
    sum += cell->state == CellState::finished ? cell->seconds : 0;
  }
  return sum / static_cast<double>(row.row.finished);
}

std::string time_chart(const PageGroup& group, const std::string& id) {
  bool in_turns = true;
  size_t finished = 0;
  for (const PageRow& row : group.rows) {
    if (row.row.finished > 0) {
      ++finished;
      in_turns &= seconds_in_turns(row).has_value();
    }
  }
  if (finished < 2) {
    return "";
  }
  PointChart chart{.id = id,
                   .title = fmt::format("Test accuracy of {} against training time", group.label),
                   .description = "A point for each norm:",
                   .x_label = {},
                   .y_label = "test accuracy, %",
                   .points = {}};
  std::vector<double> seconds;
  for (const PageRow& row : group.rows) {
    if (row.row.finished > 0) {
      seconds.push_back(in_turns ? *seconds_in_turns(row) : seconds_of_runs(row));
      chart.points.push_back(
          {.name = row.label, .style = row.style, .x = seconds.back(), .y = 100 * row.row.accuracy.mean});
    }
  }
  const bool minutes = *std::max_element(seconds.begin(), seconds.end()) > 300;
  for (Point& point : chart.points) {
    point.x /= minutes ? 60 : 1;
    chart.description +=
        fmt::format(" {} {:.2f} % after {:.1f} {};", point.name, point.y, point.x, minutes ? "minutes" : "seconds");
  }
  chart.description.back() = '.';
  chart.x_label = minutes ? "minutes of training" : "seconds of training";
  return figure(group.label,
                in_turns ? "Time: the training steps, each as long as the median of those made in turns."
                         : "Time: of the runs, which met different moments of the machine.",
                point_chart(chart));
}

/// A dot and an interval for each norm with a decision; "" without any.
std::string decision_chart(const PageGroup& group, DotPlot plot, std::optional<Decision> Row::*decision,
                           std::string (*text)(const std::optional<Decision>&), double factor) {
  for (const PageRow& row : group.rows) {
    if (const std::optional<Decision>& decided = row.row.*decision) {
      Dot dot{.name = row.label, .style = row.style, .value = NAN, .text = text(decided)};
      if (decided->known()) {
        dot.value = factor * decided->difference;
        dot.low = factor * decided->low;
        dot.high = factor * decided->high;
      }
      plot.description += fmt::format(" {} {};", row.label, dot.text);
      plot.dots.push_back(std::move(dot));
    }
  }
  plot.description.back() = '.';
  plot.reference = 0;
  return plot.dots.empty() ? "" : figure(group.label, "", dot_plot(plot));
}

std::string difference_chart(const PageGroup& group, const std::string& id) {
  return decision_chart(group,
                        {.id = id,
                         .title = "Accuracy beside batch norm in " + group.label,
                         .description = "A dot for each norm at its mean difference from batch norm, in points:",
                         .x_label = "points of test accuracy more than batch norm",
                         .dots = {}},
                        &Row::accuracy_difference, format_difference, 1);
}

std::string tax_chart(const PageGroup& group, const std::string& id) {
  return decision_chart(
      group,
      {.id = id,
       .title = "Norm tax in " + group.label,
       .description = "A dot for each norm at the share of batch norm's throughput that is lost, in percent:",
       .x_label = "throughput lost, %",
       .dots = {}},
      &Row::tax, format_tax, 100);
}

std::string memory_chart(const PageGroup& group, const std::string& id) {
  BarChart chart{.id = id,
                 .title = "Most memory of tensors in " + group.label,
                 .description = "A bar for each norm:",
                 .x_label = "MB",
                 .bars = {}};
  for (const PageRow& row : group.rows) {
    if (row.row.finished > 0) {
      chart.bars.push_back({.name = row.label,
                            .style = row.style,
                            .value = static_cast<double>(row.row.peak_bytes) / 1e6,
                            .text = format_bytes(row.row.peak_bytes)});
      chart.description += fmt::format(" {} {};", row.label, chart.bars.back().text);
    }
  }
  chart.description.back() = '.';
  return chart.bars.empty() ? "" : figure(group.label, "", bar_chart(chart));
}

}  // namespace

std::string axes_section(const Page& page) {
  std::string html;
  for (const Axis& axis : axes_to_draw(page)) {
    if (const std::vector<std::string> charts = axis_charts(page, axis); !charts.empty()) {
      html += fmt::format("<h3>Against {}</h3>\n{}", axis.name, figures(charts, kOpenFigures));
    }
  }
  return html.empty() ? "" : section_head("axes", "Accuracy by setting") + html;
}

std::string accuracy_section(const Page& page) {
  return section(
      page, "accuracy", "Accuracy",
      has_several_seeds(page)
          ? "The large dot is the mean, each small one a seed. The axis does not begin at 0."
          : "One run each: how far another seed would move a dot is not known. The axis does not begin at 0.",
      accuracy_chart);
}

std::string difference_section(const Page& page) {
  return section(
      page, "difference", "Accuracy beside batch norm",
      "Right of 0 a norm is more accurate than batch norm with the same seeds, left of it less. Where the bar "
      "reaches 0, no difference was found.",
      difference_chart);
}

std::string time_section(const Page& page) {
  return section(page, "time", "Accuracy against time", "Further up is more accurate, further left is faster.",
                 time_chart);
}

std::string tax_section(const Page& page) {
  return section(
      page, "tax", "Norm tax",
      "Right of 0 a norm is slower than batch norm, left of it faster. Where the bar reaches 0, no tax was found.",
      tax_chart);
}

std::string memory_section(const Page& page) {
  return section(page, "memory", "Memory",
                 "The most that tensors held at one time during training: parameters, gradients, optimizer, "
                 "activations.",
                 memory_chart);
}

}  // namespace norma::lab
