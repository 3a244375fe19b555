#include "lab/report/page.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

namespace {

/// A difference that was found.
struct Finding {
  std::string norm;
  std::string group;  ///< "resnet50"; of several comparisons "resnet50 (laptop)"
  double amount = 0;  ///< share of throughput lost, or points of accuracy gained
};

/// The findings on one question: the tax, or accuracy.
struct Findings {
  std::vector<Finding> found;
  std::vector<std::string> groups;  ///< all, known or not
  bool known = false;               ///< for at least one norm
  bool waiting = false;             ///< runs or rounds are missing
  std::optional<Outlook> hardest;   ///< what would decide all that is undecided

  void add(const std::string& norm, const std::string& group, const Decision& decision,
           const std::optional<Outlook>& outlook = {}) {
    if (outlook && (!hardest || is_harder(*outlook, *hardest))) {
      hardest = outlook;
    }
    known |= decision.known();
    waiting |= decision.state == Decision::State::waiting;
    if (decision.found()) {
      found.push_back({norm, group, decision.difference});
    }
  }
  void add_group(const std::string& group) {
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
      groups.push_back(group);
    }
  }
};

/// The places where a norm was least and most accurate, with one seed in each.
struct Span {
  std::string norm;
  double low = 0;
  double high = 0;
  std::string at_low;  ///< "at 2", "in resnet50"
  std::string at_high;

  [[nodiscard]] double width() const { return high - low; }
};

struct Answers {
  Findings tax;
  Findings accuracy;
  std::vector<Span> spans;     ///< of the norms of one comparison, the one with the widest
  std::string varied;          ///< the cause: "batch size"; "" if it has no single name
  bool several_norms = false;  ///< finished, in one group
  int64_t runs = 0;
  int64_t finished = 0;
  int64_t to_come = 0;  ///< runs that have not ended
};

/// The norms in the order of their first rows.
std::vector<std::string> norms_in(const std::vector<Row>& rows) {
  std::vector<std::string> norms;
  for (const Row& row : rows) {
    if (std::find(norms.begin(), norms.end(), row.norm) == norms.end()) {
      norms.push_back(row.norm);
    }
  }
  return norms;
}

/// The one cause of the differences between a network's rows: a further axis that all others follow (as learning rates
/// follow batch sizes), or the network itself.
struct Mover {
  std::string name;                              ///< "batch size", "the network"; "": several do
  std::function<std::string(const Row&)> where;  ///< "at 2", "in resnet50 with batch size 4"
};

Mover mover_of(const Comparison& comparison, const std::vector<Row>& rows) {
  const bool one_model =
      std::all_of(rows.begin(), rows.end(), [&](const Row& row) { return row.model == rows.front().model; });
  const std::vector<Axis> axes = varying_axes(comparison);
  if (axes.empty()) {
    return {.name = "the network", .where = [](const Row& row) { return "in " + row.model; }};
  }
  for (const Axis& axis : axes) {
    const bool others_follow = std::all_of(rows.begin(), rows.end(), [&](const Row& a) {
      return std::all_of(rows.begin(), rows.end(), [&](const Row& b) {
        return axis.value(a) != axis.value(b) || std::all_of(axes.begin(), axes.end(), [&](const Axis& other) {
                 return other.value(a) == other.value(b);
               });
      });
    });
    if (one_model && others_follow) {
      return {.name = std::string(axis.name), .where = [axis](const Row& row) { return "at " + axis.value(row); }};
    }
  }
  return {.name = "", .where = [&comparison](const Row& row) { return "in " + group_label(comparison, row); }};
}

/// The spans of norms that are finished in all places where any norm is, if there are several places.
std::vector<Span> spans_of(const Comparison& comparison, const std::vector<Row>& rows, const Mover& mover) {
  std::vector<Span> spans;
  const std::vector<GroupRows> groups = by_group(rows);
  const auto all_places = static_cast<size_t>(
      std::count_if(groups.begin(), groups.end(), [](const GroupRows& group) { return finished_rows(group) > 0; }));
  for (const std::string& norm : norms_in(rows)) {
    std::vector<const Row*> places;
    for (const Row& row : rows) {
      if (row.norm == norm && row.finished > 0) {
        places.push_back(&row);
      }
    }
    if (places.size() > 1 && places.size() == all_places) {
      const auto [low, high] = std::minmax_element(
          places.begin(), places.end(), [](const Row* a, const Row* b) { return a->accuracy.mean < b->accuracy.mean; });
      const std::string label = train::norm_label(norm, comparison.recipe);
      spans.push_back({.norm = label == "batch" ? "batch norm" : label,
                       .low = (*low)->accuracy.mean,
                       .high = (*high)->accuracy.mean,
                       .at_low = mover.where(**low),
                       .at_high = mover.where(**high)});
    }
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.width() > b.width(); });
  return spans;
}

void add(Answers& answers, const NamedComparison& source) {
  const Comparison& comparison = *source.comparison;
  answers.runs += static_cast<int64_t>(comparison.cells.size());
  for (const Cell& cell : comparison.cells) {
    answers.finished += cell.state == CellState::finished ? 1 : 0;
    answers.to_come += cell.state != CellState::finished && cell.state != CellState::failed ? 1 : 0;
  }
  const std::vector<Row> all = summarize(comparison);
  const Mover mover = mover_of(comparison, all);
  const std::vector<Span> spans = spans_of(comparison, all, mover);
  if (spans.size() > 1 && (answers.spans.empty() || spans.front().width() > answers.spans.front().width())) {
    answers.spans = spans;
    answers.varied = mover.name;
  }
  const auto label = [&](const Settings& group) {
    const std::string name = group_label(comparison, group);
    return source.name.empty() ? name : fmt::format("{} ({})", name, source.name);
  };
  std::vector<Settings> timed;
  for (const GroupRows& rows : by_group(all)) {
    answers.several_norms |= finished_rows(rows) > 1;
    const Settings group = timing_group(rows.front());
    const bool first = std::find(timed.begin(), timed.end(), group) == timed.end();  // learning rates share their tax
    timed.push_back(group);
    answers.tax.add_group(label(group));
    answers.accuracy.add_group(label(rows.front()));
    for (const Row& row : rows) {
      const std::string norm = train::norm_label(row.norm, comparison.recipe);
      if (first && row.tax) {
        answers.tax.add(norm, label(group), *row.tax);
      }
      if (row.accuracy_difference) {
        answers.accuracy.add(norm, label(row), *row.accuracy_difference, row.outlook);
      }
    }
  }
}

/// The words for the findings on a question.
struct Wording {
  /// "group:32 costs 25.0 % of batch norm's throughput"
  std::string (*whole)(const Finding& one);
  /// The part after "and", for the same norm elsewhere: "25.0 %" if it is on the same side of 0, else "is 3.0 %
  /// faster".
  std::string (*more)(const Finding& one, bool same_side);
};

/// The largest difference found, with all findings of its norm; then the other norms.
std::string found_clause(const Findings& findings, const Wording& wording) {
  const Finding& most =
      *std::max_element(findings.found.begin(), findings.found.end(),
                        [](const Finding& a, const Finding& b) { return std::abs(a.amount) < std::abs(b.amount); });
  const auto place = [&](const Finding& one) { return findings.groups.size() > 1 ? " in " + one.group : ""; };
  std::vector<std::string> parts = {wording.whole(most) + place(most)};
  std::vector<std::string> others;
  for (const Finding& one : findings.found) {
    if (one.norm == most.norm && &one != &most) {
      parts.push_back(wording.more(one, (one.amount > 0) == (most.amount > 0)) + place(one));
    } else if (one.norm != most.norm && std::find(others.begin(), others.end(), one.norm) == others.end()) {
      others.push_back(one.norm);
    }
  }
  constexpr size_t kMostPlaces = 4;
  if (parts.size() > kMostPlaces) {
    parts = {parts.front(), fmt::format("differs by less in {} others", parts.size() - 1)};
  }
  constexpr size_t kMostNorms = 3;
  return listed(parts) + (others.empty() ? ""
                          : others.size() <= kMostNorms
                              ? fmt::format(" ({} differ{} by less)", listed(others), others.size() == 1 ? "s" : "")
                              : fmt::format(" ({} other norms differ by less)", others.size()));
}

std::string tax_clause(const Findings& tax) {
  if (!tax.known) {
    return tax.waiting ? "nothing can be said of the tax yet" : "";
  }
  if (tax.found.empty()) {
    return std::string("no norm was found to cost more than batch norm, or less") + (tax.waiting ? ", so far" : "");
  }
  return found_clause(
      tax, {.whole =
                [](const Finding& one) {
                  const std::string share = format_percent(std::abs(one.amount));
                  return one.amount > 0 ? fmt::format("{} costs {} % of batch norm's throughput", one.norm, share)
                                        : fmt::format("{} is {} % faster than batch norm", one.norm, share);
                },
            .more =
                [](const Finding& one, bool same_side) {
                  const std::string share = format_percent(std::abs(one.amount)) + " %";
                  return same_side ? share : one.amount > 0 ? "costs " + share : fmt::format("is {} faster", share);
                }});
}

/// The least span to report. With one seed nobody knows how far chance moves an accuracy, but not this far.
constexpr double kPlainWidth = 0.1;

/// "the accuracy of batch depends most on batch size (44.5 % at 2, 80.8 % at 64), that of group least (72.8 to 78.7 %)"
std::string span_clause(const Answers& answers) {
  const Span& widest = answers.spans.front();
  const Span& narrowest = answers.spans.back();
  return fmt::format(
      "the accuracy of {} {} ({:.1f} % {}, {:.1f} % {}), that of {} least ({:.1f} to {:.1f} %)", widest.norm,
      answers.varied.empty() ? "moves most" : fmt::format("depends most on {}", answers.varied), 100 * widest.low,
      widest.at_low, 100 * widest.high, widest.at_high, narrowest.norm, 100 * narrowest.low, 100 * narrowest.high);
}

std::string accuracy_clause(const Answers& answers) {
  const Findings& accuracy = answers.accuracy;
  if (!accuracy.known && accuracy.waiting) {
    return "nothing can be said of accuracy yet";
  }
  if (!answers.several_norms) {
    return "";
  }
  if (!accuracy.known) {
    const bool wide = !answers.spans.empty() && answers.spans.front().width() >= kPlainWidth;
    return wide && answers.to_come == 0 ? span_clause(answers) : "these runs cannot show a difference of accuracy";
  }
  if (accuracy.found.empty()) {
    return accuracy.hardest ? fmt::format("accuracy is undecided ({})", format_outlook(*accuracy.hardest))
                            : std::string("no difference of accuracy was found") + (accuracy.waiting ? " so far" : "");
  }
  return found_clause(accuracy, {.whole =
                                     [](const Finding& one) {
                                       return fmt::format("{} is {:.1f} points {} accurate than batch norm", one.norm,
                                                          std::abs(one.amount), one.amount > 0 ? "more" : "less");
                                     },
                                 .more =
                                     [](const Finding& one, bool same_side) {
                                       return fmt::format("{:.1f} points{}", std::abs(one.amount),
                                                          same_side        ? ""
                                                          : one.amount > 0 ? " more"
                                                                           : " less");
                                     }});
}

/// The missing runs of comparisons that have not ended.
std::string progress_of(const Answers& answers) {
  return answers.to_come == 0 ? "rounds of timing are missing"
                              : fmt::format("{} of {} run{} finished", answers.finished, answers.runs,
                                            answers.runs == 1 ? " is" : "s are");
}

/// Capitalizes the text, unless it begins with the name of a norm.
std::string as_sentence(std::string text) {
  for (const std::string_view word : {"no ", "nothing ", "these ", "the ", "rounds ", "accuracy "}) {
    if (text.starts_with(word)) {
      text[0] = static_cast<char>(text[0] - 'a' + 'A');
      break;
    }
  }
  return text + ".";
}

}  // namespace

std::string opening_of(const std::vector<NamedComparison>& comparisons) {
  Answers answers;
  for (const NamedComparison& source : comparisons) {
    add(answers, source);
  }
  if (answers.finished == 0 && !answers.tax.known) {
    return fmt::format("Nothing is known yet: none of {} run{} is finished.", answers.runs,
                       answers.runs == 1 ? "" : "s");
  }
  const bool waiting = answers.tax.waiting || answers.accuracy.waiting;
  if (waiting && !answers.tax.known && !answers.accuracy.known) {
    return fmt::format("Nothing can be said yet: {}.", progress_of(answers));
  }
  const std::string tax = tax_clause(answers.tax);
  const std::string accuracy = accuracy_clause(answers);
  if (tax.empty() && accuracy.empty()) {
    return fmt::format(
        "{} of {} run{} finished, and no two norms in the same network: there is nothing to compare yet.",
        answers.finished, answers.runs, answers.runs == 1 ? " is" : "s are");
  }
  const bool alike = answers.tax.found.empty() == answers.accuracy.found.empty() && answers.accuracy.known;
  std::string text = as_sentence(tax + (tax.empty() || accuracy.empty() ? "" : alike ? ", and " : ", but ") + accuracy);
  if (waiting) {
    text += " " + as_sentence(progress_of(answers));
  }
  return text;
}

}  // namespace norma::lab
