#include "lab/report/decide_rows.h"
#include "lab/report/interaction.h"
#include "lab/report/page.h"
#include "lab/report/paired.h"
#include "lab/report/table.h"
#include "lab/statistics/bootstrap.h"
#include "lab/statistics/mcnemar.h"
#include "lab/statistics/robust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The statistics of each norm beside its reference (docs/statistics.md).

namespace norma::lab {

namespace {

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
  std::vector<double> values;
  for (const PairedRun& run : runs) {
    values.push_back(kPoints * (run.*which)->accuracy);
  }
  return values;
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
    Settings reference = row;
    reference.norm = row.reference;
    const PairedRuns pairs = paired_runs(comparison, row, reference);
    if (!pairs.waiting && !pairs.runs.empty()) {
      put_row(table, comparison, row, pairs.runs, tests);
    }
  }
  return table;
}

Section statistics_section(const Page& page) {
  Section section{.id = "statistics", .menu = "Statistics", .title = "Statistics"};
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
    section.blocks.emplace_back(Note{
        "The interval that decides covers other seeds and other test images; the two errors are its parts. Every p and "
        "every interval is corrected for its number of tests (Bonferroni). The bootstrap draws seeds and images anew, "
        "from five seeds on. Two networks of one seed differ where McNemar's exact test says so (one pair: images "
        "right "
        "only here : only with batch norm). IQM: the mean of the middle half. P(better): how often a run of this norm "
        "beats one of batch norm."});
  }
  return section;
}

}  // namespace norma::lab
