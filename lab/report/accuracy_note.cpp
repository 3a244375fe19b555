#include "lab/report/decide_rows.h"
#include "lab/report/report.h"
#include "lab/report/table.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// What the table does not say of accuracies: which norms are equal, what would decide, and what one seed says.

namespace norma::lab {

namespace {

/// The norms of one group that several seeds are known of, without those that differ.
struct Undecided {
  std::vector<std::string> equal;
  std::vector<std::pair<std::string, std::vector<std::string>>> open;  ///< what would decide, and for which norms
};

Undecided undecided_of(const GroupRows& rows, const Comparison& comparison) {
  Undecided result;
  for (const Row& row : rows) {
    if (!row.accuracy_difference || !row.accuracy_difference->known()) {
      continue;
    }
    const std::string norm = train::norm_label(row.norm, comparison.recipe);
    if (row.accuracy_difference->equal) {
      result.equal.push_back(norm);
    } else if (!row.accuracy_difference->found()) {
      const std::string outlook = format_outlook(*row.scatter, accuracy_tests(comparison));
      auto same = std::ranges::find(result.open, outlook, [](const auto& one) { return one.first; });
      if (same == result.open.end()) {
        same = result.open.insert(same, {outlook, {}});
      }
      same->second.push_back(norm);
    }
  }
  return result;
}

std::string sentence_of(const Undecided& norms) {
  const auto verb = [](const std::vector<std::string>& some) { return some.size() == 1 ? "is" : "are"; };
  std::vector<std::string> parts;
  if (!norms.equal.empty()) {
    parts.push_back(fmt::format("{} {} equal to batch norm within {} points", listed(norms.equal), verb(norms.equal),
                                kEqualPoints));
  }
  for (const auto& [outlook, some] : norms.open) {
    parts.push_back(fmt::format("{} {} undecided ({})", listed(some), verb(some), outlook));
  }
  return parts.empty() ? "" : fmt::format("{}.", fmt::join(parts, "; "));
}

/// "the networks of frn and batch norm differ on these images (31 right only with frn, 12 only with batch norm, p
/// 0.005)"
std::string images_text(const Row& row, const train::Recipe& recipe) {
  const std::string norm = train::norm_label(row.norm, recipe);
  return fmt::format(
      "the networks of {} and batch norm {} on these images ({} right only with {}, {} only with batch "
      "norm, {})",
      norm, row.images->chance < kErrors ? "differ" : "were not found to differ", row.images->only_first, norm,
      row.images->only_second, format_chance(row.images->chance));
}

/// What is said of each group; of many groups, how many norms there are of each kind.
std::string several_seeds(const Comparison& comparison, const std::vector<GroupRows>& groups) {
  std::vector<std::string> said;
  size_t equal = 0;
  size_t open = 0;
  for (const GroupRows& rows : groups) {
    const Undecided norms = undecided_of(rows, comparison);
    equal += norms.equal.size();
    for (const auto& one : norms.open) {
      open += one.second.size();
    }
    if (const std::string sentence = sentence_of(norms); !sentence.empty()) {
      said.push_back(fmt::format("{}: {}", group_label(comparison, rows.front()), sentence));
    }
  }
  constexpr size_t kMostSentences = 4;
  return said.size() <= kMostSentences
             ? fmt::format("{}", fmt::join(said, " "))
             : fmt::format(
                   "Counted in each setting, {} norms are equal to batch norm within {} points, and {} are "
                   "undecided: the report has each in its section Statistics.",
                   equal, kEqualPoints, open);
}

std::string one_seed(const Comparison& comparison, const std::vector<GroupRows>& groups) {
  std::vector<std::string> said;
  std::ptrdiff_t pairs = 0;
  std::ptrdiff_t differ = 0;
  for (const GroupRows& rows : groups) {
    std::vector<std::string> parts;
    for (const Row& row : rows) {
      if (row.images) {
        parts.push_back(images_text(row, comparison.recipe));
        differ += row.images->chance < kErrors ? 1 : 0;
        ++pairs;
      }
    }
    if (!parts.empty()) {
      said.push_back(fmt::format("{}: {}.", group_label(comparison, rows.front()), fmt::join(parts, "; ")));
    }
  }
  constexpr std::ptrdiff_t kMostPairs = 4;
  if (pairs == 0) {
    return "";
  }
  return pairs <= kMostPairs
             ? fmt::format("{}", fmt::join(said, " "))
             : fmt::format("On these images, {} of {} networks differ from batch norm's.", differ, pairs);
}

}  // namespace

std::string format_chance(double chance) {
  constexpr double kLeast = 0.001;
  return chance < kLeast ? "p < 0.001" : fmt::format("p {:.3f}", chance);
}

std::string format_outlook(const Scatter& scatter, int64_t tests) {
  const Outlook outlook = outlook_of(scatter, kEqualPoints, level_of(std::max<int64_t>(tests, 1)));
  if (outlook.images_limit) {
    return fmt::format("more seeds would not decide: {} test images are too few", format_count(scatter.images));
  }
  return outlook.more_seeds ? fmt::format("about {} more seed{} would decide", *outlook.more_seeds,
                                          *outlook.more_seeds == 1 ? "" : "s")
                            : fmt::format("more than {} seeds would be needed", format_count(kMostSeeds));
}

std::string accuracy_note(const Comparison& comparison) {
  const std::vector<GroupRows> groups = by_group(summarize(comparison));
  std::vector<std::string> notes = {several_seeds(comparison, groups), one_seed(comparison, groups)};
  if (!notes.back().empty()) {
    notes.emplace_back("One seed cannot say that the norms differ: another would move each accuracy (--seeds 0,1,2).");
  }
  std::erase(notes, "");
  const auto is_known = [](const Row& row) { return row.accuracy_difference && row.accuracy_difference->known(); };
  const auto is_waiting = [](const Row& row) {
    return row.accuracy_difference && row.accuracy_difference->state == Decision::State::waiting;
  };
  const bool known = std::ranges::any_of(groups, [&](const GroupRows& g) { return std::ranges::any_of(g, is_known); });
  const bool unknown = std::ranges::any_of(groups, [&](const GroupRows& group) {
    // Without a reference nothing is tested, but several seeds show their spread in the table.
    const auto is_open = [](const Row& row) { return row.seeds < 2 || row.accuracy_difference; };
    return finished_rows(group) > 1 && std::ranges::none_of(group, is_waiting) && std::ranges::any_of(group, is_open);
  });
  if (notes.empty() && !known && unknown) {
    return "Another seed would move each accuracy, and these runs do not show by how much: small differences mean "
           "nothing before several seeds show their spread (--seeds 0,1,2).";
  }
  return fmt::format("{}", fmt::join(notes, " "));
}

}  // namespace norma::lab
