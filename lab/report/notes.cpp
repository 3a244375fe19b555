#include "lab/report/page.h"

#include "base/lists.h"
#include "lab/report/decisions.h"
#include "lab/report/report.h"
#include "lab/report/section.h"
#include "lab/report/table.h"
#include "lab/statistics/statistics.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

// Sentences about the figures.

namespace norma::lab {

namespace {

/// A difference that was found.
struct Found {
  std::string norm;
  std::string group;  ///< "resnet50"; of several comparisons "resnet50 (laptop)"
  double amount = 0;  ///< share of throughput lost, or points of accuracy gained
};

/// The findings on one question: the tax, or accuracy.
struct Findings {
  std::vector<Found> found;
  std::vector<std::string> groups;  ///< all, known or not
  bool known = false;               ///< for at least one norm
  bool waiting = false;             ///< runs or rounds are missing
  std::optional<Outlook> hardest;   ///< what would decide all that is undecided

  [[nodiscard]] bool settled() const { return known && !waiting; }
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

/// The one cause of the differences between a network's rows: a further axis that all others follow (as learning rates
/// follow batch sizes), or the network itself.
struct Mover {
  std::string name;                              ///< "batch size", "the network"; "": several do
  std::function<std::string(const Row&)> where;  ///< "at 2", "in resnet50 with batch size 4"
};

Mover mover_of(const Comparison& comparison, const std::vector<Row>& rows) {
  const bool one_model = std::ranges::all_of(rows, [&](const Row& row) { return row.model == rows.front().model; });
  const std::vector<Axis> axes = varying_axes(comparison);
  if (axes.empty()) {
    return {.name = "the network", .where = [](const Row& row) { return "in " + row.model; }};
  }
  for (const Axis& axis : axes) {
    const bool others_follow = std::ranges::all_of(axes, [&](const Axis& other) { return follows(other, axis, rows); });
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
      std::ranges::count_if(groups, [](const GroupRows& group) { return finished_rows(group) > 0; }));
  std::vector<std::pair<std::string, std::vector<const Row*>>> norms;  // and where they are finished
  for (const Row& row : rows) {
    if (std::vector<const Row*>& places = entry_of(norms, row.norm); row.finished > 0) {
      places.push_back(&row);
    }
  }
  for (const auto& [norm, places] : norms) {
    if (places.size() > 1 && places.size() == all_places) {
      const auto [low, high] =
          std::ranges::minmax_element(places, {}, [](const Row* row) { return row->accuracy.mean; });
      const std::string label = train::norm_label(norm, comparison.recipe);
      spans.push_back({.norm = label == "batch" ? "batch norm" : label,
                       .low = (*low)->accuracy.mean,
                       .high = (*high)->accuracy.mean,
                       .at_low = mover.where(**low),
                       .at_high = mover.where(**high)});
    }
  }
  std::ranges::stable_sort(spans, [](const Span& a, const Span& b) { return a.width() > b.width(); });
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
    const bool first = add_once(timed, group);  // learning rates share their tax
    add_once(answers.tax.groups, label(group));
    add_once(answers.accuracy.groups, label(rows.front()));
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

/// The words for a finding, and those after "and" for the same norm elsewhere: on the same side of 0 ("25.0 %") and on
/// the other one ("is 3.0 % faster").
struct Clause {
  std::string whole;
  std::string same_side;
  std::string other_side;
};

Clause words_of_tax(const Found& one) {
  const std::string share = format_percent(std::abs(one.amount)) + " %";
  return one.amount > 0
             ? Clause{fmt::format("{} costs {} of batch norm's throughput", one.norm, share), share, "costs " + share}
             : Clause{fmt::format("{} is {} faster than batch norm", one.norm, share), share,
                      "is " + share + " faster"};
}

Clause words_of_accuracy(const Found& one) {
  const std::string points = fmt::format("{:.1f} points", std::abs(one.amount));
  const std::string other = points + (one.amount > 0 ? " more" : " less");
  return {fmt::format("{} is {} accurate than batch norm", one.norm, other), points, other};
}

/// The largest difference found, with all findings of its norm; then the other norms.
std::string found_clause(const Findings& findings, Clause (*words)(const Found&)) {
  const Found& most = *std::ranges::max_element(
      findings.found, [](const Found& a, const Found& b) { return std::abs(a.amount) < std::abs(b.amount); });
  const auto place = [&](const Found& one) { return findings.groups.size() > 1 ? " in " + one.group : ""; };
  std::vector<std::string> parts = {words(most).whole + place(most)};
  std::vector<std::string> others;
  for (const Found& one : findings.found) {
    if (one.norm == most.norm && &one != &most) {
      const bool same_side = (one.amount > 0) == (most.amount > 0);
      parts.push_back((same_side ? words(one).same_side : words(one).other_side) + place(one));
    } else if (one.norm != most.norm) {
      add_once(others, one.norm);
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
  return found_clause(tax, words_of_tax);
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
  return found_clause(accuracy, words_of_accuracy);
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
      entry_of(result.open, format_outlook(*row.outlook)).push_back(norm);
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
  return said.size() <= kMostSentences ? fmt::format("{}", fmt::join(said, " "))
                                       : text_of("many-settings", equal, kEqualPoints, open);
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

/// The findings on the norms of one group.
Findings findings_of(const GroupRows& rows, std::optional<Decision> Row::*decision) {
  Findings findings;
  for (const Row& row : rows) {
    if (row.*decision) {
      findings.add(row.norm, "", *(row.*decision), row.outlook);
    }
  }
  return findings;
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
                     format_share(without_sign(*row.tax)));
    }
  }
  std::vector<std::string> sentences;
  if (!more.empty()) {
    sentences.push_back(listed(more) + " of batch norm's throughput.");
  }
  if (!less.empty()) {
    sentences.push_back(listed(less) + ".");
  }
  if (sentences.empty() && findings_of(rows, &Row::tax).settled()) {
    sentences.emplace_back("no norm was found to cost more than batch norm, or less.");
  }
  return sentences;
}

/// Sentences about the known accuracies of the norms of one group, beside batch norm's.
std::vector<std::string> accuracy_sentences(const GroupRows& rows, const train::Recipe& recipe) {
  std::vector<std::string> different;
  for (const Row& row : rows) {
    if (row.accuracy_difference && row.accuracy_difference->found()) {
      const Decision more = without_sign(*row.accuracy_difference);
      different.push_back(fmt::format("{} is {:.1f} points ({:.1f} to {:.1f}) {} accurate than batch norm",
                                      train::norm_label(row.norm, recipe), more.difference, more.low, more.high,
                                      row.accuracy_difference->difference > 0 ? "more" : "less"));
    }
  }
  if (!different.empty()) {
    return {listed(different) + "."};
  }
  const Findings findings = findings_of(rows, &Row::accuracy_difference);
  if (!findings.settled()) {
    return {};
  }
  return {findings.hardest ? fmt::format("accuracy is undecided ({}).", format_outlook(*findings.hardest))
                           : "no difference of accuracy was found."};
}

}  // namespace

std::string opening_of(const std::vector<NamedComparison>& comparisons) {
  Answers answers;
  for (const NamedComparison& source : comparisons) {
    add(answers, source);
  }
  if (answers.finished == 0 && !answers.tax.known) {
    return fmt::format("Nothing is known yet: none of {} is finished.", counted(answers.runs, "run"));
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

std::string format_chance(double chance) {
  constexpr double kLeast = 0.001;
  return chance < kLeast ? "p < 0.001" : fmt::format("p {:.3f}", chance);
}

std::string format_outlook(const Outlook& outlook) {
  if (outlook.images_limit) {
    return fmt::format("more seeds would not decide: {} test images are too few", format_count(outlook.images));
  }
  return outlook.more_seeds ? fmt::format("about {} would decide", counted(*outlook.more_seeds, "more seed"))
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
  return parts.empty() ? "" : text_of("alike", first_four(parts));
}

std::string accuracy_note(const Comparison& comparison) {
  const std::vector<GroupRows> groups = by_group(summarize(comparison));
  std::vector<std::string> notes = {several_seeds(comparison, groups), few_seeds(groups), one_seed(comparison, groups)};
  if (!notes.back().empty()) {
    notes.push_back(text_of("one-seed"));
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
    return text_of("unknown-spread");
  }
  return fmt::format("{}", fmt::join(notes, " "));
}

std::string start_note(const Comparison& comparison) {
  const std::string& file = comparison.recipe.initial_checkpoint;
  const auto from_weights = [&](const Cell& cell) {
    const std::string start = cell.option(kStart);
    return start.empty() ? !file.empty() : start != kScratch;
  };
  if (std::ranges::none_of(comparison.cells, from_weights)) {
    return "";
  }
  if (!file.empty()) {
    const bool all = std::ranges::all_of(comparison.cells, from_weights);
    return fmt::format("{} from the weights in {} (SHA-256 {}).",
                       all ? "All runs begin" : "Runs whose start is not scratch begin", file,
                       comparison.initial_sha256.substr(0, 16));
  }
  const std::vector<std::string> networks = mapped(comparison.sources, [](const SourceNetwork& source) {
    return fmt::format("{} with {:.1f} % of their test images right", source.model, 100 * source.accuracy);
  });
  return text_of("own-source", fmt::format("{}", fmt::join(comparison.source_classes, ", ")),
                 networks.empty() ? "" : fmt::format(": {}", fmt::join(networks, ", "))) +
         (std::ranges::any_of(comparison.sources, [](const SourceNetwork& source) { return source.sha256.empty(); })
              ? " Each part has trained its own, and they are not the same."
              : "");
}

std::vector<std::string> answers_of(const Comparison& comparison) {
  std::vector<Settings> timed;
  std::vector<std::pair<std::string, std::vector<std::string>>> said;  // and their groups
  const std::vector<Row> all = summarize(comparison);
  for (const GroupRows& rows : by_group(all)) {
    // Learning rates share their tax.
    const bool first = add_once(timed, timing_group(rows.front()));
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
    entry_of(said, text).push_back(group_label(comparison, rows.front()));
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
    note = text_of("tax-note", least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most));
    const std::vector<Row> rows = summarize(comparison);
    const auto in_turns = std::ranges::count_if(rows, [](const Row& row) { return row.rate_in_turns; });
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
    for (const std::string& norm : timing.norms) {
      const std::vector<double> seconds = finite_steps(timing, norm);
      for (const double one : seconds) {
        least = std::min(least, one);
        most = std::max(most, one);
      }
      constexpr size_t kFewest = 4;  // of which quartiles can be taken
      apart |= seconds.size() >= kFewest && are_far_apart(quartiles_of(seconds), median_interval(seconds).median);
    }
    if (apart) {
      groups.push_back(
          fmt::format("{} ({:.2g} to {:.2g} s a step)", group_label(comparison, timing.group), least, most));
    }
  }
  return groups.empty() ? "" : text_of("busy", first_four(groups));
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
    return std::ranges::any_of(rows, [&](const Row& row) { return (row.*decision).has_value(); });
  };
  std::vector<std::string> measured;
  std::vector<std::string> counts;
  if (any(&Row::accuracy_difference)) {
    const bool images =
        std::ranges::any_of(rows, [](const Row& row) { return row.scatter && row.scatter->images > 0; });
    measured.push_back(
        text_of("decided-accuracy", images ? " for the seeds, the normal distribution for the test images" : ""));
    counts.push_back(counted(accuracy_tests(comparison), "test") + " of accuracy");
  }
  if (any(&Row::tax)) {
    measured.emplace_back("Tax: the median over the rounds (sign test).");
    counts.push_back(counted(tax_tests(comparison), "test") + " of the tax");
  }
  return counts.empty() ? "" : text_of("decision", fmt::format("{}", fmt::join(measured, " ")), listed(counts));
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
    if (!is_in(comparison.parts, number, &PartOrigin::number)) {
      missing.push_back(fmt::format("{}", number));
    }
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> machines;  // and their parts
  for (const PartOrigin& part : comparison.parts) {
    entry_of(machines, machine_text(part.environment)).push_back(fmt::format("{}", part.number));
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
    const auto place = [&](const auto& one) { return fmt::format("{} on {}", named(one.second), one.first); };
    note += fmt::format(
        "{}The parts ran on different machines: {}. Times and memory of whole runs compare only within one of them.",
        note.empty() ? "" : " ", fmt::join(mapped(machines, place), "; "));
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
