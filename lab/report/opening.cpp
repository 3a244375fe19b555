#include "lab/report/opening.h"

#include "lab/report/row_groups.h"
#include "lab/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace norma::lab {

namespace {

/// Something found: "group:32 in resnet50", and how much.
struct Finding {
  std::string norm;
  std::string group;
  double amount = 0;  ///< a share of throughput lost, or of the test images gained
};

struct Findings {
  std::vector<Finding> taxes;       ///< that are not 0
  std::vector<Finding> accuracies;  ///< that differ from batch norm's
  bool tax_known = false;           ///< of at least one norm
  bool accuracy_known = false;      ///< how far seeds lie apart
  bool several_norms = false;       ///< finished, in one group
  int64_t runs = 0;
  int64_t finished = 0;
  int64_t groups = 0;
};

void add(Findings& findings, const Comparison& comparison) {
  findings.runs += static_cast<int64_t>(comparison.cells.size());
  std::vector<Settings> timed;
  const std::vector<Row> all = summarize(comparison);
  const int64_t taxes = tax_tests(all);
  const int64_t accuracies = accuracy_tests(all);
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

std::string accuracy_clause(const Findings& findings) {
  if (!findings.several_norms) {
    return "";
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
  if (text.starts_with("no ") || text.starts_with("these ")) {
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
