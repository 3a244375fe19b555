#include "base/lists.h"
#include "lab/report/decisions.h"
#include "lab/report/page.h"
#include "lab/report/section.h"
#include "lab/report/table.h"
#include "lab/statistics/statistics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

// The statistics of each norm beside its reference (docs/statistics.md).

namespace norma::lab {

namespace {

/// Rows by their values on the axes: the models and those that vary.
class Grid {
 public:
  Grid(const Comparison& comparison, const std::vector<Row>& rows) : rows_(rows) {
    axes_ = {{.name = "model", .value = [](const Settings& settings) { return settings.model; }}};
    std::ranges::copy(varying_axes(comparison), std::back_inserter(axes_));
    for (const Axis& axis : axes_) {
      followed_by_.push_back(mapped(axes_, [&](const Axis& other) { return follows(other, axis, rows_); }));
    }
  }

  [[nodiscard]] size_t axes() const { return axes_.size(); }
  /// True iff an axis has several values, and does more than follow an earlier one.
  [[nodiscard]] bool leads(size_t axis) const {
    bool leads = std::ranges::any_of(rows_, [&](const Row& row) { return value(row, axis) != value(rows_[0], axis); });
    for (size_t other = 0; other < axis; ++other) {
      leads = leads && !(followed_by_[axis][other] && followed_by_[other][axis]);
    }
    return leads;
  }
  [[nodiscard]] std::string name(size_t axis) const { return std::string(axes_[axis].name); }
  [[nodiscard]] std::string value(const Row& row, size_t axis) const { return axes_[axis].value(row); }

  /// The first row from which a norm's row differs by the axis alone, and by what follows the axis.
  [[nodiscard]] size_t base_of(size_t row, size_t axis) const {
    for (size_t other = 0; other < row; ++other) {
      bool same = rows_[other].norm == rows_[row].norm && rows_[other].reference == rows_[row].reference;
      for (size_t one = 0; one < axes_.size() && same; ++one) {
        same = followed_by_[axis][one] || value(rows_[other], one) == value(rows_[row], one);
      }
      if (same) {
        return other;
      }
    }
    return row;
  }

  /// All that varies beside an axis, in words.
  [[nodiscard]] std::string place_of(const Row& row, size_t axis) const {
    std::vector<std::string> parts;
    for (size_t one = 0; one < axes_.size(); ++one) {
      if (one == 0 ? axis != 0 : !followed_by_[axis][one]) {
        parts.push_back(one == 0 ? row.model : fmt::format("{} {}", axes_[one].name, value(row, one)));
      }
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

 private:
  const std::vector<Row>& rows_;
  std::vector<Axis> axes_;
  std::vector<std::vector<bool>> followed_by_;  // of each axis, by each
};

constexpr double kPoints = 100;
constexpr std::string_view kNone = "–";

std::string interval_text(double low, double high) {
  return fmt::format("{:.2f} to {:.2f}", low, high);
}

/// The difference with its interval; with one seed, of these two networks over images. All are on the level of their
/// number of tests.
std::string difference_text(const Row& row, const Scatter& scatter, int64_t of_images) {
  if (row.accuracy_difference && row.accuracy_difference->known()) {
    const Decision& known = *row.accuracy_difference;
    return fmt::format("{:+.2f} ({})", known.difference, interval_text(known.low, known.high));
  }
  if (scatter.seeds != 1 || !row.images) {
    return std::string(kNone);
  }
  // Where the normal distribution and the exact test disagree, the interval covers what the test leaves open.
  const Interval normal = interval_of(scatter, 1, level_of(of_images));
  const Interval exact = interval_of(*row.images, scatter.images, level_of(of_images));
  return fmt::format("{:+.2f} ({})", scatter.difference,
                     interval_text(std::min(normal.low, exact.low), std::max(normal.high, exact.high)));
}

/// The pairs whose networks differ on the test images; of one seed also on how many.
std::string images_text(const Row& row, const std::vector<PairedRun>& runs, int64_t of_images) {
  if (row.images) {
    return fmt::format("{} : {}, {}", row.images->only_first, row.images->only_second,
                       format_chance(row.images->chance));
  }
  const auto differ = std::ranges::count_if(runs, [&](const PairedRun& run) {
    return mcnemar(run.norm->right, run.reference->right).chance < level_of(of_images);
  });
  return fmt::format("{} of {}", differ, runs.size());
}

/// As many drawings as leave some values outside of the interval, if the level is not too small for that.
int64_t resamples_for(double level) {
  constexpr double kOutside = 20;
  return std::clamp<int64_t>(std::llround(kOutside / level), 1000, 5000);
}

std::vector<double> accuracies(const std::vector<PairedRun>& runs, const Cell* PairedRun::*which) {
  return mapped(runs, [&](const PairedRun& run) { return kPoints * (run.*which)->accuracy; });
}

/// The numbers of tests by which levels are divided.
struct Tests {
  int64_t accuracy;
  int64_t images;
};

/// Adds nothing for one pair without its images, of which nothing is known.
void put_row(Table& table, const Comparison& comparison, const Row& row, const std::vector<PairedRun>& runs,
             const Tests& tests) {
  const Scatter scatter = scatter_of(runs);
  const std::vector<ImageDifferences> images = image_differences(runs);
  if (runs.size() < 2 && images.empty()) {
    return;
  }
  const std::vector<double> own = accuracies(runs, &PairedRun::norm);
  const std::vector<double> other = accuracies(runs, &PairedRun::reference);
  const bool several = runs.size() > 1;
  const bool decided = row.accuracy_difference && row.accuracy_difference->known();
  const bool robust = static_cast<int64_t>(runs.size()) >= kSeedsOfRobust;
  Table::Row& line = table.add(group_label(comparison, row), train::norm_label(row.norm, comparison.recipe),
                               runs.size(), difference_text(row, scatter, tests.images));
  const double level = level_of(tests.accuracy);
  const BootstrapOptions drawing{.resamples = resamples_for(level), .chance = level};
  if (robust && !images.empty()) {
    const Interval bootstrap = bootstrap_difference(images, drawing);
    line.add(interval_text(bootstrap.low, bootstrap.high));
  } else {
    line.add(kNone);
  }
  line.add(several ? fmt::format("{:.2f}", std::sqrt(scatter.seed_variance / static_cast<double>(scatter.seeds)))
                   : std::string(kNone),
           images.empty()               ? std::string(kNone)
           : scatter.image_variance > 0 ? fmt::format("{:.2f}", std::sqrt(scatter.image_variance))
                                        : "none seen",
           images.empty() ? std::string(kNone) : images_text(row, runs, tests.images));
  const std::optional<Correlation> correlation = correlation_of(own, other, level);
  line.add(correlation
               ? fmt::format("{:.2f} ({})", correlation->value, interval_text(correlation->low, correlation->high))
               : std::string(kNone));
  line.add(!decided                           ? std::string(kNone)
           : row.accuracy_difference->equal   ? "equal"
           : row.accuracy_difference->found() ? "differs"
                                              : format_outlook(*row.outlook));
  if (!robust) {
    line.add(kNone, kNone);
    return;
  }
  const Interval better = bootstrap_figure(own, other, probability_of_improvement, drawing);
  line.add(fmt::format("{:.2f} beside {:.2f}", interquartile_mean(own), interquartile_mean(other)),
           fmt::format("{:.2f} ({})", probability_of_improvement(own, other), interval_text(better.low, better.high)));
}

}  // namespace

std::vector<Interaction> interactions_of(const Comparison& comparison) {
  std::vector<Row> rows = summarize(comparison);
  std::erase_if(rows, [](const Row& row) { return !row.accuracy_difference; });
  if (rows.empty()) {
    return {};
  }
  const Grid grid(comparison, rows);
  std::vector<std::pair<const Row*, const Row*>> pairs;  // of each interaction
  std::vector<Interaction> interactions;
  for (size_t axis = 0; axis < grid.axes(); ++axis) {
    for (size_t row = 0; grid.leads(axis) && row < rows.size(); ++row) {
      if (const size_t base = grid.base_of(row, axis); base != row) {
        pairs.emplace_back(&rows[base], &rows[row]);
        interactions.push_back({.norm = train::norm_label(rows[row].norm, comparison.recipe),
                                .axis = grid.name(axis),
                                .from = grid.value(rows[base], axis),
                                .to = grid.value(rows[row], axis),
                                .place = grid.place_of(rows[row], axis)});
      }
    }
  }
  const auto tests = static_cast<int64_t>(interactions.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const PairedRuns from = paired_runs(comparison, *pairs[i].first);
    const PairedRuns to = paired_runs(comparison, *pairs[i].second);
    Decision& decision = interactions[i].decision;
    if (!from.waiting && !to.waiting) {
      decision = decide_by_mean(scatter_between(from.runs, to.runs), tests);
    }
    decision.planned = std::min(from.planned, to.planned);
  }
  return interactions;
}

Table interaction_table(const Comparison& comparison) {
  Table table{.heads = {"axis", "from", "to", "norm", "in", "change of the difference, points"}, .words = 5};
  for (const Interaction& one : interactions_of(comparison)) {
    if (one.decision.state != Decision::State::waiting) {
      table.add(one.axis, one.from, one.to, one.norm, one.place, format_difference(one.decision));
    }
  }
  return table;
}

std::string interaction_note(const Comparison& comparison) {
  std::vector<std::string> found;
  int64_t none = 0;
  const std::vector<Interaction> all = interactions_of(comparison);
  for (const Interaction& one : all) {
    if (one.decision.found()) {
      const bool gains = one.decision.difference > 0;
      const Decision by = without_sign(one.decision);
      found.push_back(fmt::format("from {} {} to {}, {} {} {:.1f} points ({:.1f} to {:.1f}) {} batch norm{}", one.axis,
                                  one.from, one.to, one.norm, gains ? "gains" : "loses", by.difference, by.low, by.high,
                                  gains ? "on" : "to", one.place.empty() ? "" : " in " + one.place));
    }
    none += one.decision.state == Decision::State::none_found ? 1 : 0;
  }
  if (found.empty()) {
    return none == 0 ? "" : text_of("no-interaction", counted(std::ssize(all), "test"));
  }
  return fmt::format("Interactions: {}. {} of {} tests found one; the section Statistics of the report has all.",
                     first_four(found), found.size(), all.size());
}

Table statistics_table(const Comparison& comparison) {
  Table table{.heads = {"network", "norm", "pairs", "difference, points", "bootstrap", "error by seeds",
                        "error by images", "networks that differ", "correlation of pairs",
                        fmt::format("within {} points", kEqualPoints), "IQM %", "P(better)"},
              .words = 2};
  const Tests tests{.accuracy = std::max<int64_t>(accuracy_tests(comparison), 1), .images = image_tests(comparison)};
  for (const Row& row : summarize(comparison)) {
    if (row.reference.empty()) {
      continue;
    }
    const PairedRuns pairs = paired_runs(comparison, row);
    if (!pairs.waiting && !pairs.runs.empty()) {
      put_row(table, comparison, row, pairs.runs, tests);
    }
  }
  return table;
}

Section statistics_section(const Page& page) {
  Section section = section_called("statistics");
  for (const NamedComparison& source : page.sources) {
    const std::string name = source.name.empty() ? "" : source.name + ": ";
    if (Table table = statistics_table(*source.comparison); !table.rows.empty()) {
      section.blocks.emplace_back(CaptionedTable{name.empty() ? "Each norm beside batch norm, in runs of the same seed."
                                                              : name + "each norm beside batch norm.",
                                                 std::move(table)});
    }
    if (Table table = interaction_table(*source.comparison); !table.rows.empty()) {
      section.blocks.emplace_back(
          CaptionedTable{name + "How differences from batch norm change along an axis.", std::move(table)});
    }
  }
  if (!section.blocks.empty()) {
    section.blocks.emplace_back(Note{text_of("statistics")});
  }
  return section;
}

}  // namespace norma::lab
