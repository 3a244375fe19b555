#include "lab/report/claim.h"
#include "lab/report/decide_rows.h"
#include "lab/report/report.h"
#include "lab/report/table.h"
#include "lab/statistics/robust.h"
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

// Sentences about the figures.

namespace norma::lab {

namespace {

/// The decision about the gain, from that about the loss.
Decision negated(const Decision& tax) {
  Decision gained = tax;
  gained.difference = -tax.difference;
  gained.low = -tax.high;
  gained.high = -tax.low;
  return gained;
}

/// True iff a decision is known for each row that has one, and for at least one row.
bool all_known(const GroupRows& rows, std::optional<Decision> Row::*decision) {
  bool any = false;
  for (const Row& row : rows) {
    if (const std::optional<Decision>& one = row.*decision) {
      if (one->state == Decision::State::waiting) {
        return false;
      }
      any |= one->known();
    }
  }
  return any;
}

/// Sentences about the known tax of the norms of one group.
std::vector<std::string> tax_sentences(const GroupRows& rows, const train::Recipe& recipe) {
  std::vector<std::string> more;
  std::vector<std::string> less;
  for (const Row& row : rows) {
    if (row.tax && row.tax->found()) {
      const bool costs = row.tax->difference > 0;
      (costs ? more : less)
          .push_back(train::norm_label(row.norm, recipe) + (costs ? " costs " : " is faster than batch norm by ") +
                     format_share(costs ? *row.tax : negated(*row.tax)));
    }
  }
  std::vector<std::string> sentences;
  if (!more.empty()) {
    sentences.push_back(listed(more) + " of batch norm's throughput.");
  }
  if (!less.empty()) {
    sentences.push_back(listed(less) + ".");
  }
  if (sentences.empty() && all_known(rows, &Row::tax)) {
    sentences.emplace_back("no norm was found to cost more than batch norm, or less.");
  }
  return sentences;
}

/// Sentences about the known accuracies of the norms of one group, beside batch norm's.
std::vector<std::string> accuracy_sentences(const GroupRows& rows, const train::Recipe& recipe) {
  std::vector<std::string> different;
  for (const Row& row : rows) {
    if (row.accuracy_difference && row.accuracy_difference->found()) {
      const Decision more =
          row.accuracy_difference->difference > 0 ? *row.accuracy_difference : negated(*row.accuracy_difference);
      different.push_back(fmt::format("{} is {:.1f} points ({:.1f} to {:.1f}) {} accurate than batch norm",
                                      train::norm_label(row.norm, recipe), more.difference, more.low, more.high,
                                      row.accuracy_difference->difference > 0 ? "more" : "less"));
    }
  }
  if (!different.empty()) {
    return {listed(different) + "."};
  }
  if (!all_known(rows, &Row::accuracy_difference)) {
    return {};
  }
  const Outlook* hardest = nullptr;
  for (const Row& row : rows) {
    if (row.outlook && (hardest == nullptr || is_harder(*row.outlook, *hardest))) {
      hardest = &*row.outlook;
    }
  }
  return {hardest == nullptr ? "no difference of accuracy was found."
                             : fmt::format("accuracy is undecided ({}).", format_outlook(*hardest))};
}

}  // namespace

std::vector<std::string> answers_of(const Comparison& comparison) {
  std::vector<Settings> timed;
  std::vector<std::pair<std::string, std::vector<std::string>>> said;  // and their groups
  const std::vector<Row> all = summarize(comparison);
  for (const GroupRows& rows : by_group(all)) {
    // Learning rates share their tax.
    const bool first = std::find(timed.begin(), timed.end(), timing_group(rows.front())) == timed.end();
    timed.push_back(timing_group(rows.front()));
    std::vector<std::string> sentences = first ? tax_sentences(rows, comparison.recipe) : std::vector<std::string>();
    for (std::string& sentence : accuracy_sentences(rows, comparison.recipe)) {
      if (!sentences.empty() && (sentence.starts_with("no ") || sentence.starts_with("accuracy "))) {
        sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
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
  if (std::string claim = claim_text(comparison); !claim.empty()) {
    answers.push_back(std::move(claim));
  }
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
        "Tax: the share of batch norm's throughput that is lost, the median over {} rounds of training steps in turns, "
        "as far as rounds do not depend on each other.",
        least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most));
    const std::vector<Row> rows = summarize(comparison);
    const auto in_turns = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.rate_in_turns; });
    if (in_turns > 0) {
      note += " Images per second are of the same steps";
      note += in_turns == static_cast<std::ptrdiff_t>(rows.size()) ? "." : ", where they are made; else of whole runs.";
    }
    if (const int64_t fewest = fewest_rounds(std::max<int64_t>(tax_tests(comparison), 1));
        std::max(most, comparison.timing_rounds) < fewest) {
      note += fmt::format(" {} rounds are the fewest that can show a difference.", fewest);
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

std::string busy_note(const Comparison& comparison) {
  std::vector<std::string> groups;
  for (const Timing& timing : comparison.timings) {
    bool apart = false;
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (size_t norm = 0; norm < timing.norms.size(); ++norm) {
      std::vector<double> seconds;
      for (const std::vector<double>& round : timing.rounds) {
        if (std::isfinite(round[norm])) {
          seconds.push_back(round[norm]);
          least = std::min(least, round[norm]);
          most = std::max(most, round[norm]);
        }
      }
      constexpr size_t kFewest = 4;  // of which quartiles can be taken
      apart |= seconds.size() >= kFewest && are_far_apart(quartiles_of(seconds), median_interval(seconds).median);
    }
    if (apart) {
      groups.push_back(
          fmt::format("{} ({:.2g} to {:.2g} s a step)", group_label(comparison, timing.group), least, most));
    }
  }
  constexpr size_t kMostNamed = 4;
  const size_t more = groups.size() - std::min(groups.size(), kMostNamed);
  groups.resize(groups.size() - more);
  return groups.empty() ? ""
                        : fmt::format(
                              "Warning: the machine had other work while steps were timed: {}{}. Quartiles lie more "
                              "than half of the median apart. Norms of one round met the same moment, so the tax is "
                              "less disturbed than images per second; measure again.",
                              fmt::join(groups, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
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

std::string decision_note(const Comparison& comparison) {
  const std::vector<Row> rows = summarize(comparison);
  const auto any = [&](std::optional<Decision> Row::*decision) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return (row.*decision).has_value(); });
  };
  const auto of_tests = [](int64_t tests) { return fmt::format("{} test{}", tests, tests == 1 ? "" : "s"); };
  std::vector<std::string> measured;
  std::vector<std::string> counts;
  if (any(&Row::accuracy_difference)) {
    const bool images =
        std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.scatter && row.scatter->images > 0; });
    measured.push_back(fmt::format(
        "Accuracy: the mean difference of runs with the same seed, in points (Student's t{}; p is below 0.05 "
        "in the same cases).",
        images ? " for the seeds, the normal distribution for the test images" : ""));
    counts.push_back(of_tests(accuracy_tests(comparison)) + " of accuracy");
  }
  if (any(&Row::tax)) {
    measured.emplace_back("Tax: the median over the rounds (sign test).");
    counts.push_back(of_tests(tax_tests(comparison)) + " of the tax");
  }
  return counts.empty() ? ""
                        : fmt::format(
                              "A norm differs from batch norm where the interval of the difference, in brackets, "
                              "leaves out 0. {} Of 100 comparisons without any difference, at most 5 find one "
                              "(Bonferroni's correction for {}). Nothing is said before all runs or "
                              "rounds are made.",
                              fmt::join(measured, " "), listed(counts));
}

std::string machine_text(const train::Environment& environment) {
  const bool cpu = environment.device.empty() || environment.device == "cpu";
  return cpu                         ? fmt::format("{}, {}", environment.cpu, train::threads_text(environment))
         : environment.processes > 1 ? fmt::format("{}, {} processes", environment.device, environment.processes)
                                     : environment.device;
}

std::string parts_note(const Comparison& comparison) {
  std::vector<std::string> missing;
  for (int64_t number = 1; number <= comparison.part_count; ++number) {
    if (std::ranges::find(comparison.parts, number, &PartOrigin::number) == comparison.parts.end()) {
      missing.push_back(fmt::format("{}", number));
    }
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> machines;  // and their parts
  for (const PartOrigin& part : comparison.parts) {
    const std::string machine = machine_text(part.environment);
    auto known = std::ranges::find(machines, machine, [](const auto& other) { return other.first; });
    if (known == machines.end()) {
      known = machines.insert(machines.end(), {machine, {}});
    }
    known->second.push_back(fmt::format("{}", part.number));
  }
  const auto named = [](const std::vector<std::string>& numbers) {
    return fmt::format("part{} {}", numbers.size() == 1 ? "" : "s", listed(numbers));
  };
  std::string note;
  if (!missing.empty()) {
    const bool alone = comparison.parts.size() == 1;
    note = alone ? fmt::format("This is part {} of {}; the other runs are in ", comparison.parts.front().number,
                               comparison.part_count)
                 : "Runs are missing: those of ";
    note += named(missing) + (alone ? "." : fmt::format(" of {}.", comparison.part_count));
  }
  if (machines.size() > 1) {
    std::vector<std::string> places;
    for (const auto& [machine, numbers] : machines) {
      places.push_back(fmt::format("{} on {}", named(numbers), machine));
    }
    note += fmt::format(
        "{}The parts ran on different machines: {}. Times and memory of whole runs compare only within one of them.",
        note.empty() ? "" : " ", fmt::join(places, "; "));
  }
  return note;
}

std::vector<std::string> notes_of(const Comparison& comparison) {
  std::vector<std::string> notes = {busy_note(comparison),        parts_note(comparison),    start_note(comparison),
                                    tax_note(comparison),         accuracy_note(comparison), alike_note(comparison),
                                    interaction_note(comparison), decision_note(comparison), tuning_note(comparison)};
  std::erase(notes, "");
  return notes;
}

}  // namespace norma::lab
