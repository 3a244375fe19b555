#include "lab/report/chart.h"
#include "lab/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace norma::lab {

namespace {

constexpr size_t kOpenFigures = 6;
constexpr size_t kMostCurves = 8;    ///< in a chart: more cannot be told apart
constexpr size_t kMostPoints = 300;  ///< in a curve: more cannot be told apart
constexpr size_t kFewestPoints = 40;
constexpr size_t kPointsOfPage = 90000;  ///< in all curves: about half a megabyte

/// Exponential moving average over about a fortieth of the run, without the pull towards 0 at the start.
std::vector<double> smoothed(const std::vector<double>& values) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(values.size()) / 40);
  std::vector<double> result;
  result.reserve(values.size());
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
  size_t steps = curves.front()->size();
  for (const std::vector<double>* curve : curves) {
    steps = std::min(steps, curve->size());
  }
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
    chart.description += fmt::format(" {} ends at {:.3f};", row.label, mean.back());
    chart.series.push_back({.name = row.label, .style = row.style, .x = std::move(images), .y = std::move(mean)});
  }
}

}  // namespace

std::string learning_section(const Page& page) {
  const size_t most_points = std::clamp(kPointsOfPage / (2 * page.cells), kFewestPoints, kMostPoints);
  std::vector<std::string> charts;
  for (const PageGroup& group : page.groups) {
    const size_t panels = (group.rows.size() + kMostCurves - 1) / kMostCurves;
    for (size_t panel = 0; panel < panels; ++panel) {
      const std::string part = panels > 1 ? fmt::format(", {} of {}", panel + 1, panels) : "";
      LineChart chart{.id = fmt::format("learning-{}", charts.size() + 1),
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
      chart.description.back() = '.';
      if (!chart.series.empty()) {
        charts.push_back(figure(group.label + part, "", line_chart(chart)));
      }
    }
  }
  return charts.empty()
             ? ""
             : section_head("learning", "Training loss") +
                   "<p class=\"note\">Pale is the loss of each batch, of each seed; strong the moving average "
                   "of their mean.</p>\n" +
                   figures(charts, kOpenFigures);
}

}  // namespace norma::lab
