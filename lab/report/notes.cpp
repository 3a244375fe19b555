#include "lab/report/opening.h"
#include "lab/report/report.h"
#include "lab/report/row_groups.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What is said of the figures, in sentences.

namespace norma::lab {

namespace {

/// "a, b and c"
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

/// Of what is gained where the tax is what is lost.
MedianInterval negated(const MedianInterval& tax) {
  return {.median = -tax.median, .low = -tax.high, .high = -tax.low, .count = tax.count, .sure = tax.sure};
}

/// What is known of the tax of the norms of one group.
std::vector<std::string> tax_sentences(const std::vector<Row>& rows, int64_t tests, const train::Recipe& recipe) {
  std::vector<std::string> more;
  std::vector<std::string> less;
  bool any = false;
  for (const Row& row : rows) {
    any |= tax_can_be_found(row, tests);
    if (tax_is_found(row, tests)) {
      const bool costs = row.tax->median > 0;
      (costs ? more : less)
          .push_back(train::norm_label(row.norm, recipe) + (costs ? " costs " : " is faster than batch norm by ") +
                     format_tax(costs ? *row.tax : negated(*row.tax)));
    }
  }
  std::vector<std::string> sentences;
  if (!more.empty()) {
    sentences.push_back(listed(more) + " of batch norm's throughput.");
  }
  if (!less.empty()) {
    sentences.push_back(listed(less) + ".");
  }
  if (any && sentences.empty()) {
    sentences.emplace_back("no norm was found to cost more than batch norm, or less.");
  }
  return sentences;
}

/// What is known of the accuracies of the norms of one group, beside batch norm's.
std::vector<std::string> accuracy_sentences(const GroupRows& rows, int64_t tests, const Comparison& comparison) {
  const std::string reference = reference_of(norms_of(comparison, timing_group(rows.front())));
  const auto batch =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.finished > 0 && row.norm == reference; });
  const std::optional<SeedSpread> spread = seed_spread(rows, tests);
  if (!spread || batch == rows.end() || finished_rows(rows) < 2) {
    return {};
  }
  std::vector<std::string> different;
  for (const Row& row : rows) {
    const double more = row.accuracy.mean - batch->accuracy.mean;
    if (accuracy_differs(row, *batch, spread)) {
      different.push_back(fmt::format("{} is {:.1f} points {} accurate than batch norm",
                                      train::norm_label(row.norm, comparison.recipe), 100 * std::abs(more),
                                      more > 0 ? "more" : "less"));
    }
  }
  return {different.empty() ? "no difference of accuracy was found." : listed(different) + "."};
}

}  // namespace

std::vector<std::string> answers_of(const Comparison& comparison) {
  std::vector<Settings> timed;
  std::vector<std::pair<std::string, std::vector<std::string>>> said;  // and of which groups
  const std::vector<Row> all = summarize(comparison);
  const int64_t taxes = tax_tests(all);
  const int64_t accuracies = accuracy_tests(all);
  for (const GroupRows& rows : by_group(all)) {
    // Learning rates share their tax.
    const bool first = std::find(timed.begin(), timed.end(), timing_group(rows.front())) == timed.end();
    timed.push_back(timing_group(rows.front()));
    std::vector<std::string> sentences =
        first ? tax_sentences(rows, taxes, comparison.recipe) : std::vector<std::string>();
    for (std::string& sentence : accuracy_sentences(rows, accuracies, comparison)) {
      if (!sentences.empty() && sentence.starts_with("no ")) {
        sentence[0] = 'N';
      }
      sentences.push_back(std::move(sentence));
    }
    if (sentences.empty()) {
      continue;
    }
    const std::string text = fmt::format("{}", fmt::join(sentences, " "));
    auto same = std::find_if(said.begin(), said.end(), [&](const auto& other) { return other.first == text; });
    if (same == said.end()) {
      same = said.insert(said.end(), {text, {}});
    }
    same->second.push_back(group_label(comparison, rows.front()));
  }
  constexpr size_t kMostNamed = 4;  // the table names them all
  std::vector<std::string> answers;
  for (const auto& [text, groups] : said) {
    const std::string where = groups.size() <= kMostNamed ? listed(groups)
                              : groups.size() == by_group(all).size()
                                  ? fmt::format("all {} settings", groups.size())
                                  : fmt::format("{} and {} other settings", groups.front(), groups.size() - 1);
    answers.push_back(fmt::format("{}: {}", where, text));
  }
  return answers;
}

std::string answer_of(const Comparison& comparison) {
  return fmt::format("{}", fmt::join(answers_of(comparison), " "));
}

std::string accuracy_note(const Comparison& comparison) {
  std::vector<std::pair<std::string, SeedSpread>> known;  // group
  bool unknown = false;
  const std::vector<Row> all = summarize(comparison);
  const int64_t tests = accuracy_tests(all);
  for (const GroupRows& rows : by_group(all)) {
    if (finished_rows(rows) < 2) {
      continue;
    }
    if (const std::optional<SeedSpread> spread = seed_spread(rows, tests)) {
      known.emplace_back(group_label(comparison, rows.front()), *spread);
    } else {
      unknown = true;
    }
  }
  if (known.empty() && unknown) {
    return "Another seed would move each accuracy, and these runs do not show by how much: small differences mean "
           "nothing before several seeds show their spread (--seeds 0,1,2).";
  }
  constexpr size_t kMostSentences = 4;
  if (known.size() > kMostSentences) {
    const auto extremes = [&](double SeedSpread::*field) {
      const auto [low, high] = std::minmax_element(
          known.begin(), known.end(), [&](const auto& a, const auto& b) { return a.second.*field < b.second.*field; });
      return fmt::format("{:.2f} to {:.2f}", 100 * (low->second.*field), 100 * (high->second.*field));
    };
    return fmt::format(
        "Seeds of one norm differ by a standard deviation of {} points of accuracy, from one setting to another, so "
        "that norms must differ by {} points before it means something.",
        extremes(&SeedSpread::deviation), extremes(&SeedSpread::threshold));
  }
  std::string note;
  for (const auto& [group, spread] : known) {
    note += fmt::format(
        "{}{}: seeds of one norm differ by a standard deviation of {:.2f} points of accuracy, so that norms must "
        "differ by {:.2f} points before it means something.",
        note.empty() ? "" : " ", group, 100 * spread.deviation, 100 * spread.threshold);
  }
  return note;
}

std::string tax_note(const Comparison& comparison) {
  std::string note;
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  for (const Timing& timing : comparison.timings) {
    least = std::min(least, static_cast<int64_t>(timing.rounds.size()));
    most = std::max(most, static_cast<int64_t>(timing.rounds.size()));
  }
  if (most > 0) {
    note = fmt::format(
        "Tax: the share of batch norm's throughput that is lost, over {} rounds of training steps in turns; the "
        "median, and the interval that holds it in 95 of 100 comparisons, as far as rounds do not depend on each "
        "other.",
        least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most));
    if (most < 6) {
      note += " Six rounds are the fewest that can show a difference.";
    } else if (const int64_t tests = tax_tests(summarize(comparison)); tests > 1) {
      note += fmt::format(
          " What is said above holds in 95 of 100 comparisons for all {} norms together (sign test, Bonferroni's "
          "correction).",
          tests);
    }
  }
  for (const Timing& timing : comparison.timings) {
    if (!timing.problem.empty()) {
      note += fmt::format("{}Not all steps of {} were timed: {}.", note.empty() ? "" : " ",
                          group_label(comparison, timing.group), timing.problem);
    }
  }
  return note;
}

std::string tuning_note(const Comparison& comparison) {
  std::vector<std::string> rates;
  for (const Tuning& tuning : comparison.tunings) {
    const std::string name = fmt::format("{} {}", group_label(comparison, tuning.settings),
                                         train::norm_label(tuning.settings.norm, comparison.recipe));
    if (const Trial* best = best_trial(tuning)) {
      rates.push_back(
          fmt::format("{} {}{}", name, best->lr,
                      best_is_at_edge(tuning) ? " (at the edge of what was tried: a better one may lie beyond)" : ""));
    } else if (!tuning.trials.empty()) {
      rates.push_back(fmt::format("{} {}, as every one that was tried failed", name, tuning.settings.lr));
    }
  }
  return rates.empty() ? ""
                       : fmt::format("Learning rates, those with the smallest training loss in short runs: {}.",
                                     fmt::join(rates, "; "));
}

std::string paired_note(const Comparison& comparison) {
  const std::vector<Row> rows = summarize(comparison);
  const bool any = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.accuracy_difference; });
  return any ? "To reference: points of accuracy more than batch norm's with the same seed, mean and its standard "
               "error "
               "over the seeds; p is how often seeds alone would move one of these norms as far (Student's t, paired, "
               "Holm's correction)."
             : "";
}

}  // namespace norma::lab
