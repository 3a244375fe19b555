#include "lab/report/decide_rows.h"
#include "lab/report/interaction.h"
#include "lab/report/page.h"
#include "lab/report/paired.h"
#include "lab/report/table.h"
#include "lab/statistics/bootstrap.h"
#include "lab/statistics/mcnemar.h"
#include "lab/statistics/robust.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The statistics of each norm beside its reference (docs/statistics.md).

namespace norma::lab {

namespace {

constexpr double kPoints = 100;
constexpr std::string_view kNone = "–";

std::string interval_text(double low, double high) {
  return fmt::format("{:.2f} to {:.2f}", low, high);
}

/// The difference with its interval; with one seed, of these two networks over images.
std::string difference_text(const Row& row, const Scatter& scatter) {
  if (row.accuracy_difference && row.accuracy_difference->known()) {
    const Decision& known = *row.accuracy_difference;
    return fmt::format("{:+.2f} ({})", known.difference, interval_text(known.low, known.high));
  }
  if (scatter.seeds != 1 || scatter.images == 0) {
    return std::string(kNone);
  }
  const double half = half_width(scatter, 1, kErrors);
  return fmt::format("{:+.2f} ({})", scatter.difference,
                     interval_text(scatter.difference - half, scatter.difference + half));
}

/// The pairs whose networks differ on the test images; of one pair also on how many.
std::string images_text(const std::vector<PairedRun>& runs) {
  std::ptrdiff_t differ = 0;
  for (const auto& [norm, reference] : runs) {
    differ += mcnemar(norm->right, reference->right).chance < kErrors ? 1 : 0;
  }
  if (runs.size() > 1) {
    return fmt::format("{} of {}", differ, runs.size());
  }
  const Mcnemar one = mcnemar(runs.front().norm->right, runs.front().reference->right);
  return fmt::format("{} : {}, {}", one.only_first, one.only_second, format_chance(one.chance));
}

std::vector<double> accuracies(const std::vector<PairedRun>& runs, const Cell* PairedRun::*which) {
  std::vector<double> values;
  for (const PairedRun& run : runs) {
    values.push_back(kPoints * (run.*which)->accuracy);
  }
  return values;
}

/// Adds nothing for one pair without its images, of which nothing is known.
void put_row(Table& table, const Comparison& comparison, const Row& row, const std::vector<PairedRun>& runs) {
  const Scatter scatter = scatter_of(runs);
  const std::vector<ImageDifferences> images = image_differences(runs);
  if (runs.size() < 2 && images.empty()) {
    return;
  }
  const std::vector<double> own = accuracies(runs, &PairedRun::norm);
  const std::vector<double> other = accuracies(runs, &PairedRun::reference);
  const bool several = runs.size() > 1;
  const bool decided = row.accuracy_difference && row.accuracy_difference->known();
  Table::Row& line = table.add(group_label(comparison, row), train::norm_label(row.norm, comparison.recipe),
                               runs.size(), difference_text(row, scatter));
  if (several && !images.empty()) {
    const Interval bootstrap = bootstrap_difference(images);
    line.add(interval_text(bootstrap.low, bootstrap.high));
  } else {
    line.add(kNone);
  }
  line.add(several ? fmt::format("{:.2f}", std::sqrt(scatter.seed_variance / static_cast<double>(scatter.seeds)))
                   : std::string(kNone),
           images.empty() ? std::string(kNone) : fmt::format("{:.2f}", std::sqrt(scatter.image_variance)),
           images.empty() ? std::string(kNone) : images_text(runs));
  const std::optional<Correlation> correlation = correlation_of(own, other, kErrors);
  line.add(correlation
               ? fmt::format("{:.2f} ({})", correlation->value, interval_text(correlation->low, correlation->high))
               : std::string(kNone));
  line.add(!decided                           ? std::string(kNone)
           : row.accuracy_difference->equal   ? "equal"
           : row.accuracy_difference->found() ? "differs"
                                              : format_outlook(scatter, accuracy_tests(comparison)));
  if (static_cast<int64_t>(runs.size()) < kSeedsOfRobust) {
    line.add(kNone, kNone);
    return;
  }
  const Interval better = bootstrap_figure(own, other, probability_of_improvement);
  line.add(fmt::format("{:.2f} beside {:.2f}", interquartile_mean(own), interquartile_mean(other)),
           fmt::format("{:.2f} ({})", probability_of_improvement(own, other), interval_text(better.low, better.high)));
}

}  // namespace

Table statistics_table(const Comparison& comparison) {
  Table table{.heads = {"network", "norm", "pairs", "difference, points", "bootstrap, 95 %", "error by seeds",
                        "error by images", "networks that differ", "correlation of pairs",
                        fmt::format("within {} points", kEqualPoints), "IQM %", "P(better)"},
              .words = 2};
  for (const Row& row : summarize(comparison)) {
    if (row.reference.empty()) {
      continue;
    }
    Settings reference = row;
    reference.norm = row.reference;
    const PairedRuns pairs = paired_runs(comparison, row, reference);
    if (!pairs.waiting && !pairs.runs.empty()) {
      put_row(table, comparison, row, pairs.runs);
    }
  }
  return table;
}

std::string statistics_section(const Page& page) {
  std::string html;
  for (const NamedComparison& source : page.sources) {
    if (const Table table = statistics_table(*source.comparison); !table.rows.empty()) {
      html += to_html(table, source.name.empty() ? "Each norm beside batch norm, in runs of the same seed."
                                                 : fmt::format("{}: each norm beside batch norm.", source.name));
    }
    if (const Table table = interaction_table(*source.comparison); !table.rows.empty()) {
      html += to_html(table, fmt::format("{}{}How differences from batch norm change along an axis.", source.name,
                                         source.name.empty() ? "" : ": "));
    }
  }
  if (html.empty()) {
    return "";
  }
  return section_head("statistics", "Statistics") + html +
         "<p class=\"note\">The interval that decides covers other seeds and other test images; the two errors are its "
         "parts. The bootstrap draws seeds and images anew; with few seeds it is too narrow. Two networks of one seed "
         "differ where McNemar's exact test says so (one pair: images right only here : only with batch norm). "
         "IQM: the mean of the middle half. P(better): how often a run of this norm beats one of batch norm.</p>\n";
}

}  // namespace norma::lab
