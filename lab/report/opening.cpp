#include "lab/report/opening.h"

#include "lab/report/row_groups.h"
#include "lab/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace norma::lab {

namespace {

/// Something found: "group:32 in resnet50", and how much.
struct Finding {
  std::string norm;
  std::string group;
  double amount = 0;  ///< a share of throughput lost, or of the test images gained
};

/// Where a norm was least and most accurate, with one seed in each place.
struct Span {
  std::string norm;
  double low = 0;
  double high = 0;
  std::string at_low;  ///< "at 2", "in resnet50"
  std::string at_high;

  [[nodiscard]] double width() const { return high - low; }
};

struct Findings {
  std::vector<Finding> taxes;       ///< that are not 0
  std::vector<Finding> accuracies;  ///< that differ from batch norm's
  bool tax_known = false;           ///< of at least one norm
  bool accuracy_known = false;      ///< how far seeds lie apart
  std::vector<Span> spans;          ///< of the norms of one comparison, that in which one is widest
  std::string varied;               ///< what moved them: "batch size"; "" where it has no one name
  bool several_norms = false;       ///< finished, in one group
  int64_t runs = 0;
  int64_t finished = 0;
  int64_t groups = 0;
};

/// In the order of their first rows.
std::vector<std::string> norms_in(const std::vector<Row>& rows) {
  std::vector<std::string> norms;
  for (const Row& row : rows) {
    if (std::find(norms.begin(), norms.end(), row.norm) == norms.end()) {
      norms.push_back(row.norm);
    }
  }
  return norms;
}

/// The one thing that moves a network from row to row: a further axis that all others follow (as learning rates follow
/// batch sizes), or the network itself.
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

/// Of each norm that is finished in all places where any is, if there are several.
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

void add(Findings& findings, const Comparison& comparison) {
  findings.runs += static_cast<int64_t>(comparison.cells.size());
  std::vector<Settings> timed;
  const std::vector<Row> all = summarize(comparison);
  const int64_t taxes = tax_tests(all);
  const int64_t accuracies = accuracy_tests(all);
  const Mover mover = mover_of(comparison, all);
  const std::vector<Span> spans = spans_of(comparison, all, mover);
  if (spans.size() > 1 && (findings.spans.empty() || spans.front().width() > findings.spans.front().width())) {
    findings.spans = spans;
    findings.varied = mover.name;
  }
  for (const GroupRows& rows : by_group(all)) {
    ++findings.groups;
    findings.several_norms |= finished_rows(rows) > 1;
    const std::string group = group_label(comparison, rows.front());
    const std::string reference = reference_of(norms_of(comparison, timing_group(rows.front())));
    const auto batch = std::find_if(rows.begin(), rows.end(),
                                    [&](const Row& row) { return row.finished > 0 && row.norm == reference; });
    const std::optional<SeedSpread> spread = seed_spread(rows, accuracies);
    const bool differences = spread && batch != rows.end() && finished_rows(rows) > 1;
    findings.accuracy_known |= differences;
    const bool first = std::find(timed.begin(), timed.end(), timing_group(rows.front())) == timed.end();
    timed.push_back(timing_group(rows.front()));
    for (const Row& row : rows) {
      findings.finished += row.finished;
      const std::string norm = train::norm_label(row.norm, comparison.recipe);
      if (first && tax_can_be_found(row, taxes)) {  // learning rates share their tax
        findings.tax_known = true;
        if (tax_is_found(row, taxes)) {
          findings.taxes.push_back({norm, group, row.tax->median});
        }
      }
      if (differences && accuracy_differs(row, *batch, spread)) {
        findings.accuracies.push_back({norm, group, row.accuracy.mean - batch->accuracy.mean});
      }
    }
  }
}

const Finding& largest(const std::vector<Finding>& findings) {
  return *std::max_element(findings.begin(), findings.end(),
                           [](const Finding& a, const Finding& b) { return std::abs(a.amount) < std::abs(b.amount); });
}

/// " in resnet50", where it does not go without saying.
std::string place(const Findings& findings, const Finding& one) {
  return findings.groups > 1 ? " in " + one.group : "";
}

std::string tax_clause(const Findings& findings) {
  if (!findings.tax_known) {
    return "";
  }
  if (findings.taxes.empty()) {
    return "no norm was found to cost more than batch norm, or less";
  }
  const Finding& most = largest(findings.taxes);
  const std::string share = format_percent(std::abs(most.amount));
  std::string clause = most.amount > 0 ? fmt::format("{} costs {} % of batch norm's throughput", most.norm, share)
                                       : fmt::format("{} is {} % faster than batch norm", most.norm, share);
  clause += place(findings, most);
  const size_t others = findings.taxes.size() - 1;
  if (others > 0) {
    clause += fmt::format(" ({} other{} differ{} by less)", others, others == 1 ? "" : "s", others == 1 ? "s" : "");
  }
  return clause;
}

/// With one seed nobody knows how far chance moves an accuracy, but so far it does not move it.
constexpr double kPlainWidth = 0.1;

/// "the accuracy of batch depends most on batch size (44.5 % at 2, 80.8 % at 64), that of group least (72.8 to 78.7 %)"
std::string span_clause(const Findings& findings) {
  const Span& widest = findings.spans.front();
  const Span& narrowest = findings.spans.back();
  return fmt::format(
      "the accuracy of {} {} ({:.1f} % {}, {:.1f} % {}), that of {} least ({:.1f} to {:.1f} %)", widest.norm,
      findings.varied.empty() ? "moves most" : fmt::format("depends most on {}", findings.varied), 100 * widest.low,
      widest.at_low, 100 * widest.high, widest.at_high, narrowest.norm, 100 * narrowest.low, 100 * narrowest.high);
}

std::string accuracy_clause(const Findings& findings) {
  if (!findings.several_norms) {
    return "";
  }
  if (!findings.accuracy_known && !findings.spans.empty() && findings.spans.front().width() >= kPlainWidth) {
    return span_clause(findings);
  }
  if (!findings.accuracy_known) {
    return "these runs cannot show a difference of accuracy";
  }
  if (findings.accuracies.empty()) {
    return "no difference of accuracy was found";
  }
  const Finding& most = largest(findings.accuracies);
  std::string clause =
      fmt::format("{} is {:.1f} points {} accurate than batch norm{}", most.norm, 100 * std::abs(most.amount),
                  most.amount > 0 ? "more" : "less", place(findings, most));
  const size_t others = findings.accuracies.size() - 1;
  if (others > 0) {
    clause += fmt::format(" ({} other{} differ{} by less)", others, others == 1 ? "" : "s", others == 1 ? "s" : "");
  }
  return clause;
}

/// With a capital letter where it begins with a word of ours, and not with the name of a norm.
std::string as_sentence(std::string text) {
  if (text.starts_with("no ") || text.starts_with("these ") || text.starts_with("the ")) {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text + ".";
}

}  // namespace

std::string opening_of(const std::vector<const Comparison*>& comparisons) {
  Findings findings;
  for (const Comparison* comparison : comparisons) {
    add(findings, *comparison);
  }
  const std::string tax = tax_clause(findings);
  const std::string accuracy = accuracy_clause(findings);
  if (!tax.empty() && !accuracy.empty()) {
    return as_sentence(
        tax + (findings.taxes.empty() == findings.accuracies.empty() && findings.accuracy_known ? ", and " : ", but ") +
        accuracy);
  }
  if (!tax.empty() || !accuracy.empty()) {
    return as_sentence(tax + accuracy);
  }
  if (findings.finished == 0) {
    return fmt::format("Nothing is known yet: none of {} run{} is finished.", findings.runs,
                       findings.runs == 1 ? "" : "s");
  }
  return fmt::format("{} of {} run{} finished, and no two norms in the same network: there is nothing to compare yet.",
                     findings.finished, findings.runs, findings.runs == 1 ? " is" : "s are");
}

}  // namespace norma::lab
