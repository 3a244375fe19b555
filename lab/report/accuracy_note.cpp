#include "lab/report/decide_rows.h"
#include "lab/report/report.h"
#include "lab/report/table.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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
    const std::string norm = train::norm_label(row.norm, comparison.recipe);
    if (row.outlook) {
      const std::string outlook = format_outlook(*row.outlook);
      auto same = std::ranges::find(result.open, outlook, [](const auto& one) { return one.first; });
      if (same == result.open.end()) {
        same = result.open.insert(same, {outlook, {}});
      }
      same->second.push_back(norm);
    } else if (row.accuracy_difference && row.accuracy_difference->equal) {
      result.equal.push_back(norm);
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

/// "Three seeds say little: 2 of 4 intervals go as far as accuracies can."; "" if none does.
std::string few_seeds(const std::vector<GroupRows>& groups) {
  int64_t pairs = 0;
  int64_t cut = 0;
  int64_t all = 0;
  for (const GroupRows& rows : groups) {
    for (const Row& row : rows) {
      const std::optional<Decision>& decision = row.accuracy_difference;
      all += decision && decision->known() ? 1 : 0;
      if (row.outlook && decision->cut) {
        ++cut;
        pairs = std::max(pairs, decision->pairs);
      }
    }
  }
  if (cut == 0) {
    return "";
  }
  const std::string seeds = pairs == 2 ? "Two" : pairs == 3 ? "Three" : pairs == 4 ? "Four" : fmt::format("{}", pairs);
  return fmt::format("{} seeds say little: {} of {} interval{} {} as far as accuracies can.", seeds, cut, all,
                     all == 1 ? "" : "s", cut == 1 ? "goes" : "go");
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

std::string format_outlook(const Outlook& outlook) {
  if (outlook.images_limit) {
    return fmt::format("more seeds would not decide: {} test images are too few", format_count(outlook.images));
  }
  return outlook.more_seeds ? fmt::format("about {} more seed{} would decide", *outlook.more_seeds,
                                          *outlook.more_seeds == 1 ? "" : "s")
                            : fmt::format("more than {} seeds would be needed", format_count(kMostSeeds));
}

std::string alike_note(const Comparison& comparison) {
  std::vector<std::string> parts;
  for (const Row& row : summarize(comparison)) {
    constexpr int64_t kFewest = 3;  // two may meet by chance
    constexpr double kRounding = 1e-12;
    if (row.finished >= kFewest && row.accuracy.deviation && *row.accuracy.deviation < kRounding &&
        row.accuracy.mean < 1) {
      parts.push_back(fmt::format("{} {}: {:.2f} % at each of {} seeds", group_label(comparison, row),
                                  train::norm_label(row.norm, comparison.recipe), 100 * row.accuracy.mean,
                                  row.finished));
    }
  }
  constexpr size_t kMostNamed = 4;
  const size_t more = parts.size() - std::min(parts.size(), kMostNamed);
  parts.resize(parts.size() - more);
  return parts.empty()
             ? ""
             : fmt::format(
                   "Seeds that are all right on equally many images: {}{}. Networks that answer only a few of "
                   "the classes, whatever the image, do that: \"± 0.00\" is then no precision, and such a "
                   "network has not learned the task.",
                   fmt::join(parts, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
}

std::string accuracy_note(const Comparison& comparison) {
  const std::vector<GroupRows> groups = by_group(summarize(comparison));
  std::vector<std::string> notes = {several_seeds(comparison, groups), few_seeds(groups), one_seed(comparison, groups)};
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
