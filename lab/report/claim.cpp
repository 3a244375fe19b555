#include "base/lists.h"
#include "base/parse_number.h"
#include "lab/report/decisions.h"
#include "lab/telemetry/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

namespace norma::lab {

namespace {

using Sign = Expectation::Sign;

/// What a comparison has measured of one expectation, in one network.
struct Measured {
  const Expectation* expectation;
  std::string where;                    ///< the network, and what else varies beside the claim's axis
  std::optional<Scatter> scatter = {};  ///< none: no pair of runs, or runs may still come
  bool waiting = false;
  int64_t runs = 0;         ///< Sign::fails: those that have ended
  int64_t failed = 0;       ///< those of them that failed to train
  std::string reason = {};  ///< of the first of these
  int64_t outside = 0;      ///< and those that say nothing: Cell::from_outside, or no norm learned in that time
};

constexpr const char* kLr = "lr";

std::string value_on(const Settings& settings, const std::string& axis) {
  return axis == kLr ? fmt::format("{}", settings.lr) : settings.option(axis);
}

Settings with_values(Settings settings, const std::map<std::string, std::string>& values) {
  for (const auto& [axis, value] : values) {
    if (axis == kLr) {
      settings.lr = parse_number<double>(value).value_or(0);
    } else {
      settings.options[axis] = value;
    }
  }
  return settings;
}

PairedRuns pairs_at(const Comparison& comparison, const Settings& settings, const Expectation& expected,
                    const std::string& value) {
  Settings norm = settings;
  if (!expected.axis.empty()) {
    norm.options[expected.axis] = value;
  }
  Settings reference = with_values(norm, expected.reference_with);
  norm.norm = expected.norm;
  reference.norm = expected.reference;
  return paired_runs(comparison, norm, reference);
}

/// A run's number, in points; none: it was not measured.
std::optional<double> number_of(Expectation::Measure measure, const Cell& run) {
  if (measure == Expectation::Measure::growth) {
    return run.telemetry ? activation_growth(*run.telemetry) : std::nullopt;
  }
  constexpr double kTenths = 10;
  return run.fit ? std::optional(kTenths * run.fit->loss) : std::nullopt;
}

/// The differences of each seed.
std::map<uint64_t, double> differences_of(Expectation::Measure measure, const std::vector<PairedRun>& runs) {
  std::map<uint64_t, double> differences;
  for (const auto& [norm, reference] : runs) {
    const auto its = number_of(measure, *norm);
    const auto other = number_of(measure, *reference);
    if (its && other) {
      differences[norm->seed] = *its - *other;
    }
  }
  return differences;
}

/// How the differences scatter at one value of the expectation's axis; with `than`, those less the ones at the other
/// value.
Scatter scatter_by(Expectation::Measure measure, const std::vector<PairedRun>& at, const std::vector<PairedRun>* than) {
  if (measure == Expectation::Measure::accuracy) {
    return than == nullptr ? scatter_of(at) : scatter_between(*than, at);
  }
  const std::map<uint64_t, double> others =
      than == nullptr ? std::map<uint64_t, double>() : differences_of(measure, *than);
  std::vector<double> differences;
  for (const auto& [seed, difference] : differences_of(measure, at)) {
    const auto other = others.find(seed);
    if (than == nullptr || other != others.end()) {
      differences.push_back(difference - (than == nullptr ? 0 : other->second));
    }
  }
  return scatter_of(differences);
}

/// Whether a run that differs from `cell` in its norm alone has learned, so that there was time to learn.
bool another_norm_learns(const Comparison& comparison, const Cell& cell) {
  return std::ranges::any_of(comparison.cells, [&](const Cell& other) {
    Settings place = other;
    place.norm = cell.norm;
    return other.norm != cell.norm && other.seed == cell.seed && same_but_seed(place, cell) && other.fit &&
           !is_a_guess(*other.fit);
  });
}

/// Counts the runs that failed to train.
void count_failures(const Comparison& comparison, const Settings& place, Measured& measured) {
  for (const Cell& cell : comparison.cells) {
    if (!same_but_seed(cell, place)) {
      continue;
    }
    measured.waiting |= cell.state != CellState::failed && cell.state != CellState::finished;
    ++measured.runs;
    std::string reason = cell.reason;
    bool says_nothing = cell.from_outside;
    if (cell.fit && is_a_guess(*cell.fit)) {
      reason = fmt::format("its loss on training images, {:.3f}, is not below that of a guess among {} classes",
                           cell.fit->loss, cell.fit->classes);
      says_nothing = !another_norm_learns(comparison, cell);
    } else if (cell.state != CellState::failed) {
      continue;
    }
    ++(says_nothing ? measured.outside : measured.failed);
    if (measured.reason.empty() && !says_nothing) {
      measured.reason = reason;
    }
  }
}

Measured measure(const Comparison& comparison, const Settings& place, const Expectation& expected) {
  Measured measured{
      .expectation = &expected,
      .where = expected.axis.empty() && expected.with.empty() ? group_label(comparison, place) : place.model};
  if (expected.sign == Sign::fails) {
    count_failures(comparison, place, measured);
    return measured;
  }
  const PairedRuns at = pairs_at(comparison, place, expected, expected.at);
  measured.waiting = at.waiting;
  Scatter scatter;
  if (expected.axis.empty()) {
    scatter = scatter_by(expected.measure, at.runs, nullptr);
  } else {
    const PairedRuns than = pairs_at(comparison, place, expected, expected.than);
    measured.waiting |= than.waiting;
    scatter = scatter_by(expected.measure, at.runs, &than.runs);
  }
  if (!measured.waiting && scatter.seeds > 0) {
    measured.scatter = scatter;
  }
  return measured;
}

/// The expectation with the values of its axis, where it has left them open.
Expectation with_axis_values(const Comparison& comparison, Expectation expected) {
  std::vector<std::string> values;
  for (const Cell& cell : comparison.cells) {
    if (cell.norm == expected.norm) {
      values.push_back(cell.option(expected.axis));
    }
  }
  if (!expected.axis.empty() && expected.at.empty() && !values.empty()) {
    const auto [least, most] = std::ranges::minmax_element(values, {}, [&](const std::string& value) {
      const double number = parse_number<double>(value).value_or(0);
      return expected.axis == "train-images" && number == 0 ? std::numeric_limits<double>::infinity() : number;
    });
    expected.at = *least;
    expected.than = *most;
  }
  return expected;
}

/// The places of a comparison where the norm of an expectation stands: all but norm, seed and the expectation's axis.
std::vector<Settings> places_of(const Comparison& comparison, const Expectation& expected) {
  std::vector<Settings> places;
  for (const Cell& cell : comparison.cells) {
    const bool has_values =
        std::ranges::all_of(expected.with, [&](const auto& of) { return value_on(cell, of.first) == of.second; });
    if (cell.norm != expected.norm || !has_values ||
        (!expected.axis.empty() && cell.option(expected.axis) != expected.at)) {
      continue;
    }
    Settings place = cell;
    place.seed = 0;
    add_once(places, place);
  }
  return places;
}

Verdict::State state_of(const Measured& measured, const Decision& decision) {
  if (measured.waiting) {
    return Verdict::State::waiting;
  }
  if (measured.expectation->sign == Sign::fails) {
    return measured.failed > 0    ? Verdict::State::supported
           : measured.outside > 0 ? Verdict::State::undecided
                                  : Verdict::State::contradicted;
  }
  if (!decision.known()) {
    return Verdict::State::undecided;
  }
  if (measured.expectation->sign == Sign::none) {
    return decision.equal     ? Verdict::State::supported
           : decision.found() ? Verdict::State::contradicted
                              : Verdict::State::undecided;
  }
  if (measured.expectation->sign == Sign::not_more) {
    const bool more = decision.found() && decision.difference > kEqualPoints;
    return decision.high < kEqualPoints ? Verdict::State::supported
           : more                       ? Verdict::State::contradicted
                                        : Verdict::State::undecided;
  }
  if (measured.expectation->sign == Sign::any) {
    return decision.found() ? Verdict::State::supported : Verdict::State::undecided;
  }
  const bool wanted = (decision.difference > 0) == (measured.expectation->sign == Sign::more);
  if (decision.found()) {
    return wanted ? Verdict::State::supported : Verdict::State::contradicted;
  }
  return decision.equal ? Verdict::State::contradicted : Verdict::State::undecided;
}

/// "batch with lr 0.05 and weight-decay 0.02"
std::string run_name(const std::string& norm, const std::map<std::string, std::string>& with) {
  const auto parts = mapped(with, [](const auto& one) { return fmt::format("{} {}", one.first, one.second); });
  return parts.empty() ? norm : fmt::format("{} with {}", norm, fmt::join(parts, " and "));
}

/// "training loss in tenths, batch with lr 0.05 beside batch with lr 0.0125", or the norms alone
std::string name_of(const Expectation& expected) {
  if (expected.sign == Sign::fails) {
    return run_name(expected.norm, expected.with);
  }
  const std::string_view measure = expected.measure == Expectation::Measure::training_loss ? "training loss in tenths, "
                                   : expected.measure == Expectation::Measure::growth      ? "growth in decibels, "
                                                                                           : "";
  return fmt::format("{}{} beside {}", measure, run_name(expected.norm, expected.with),
                     run_name(expected.reference, expected.reference_with));
}

/// "derf beside rms2d, with opt adamw more than with muon: +1.20 (0.40 to 2.00), p 0.012"
std::string sentence_of(const Measured& measured, const Decision& decision, int64_t tests) {
  const Expectation& expected = *measured.expectation;
  std::string text = name_of(expected);
  if (!expected.axis.empty()) {
    text += fmt::format(", with {} {} more than with {}", expected.axis, expected.at, expected.than);
  }
  if (measured.waiting) {
    return text + ": runs are missing";
  }
  if (expected.sign == Sign::fails) {
    return fmt::format("{}: {} of {} runs failed{}{}{}", text, measured.failed, measured.runs,
                       measured.reason.empty() ? "" : ", the first as ", measured.reason,
                       measured.outside == 0
                           ? ""
                           : fmt::format("; {} not counted: another reason ended them, or no other norm learned either",
                                         measured.outside));
  }
  if (!measured.scatter) {
    return text + ": no two runs of the same seed";
  }
  text += ": " + format_difference(decision);
  const bool undecided = state_of(measured, decision) == Verdict::State::undecided;
  return undecided && decision.known() && !decision.equal
             ? text + "; " + format_outlook(outlook_of(*measured.scatter, kEqualPoints, level_of(tests)))
             : text;
}

/// "With start scratch: batch 82.1, group:32 80.5; with start keep: …", in percent.
std::string accuracies_by(const std::string& axis, const Comparison& comparison) {
  std::vector<std::pair<std::string, std::vector<std::string>>> values;  // and the norms there
  for (const Row& row : summarize(comparison)) {
    const std::string value = value_on(row, axis);
    if (row.finished == 0 || value.empty()) {  // a comparison with one value has no axis
      continue;
    }
    entry_of(values, value)
        .push_back(fmt::format("{} {}", train::norm_label(row.norm, comparison.recipe),
                               format_spread(row.accuracy, 1, /* factor= */ 100)));
  }
  const auto parts = mapped(values, [&](const auto& one) {
    return fmt::format("with {} {}: {}", axis, one.first, fmt::join(one.second, ", "));
  });
  return parts.empty() ? "" : fmt::format(" Accuracies in percent {}.", fmt::join(parts, "; "));
}

std::string_view word_of(Verdict::State state) {
  constexpr std::array<std::string_view, 4> kWords = {"not decided yet", "not decided", "contradicted", "supported"};
  return kWords.at(static_cast<size_t>(state));
}

}  // namespace

std::optional<Claim> claim_of(const Comparison& comparison) {
  if (!comparison.study_text.empty()) {
    return study_from_toml(comparison.study_text, comparison.study + ".toml", comparison.study).claim;
  }
  const auto found = std::ranges::find(studies(), comparison.study, &Study::name);
  return found == studies().end() ? std::nullopt : found->claim;
}

Verdict verdict_on(const Claim& claim, const Comparison& comparison) {
  const auto expectations =
      mapped(claim.expectations, [&](const Expectation& one) { return with_axis_values(comparison, one); });
  Verdict verdict{.state = Verdict::State::supported, .text = {}};
  std::vector<std::string> sentences;
  std::vector<Measured> all;
  for (const Expectation& expected : expectations) {
    const bool changes = expected.axis.empty() || expected.at != expected.than;  // one value shows no change
    const std::vector<Settings> places = changes ? places_of(comparison, expected) : std::vector<Settings>();
    for (const Settings& place : places) {
      all.push_back(measure(comparison, place, expected));
    }
    if (places.empty()) {
      verdict.state = Verdict::State::undecided;
      const bool alone = expected.axis.empty() && expected.with.empty();
      sentences.push_back(fmt::format("{}: the comparison lacks {}", name_of(expected),
                                      alone ? "that norm" : "that norm or its values"));
    }
  }
  const auto tests =
      std::ranges::count_if(all, [](const Measured& one) { return one.expectation->sign != Sign::fails; });
  const bool several = std::ranges::any_of(all, [&](const Measured& one) { return one.where != all.front().where; });
  bool contradicted = false;
  for (const Measured& one : all) {
    const Decision decision = one.scatter ? decide_by_mean(*one.scatter, tests) : Decision{};
    const Verdict::State state = state_of(one, one.scatter ? decision : Decision{.state = Decision::State::unknown});
    contradicted |= state == Verdict::State::contradicted;
    verdict.state = std::min(verdict.state, state);
    sentences.push_back((several ? one.where + ", " : "") + sentence_of(one, decision, tests));
  }
  if (contradicted && verdict.state != Verdict::State::waiting) {
    verdict.state = Verdict::State::contradicted;
  }
  verdict.text = fmt::format("{}. {}{}", word_of(verdict.state), fmt::join(sentences, "; "),
                             tests > 1 ? fmt::format(" (levels are corrected for {} tests)", tests) : "");
  return verdict;
}

std::string claim_text(const Comparison& comparison) {
  const std::optional<Claim> claim = claim_of(comparison);
  if (!claim) {
    return "";
  }
  return fmt::format("The claim: {} ({}). Here: {}. The verdict: {}.{}", claim->sentence, claim->source, claim->setting,
                     verdict_on(*claim, comparison).text,
                     claim->beside.empty() ? "" : accuracies_by(claim->beside, comparison));
}

}  // namespace norma::lab
