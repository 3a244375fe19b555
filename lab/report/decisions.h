#pragma once

#include "lab/report/report.h"
#include "lab/report/table.h"
#include "lab/statistics/statistics.h"
#include "lab/studies/study.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab {

/// Finished runs of a norm and of its reference with the same seed.
struct PairedRun {
  const Cell* norm;
  const Cell* reference;
};

/// The pairs of two rows of a comparison, which must outlive them.
struct PairedRuns {
  std::vector<PairedRun> runs;
  int64_t planned = 0;   ///< pairs, finished or not
  bool waiting = false;  ///< a run of one of the rows may still come
};
PairedRuns paired_runs(const Comparison& comparison, const Settings& row, const Settings& reference);
/// The pairs of a row and the norm that it is measured against.
PairedRuns paired_runs(const Comparison& comparison, const Row& row);

/// The right and wrong answers of each pair, image by image; empty unless all pairs have them, for the same number of
/// images.
std::vector<ImageDifferences> image_differences(const std::vector<PairedRun>& runs);

/// The scatter of the differences of accuracy, with the images where they are known.
Scatter scatter_of(const std::vector<PairedRun>& runs);

/// The scatter of an interaction: of the differences at `to` less those at `from`, over the seeds that both have. Where
/// the test images are the same ones, their differences are taken image by image; else both sets of images move the
/// result, one after the other.
Scatter scatter_between(const std::vector<PairedRun>& from, const std::vector<PairedRun>& to);

/// The number of norms tested against their references for accuracy, in all groups of a comparison: those planned with
/// two seeds or more, however many are finished.
int64_t accuracy_tests(const Comparison& comparison);
/// The number of networks that are compared image by image with the reference's of the same seed (McNemar): p of each
/// such test is multiplied by it.
int64_t image_tests(const Comparison& comparison);
/// The number of norms tested for the tax, in all groups. Cells that differ only in learning rate, or in options that
/// change no step's work, share a test.
int64_t tax_tests(const Comparison& comparison);

/// Decides for each row if it differs from its reference (statistics.h), once all runs or rounds are made. Takes images
/// per second from the rounds when these are made: the reference's are the batch size over the median of its steps, and
/// every other norm's are the reference's less the tax. So a slow moment of the machine, which meets all norms of a
/// round, cannot make a rate that contradicts the tax.
void decide_rows(const Comparison& comparison, std::vector<Row>& rows);

/// The rounds of a timing_group(); nullptr before the first.
const Timing* timing_of(const Comparison& comparison, const Settings& group);
/// The seconds of a norm's steps, without those that failed; none for a norm that is not there.
std::vector<double> finite_steps(const Timing& timing, const std::string& norm);
/// The rounds of a row's group; nullptr before all of them are made.
const Timing* finished_timing(const Comparison& comparison, const Settings& row);

/// Seconds of a row's training step, of the same rounds and by the same rule; none before they are made.
std::optional<double> seconds_of_step(const Comparison& comparison, const Settings& row);

/// The same with the other sign where the difference is below 0: a loss as a gain.
Decision without_sign(Decision decision);

/// How the difference between a norm and its reference changes from one value of an axis to another, where all else is
/// the same: a difference of differences, seed by seed.
struct Interaction {
  std::string norm;   ///< for people
  std::string axis;   ///< "batch size"
  std::string from;   ///< the axis' first value
  std::string to;     ///< another one
  std::string place;  ///< all else that varies: "resnet18", "resnet18, lr 0.01"
  Decision decision = {};
};

/// An interaction for each norm beside its reference and each value of an axis but the first, decided as differences
/// are (decide_by_mean()), at the level of their number. Axes are the models and those of varying_axes(); one that
/// follows another, as learning rates may follow batch sizes, makes none of its own. With one seed there are none.
std::vector<Interaction> interactions_of(const Comparison& comparison);

/// All of them, as a table of the section "Statistics".
Table interaction_table(const Comparison& comparison);

/// The claim of a comparison's study, of Norma's or of a file of the user's; none for a study that only asks.
std::optional<Claim> claim_of(const Comparison& comparison);

struct Verdict {
  enum class State : uint8_t {
    waiting,  ///< runs may still come
    undecided,
    contradicted,
    supported,
  };
  State state = State::waiting;
  std::string text;  ///< for people: the word, and the differences that it follows from
};

/// The verdict on a claim. An expectation of more or less holds where a difference of its sign is found; it is
/// contradicted where the opposite is found, or where the difference is shown to be within kEqualPoints and none is
/// found. One of none holds where the difference is shown to be within kEqualPoints, and is contradicted where another
/// is found. One of not_more holds where the interval ends below kEqualPoints, and is contradicted where a difference
/// above that is found. One of any holds where a difference is found, and is never contradicted. The claim is supported
/// if all expectations hold in all networks, and contradicted if one is; without the runs of one of them it is not
/// supported. All intervals hold together (statistics.h).
Verdict verdict_on(const Claim& claim, const Comparison& comparison);

/// The claim of a comparison's study, its source, the setting, the verdict and the accuracies beside it; "" without a
/// claim.
std::string claim_text(const Comparison& comparison);

}  // namespace norma::lab
