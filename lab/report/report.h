#pragma once

#include "lab/report/settings.h"
#include "lab/report/table.h"
#include "lab/statistics/statistics.h"
#include "lab/telemetry/dynamics_parts.h"
#include "lab/telemetry/telemetry.h"
#include "session/environment.h"
#include "session/output.h"
#include "train/evaluate.h"
#include "train/recipe.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

enum class CellState {
  pending,
  finished,
  failed,
  interrupted,
  elsewhere,  ///< of a part of the comparison that is not here (Comparison::parts)
};

std::string_view to_string(CellState state);

/// The result of a trained network, in evaluation mode, on a fixed part of the images that it was trained on.
struct Fit {
  int64_t images = 0;
  double accuracy = 0;  ///< in [0, 1]
  double loss = 0;
  int64_t classes = 0;  ///< that the network chooses from; 0 in files of versions that did not keep them
};

/// True iff nothing shows that the network looks at its images: the loss is no number, or not below the loss of a
/// guess, log(classes), by more than guessing_margin(), and the right answers are no more than a guess has, which
/// heads_interval() decides with a chance of 0.001. False where that is not known.
bool is_a_guess(const Fit& fit);

/// One training run of a comparison, with its settings.
struct Cell : Settings {
  CellState state = CellState::pending;
  std::string reason;         ///< why it failed
  bool from_outside = false;  ///< it failed for want of memory, by an error of the system or at a signal
  // What follows is known of finished cells only.
  double accuracy = 0;  ///< on the test images, in [0, 1]
  double loss = 0;      ///< on the test images
  /// The test images with a right answer; empty in files of versions that did not keep them.
  train::ImageBits right = {};
  std::optional<Fit> fit = {};  ///< none in files of versions that did not measure it
  double images_per_second = 0;
  double seconds = 0;         ///< in all
  int64_t peak_bytes = 0;     ///< of tensors, during training
  int64_t peak_resident = 0;  ///< of the process, during training
  int64_t parameters = 0;
  std::vector<double> losses;               ///< of each training step, those that were left out included
  std::optional<Telemetry> telemetry = {};  ///< of a failed cell up to its failure; none: switched off
};

/// Training steps of norms that took turns.
struct Timing {
  Settings group;  ///< timing_group() of their cells
  std::vector<std::string> norms;
  /// For each round the seconds of one step of each norm, in the order of `norms`. NaN: that step failed.
  std::vector<std::vector<double>> rounds;
  std::string problem;  ///< why rounds are missing
};

/// A short training run that tries a learning rate.
struct Trial {
  double lr = 0;
  std::optional<double> loss = {};  ///< mean training loss of its last quarter; none: it failed
  std::string reason = {};          ///< why it failed
};

/// The learning rates tried for cells that differ only in the seed.
struct Tuning {
  Settings settings;          ///< of the first of these cells; the rates lie around its lr
  std::vector<Trial> trials;  ///< in the order of their rates, from the smallest
};

/// True iff the cells of two settings differ only in the seed.
bool same_but_seed(const Settings& a, const Settings& b);

/// The trial with the smallest loss; nullptr if no trial has one.
const Trial* best_trial(const Tuning& tuning);

/// True iff the best of several rates is the first or the last of them: a better one may lie beyond.
bool best_is_at_edge(const Tuning& tuning);

/// Where and when a part of a comparison ran (`norma compare --part 2/4`).
struct PartOrigin {
  int64_t number = 1;  ///< from 1
  train::Environment environment = {};
  std::string command = {};
  std::string date = {};
};

/// A network that a comparison has trained itself, for its runs to start from (source_recipe()).
struct SourceNetwork {
  std::string model;
  double accuracy = 0;  ///< on the test images of its classes, in [0, 1]
  std::string sha256;   ///< of its weights; "": the parts of the comparison have different ones
};

/// The results of `norma compare`, and all that is needed to repeat it.
struct Comparison {
  train::Recipe recipe;  ///< of all cells; a cell's settings replace what is here (recipe_of())
  std::vector<Cell> cells = {};
  int64_t timing_rounds = 0;         ///< planned for each timing_group()
  std::vector<Timing> timings = {};  ///< of groups with at least one round
  bool tune_lr = false;              ///< rates found by `tunings` replace those of the cells
  std::vector<Tuning> tunings = {};  ///< the trials made so far
  bool telemetry = true;             ///< runs have a record
  DynamicsParts dynamics = {};       ///< the parts of HealthSample::dynamics to record
  /// The SHA-256 of the file Recipe::initial_checkpoint when the comparison began; "" without one.
  std::string initial_sha256 = {};
  /// The classes that runs start from, where there is no such file and a start (settings.h) asks for weights.
  std::vector<int64_t> source_classes = {};
  std::vector<SourceNetwork> sources = {};  ///< those trained so far
  double budget = 0;  ///< seconds that the length of the runs was chosen for; 0: the length was given
  train::Environment environment;
  std::string command;                 ///< the command line
  std::string date;                    ///< when the comparison began
  std::string study = {};              ///< the name of the study whose grid it has; "": none
  std::string study_text = {};         ///< Study::text of a user's study
  int64_t part_count = 0;              ///< the parts into which the cells were dealt; 0: it was not divided
  std::vector<PartOrigin> parts = {};  ///< those here, by number; environment, command, date are the first one's
};

/// "" for a finished cell, else "failed: …", "interrupted", "not started" or "in another part".
std::string problem_of(const Cell& cell);

/// True iff a part that is here has this cell.
inline bool is_here(const Cell& cell) {
  return cell.state != CellState::elsewhere;
}

/// The trials for cells with these settings, whatever the seed; nullptr if there are none.
const Tuning* tuning_of(const Comparison& comparison, const Settings& settings);
/// The learning rate that a cell is trained with: the best of its trials if there is one, else its own.
double lr_of(const Comparison& comparison, const Settings& settings);
/// The whole recipe of a cell, with lr_of().
train::Recipe recipe_of(const Comparison& comparison, const Settings& settings);

/// Mean and (with more than one value) standard deviation.
struct Spread {
  double mean = 0;
  std::optional<double> deviation = {};
};

/// The cells that differ only in the seed; `seed` is the first cell's.
struct Row : Settings {
  int64_t finished = 0;  ///< number of seeds
  int64_t seeds = 0;
  std::string problem;  ///< "" if all finished, else "failed: …", "interrupted", "not started" or "in another part"
  Spread accuracy;
  std::string reference;  ///< the norm that it is measured against in its comparison_group(); "": none
  /// To the reference, in points, seed by seed; none for the reference, and with one seed.
  std::optional<Decision> accuracy_difference;
  std::optional<Scatter> scatter;  ///< of accuracy_difference, once all runs are made
  std::optional<Outlook> outlook;  ///< what would decide, where accuracy_difference is undecided
  /// With one seed: the test over images beside the reference's network (only_first: this norm's), p times
  /// image_tests().
  std::optional<Mcnemar> images;
  Spread loss;
  std::optional<Spread> fit_loss;            ///< of Cell::fit; none if no cell has it
  Spread images_per_second;                  ///< of the tax's rounds, if there are any, else of the runs
  bool rate_in_turns = false;                ///< true: images_per_second is of the rounds (decisions.h)
  std::optional<Interval> rate_within = {};  ///< of images_per_second, as of the tax; none where that is not known
  std::optional<Decision> tax;               ///< share of the reference's throughput that is lost; none without rounds
  int64_t peak_bytes = 0;                    ///< the largest over the seeds
  int64_t peak_resident = 0;
  int64_t parameters = 0;
};

/// The axes beside model, norm and seed that differ between cells, of all comparisons, in the order of a table's
/// columns.
std::vector<Axis> varying_axes(const std::vector<const Comparison*>& comparisons);
std::vector<Axis> varying_axes(const Comparison& comparison);

/// True iff rows with equal values on one axis have equal values on the other, as when the learning rate follows the
/// batch size.
template <class List, class ToSettings = std::identity>
bool follows(const Axis& other, const Axis& axis, const List& rows, ToSettings to_settings = {}) {
  std::map<std::string, std::string> values;
  return std::ranges::all_of(rows, [&](const auto& row) {
    const Settings& settings = std::invoke(to_settings, row);
    return values.try_emplace(axis.value(settings), other.value(settings)).first->second == other.value(settings);
  });
}

/// The values of the cells on the further axis of that name: "4, 8, 16".
std::string values_of(const Comparison& comparison, std::string_view axis);

/// A cell's name for people: "resnet18 group:8", or with the varying axes "resnet18 group:8, batch size 4, seed 1".
std::string label_of(const Comparison& comparison, const Cell& cell);
/// The name of all norms and seeds of a model: "resnet18", "resnet18 with batch size 4".
std::string group_label(const Comparison& comparison, const Settings& settings);
/// The same with these axes.
std::string group_label(const Settings& settings, const std::vector<Axis>& axes);

/// The settings without norm and seed: norms with equal ones are compared.
Settings comparison_group(Settings settings);

/// The norms of a timing_group(), in the order of its cells.
std::vector<std::string> norms_of(const Comparison& comparison, const Settings& group);

/// The norm that the others are measured against: batch norm, preferably without options; "" if there is none.
std::string reference_of(const std::vector<std::string>& norms);

/// The rows, in the order of their first cells.
std::vector<Row> summarize(const Comparison& comparison);

/// The rows of one comparison_group().
using GroupRows = std::vector<Row>;

/// Groups in the order of their first rows.
std::vector<GroupRows> by_group(const std::vector<Row>& rows);

/// The number of rows with a finished seed.
int64_t finished_rows(const GroupRows& rows);

/// A row and its name in a table.
struct NamedRow {
  std::string name;  ///< in the column "norm"
  const Row* row;
};
/// The figures of rows, with a column for each of these axes. Remarks name a row's problem.
Table results_table(const std::vector<NamedRow>& rows, const std::vector<Axis>& axes);
/// The figures of all cells.
Table cell_table(const Comparison& comparison);

/// The printed table.
std::string to_table(const Comparison& comparison);
/// cell_table() as a file.
std::string to_csv(const Comparison& comparison);
/// The whole comparison as JSON, and back. Reading throws Error that begins with `where` for another text.
std::string to_json(const Comparison& comparison);
Comparison comparison_from_json(const std::string& text, const std::string& where = "comparison");
/// The number at the end of a file's "format", which is `kind` and a number from 1 to `latest`. Throws Error that
/// begins with `where` for any other text.
int64_t version_of(const std::string& format, std::string_view kind, int64_t latest, const std::string& where);
/// One page that needs nothing else, without outside references and scripts: the answer, table, charts, settings,
/// machine and commands.
std::string to_html(const Comparison& comparison);

/// The same content as GitHub's Markdown, without charts.
std::string to_markdown(const Comparison& comparison);

/// Writes results.csv, results.json, report.html and report.md into a folder. Throws Error that names the file. With
/// its lock, nothing is written once the folder was moved.
void write_report(const Comparison& comparison, const std::filesystem::path& folder,
                  const train::FolderLock* lock = nullptr);

// --- how figures are written ------------------------------------------------------------------------------------
/// "83.1 ± 0.2": the value times `factor`, with `digits` after the point.
std::string format_spread(const Spread& spread, int digits, double factor = 1);
/// "1.2 GB", "345 MB"
std::string format_bytes(int64_t bytes);
/// The machine in short: its CPU and threads, or its device.
std::string machine_text(const train::Environment& environment);
/// "3.1 % (1.4 to 5.0)"; if no difference was found "none found: 0.4 % (-0.7 to 1.5)"; "not known after 5 rounds", "not
/// known yet: 8 of 24 rounds"; "–" for none.
std::string format_tax(const std::optional<Decision>& tax);
/// "3.1 % (1.4 to 5.0)"
std::string format_share(const Decision& tax);
/// "+0.42 (0.10 to 0.74), p 0.031" in points; "none found, equal within 0.3: …"; "undecided: …"; if unknown as in
/// format_tax(), in seeds.
std::string format_difference(const std::optional<Decision>& difference);
/// "p 0.031", "p < 0.001"
std::string format_chance(double chance);
/// "about 6 more seeds would decide"; "more seeds would not decide: 50 test images are too few"
std::string format_outlook(const Outlook& outlook);

// --- what is said of the figures --------------------------------------------------------------------------------
/// A sentence or two for each comparison_group() with a known result: the norms that cost more or less than batch norm,
/// and those that are more or less accurate.
std::string answer_of(const Comparison& comparison);
/// The parts of the answer: the verdict on a study's claim (decisions.h), then "resnet18: …"; groups with the same
/// answer share one.
std::vector<std::string> answers_of(const Comparison& comparison);
/// What is not in answers_of(): the norms that are equal to batch norm, those that are not decided and what would
/// decide them, whether there are too few seeds, and what one seed says; "" if there is nothing to compare.
std::string accuracy_note(const Comparison& comparison);
/// The differences between norms and batch norm that change along an axis (decisions.h); "" if there is none to test.
std::string interaction_note(const Comparison& comparison);
/// The way the tax was measured, and its missing parts; "" without any.
std::string tax_note(const Comparison& comparison);
/// The learning rates found, and those at the edge of the tried range; "" if none was tried.
std::string tuning_note(const Comparison& comparison);
/// Norms whose seeds are all right on equally many images, as networks that answer few classes are; "" without any.
std::string alike_note(const Comparison& comparison);
/// A warning if rounds of timing lie far apart (are_far_apart()), with their least and longest step; "" if none do.
std::string busy_note(const Comparison& comparison);
/// The rule by which norms differ from the reference (statistics.h); "" if no norm is measured against one.
std::string decision_note(const Comparison& comparison);
/// The parts that are here or missing, and whether they ran on different machines; "" if it was not divided.
std::string parts_note(const Comparison& comparison);
/// The notes below a table: those above and start_note() that are not "", the warning first, tuning last.
std::vector<std::string> notes_of(const Comparison& comparison);

/// A network that runs start from is trained with this many times as many images, or epochs, as a run.
inline constexpr int64_t kSourceRuns = 4;
/// The recipe of the network of a model that runs start from, for Comparison::source_classes: batch norm, the defaults
/// of `norma train` for the optimization, and kSourceRuns times as many images, or epochs, as a run has.
train::Recipe source_recipe(const Comparison& comparison, const std::string& model);
/// What runs start from, and which of them; "" where all have random weights.
std::string start_note(const Comparison& comparison);

/// The `norma train` command that trains a cell again, with every option that differs from its default. On the same
/// kind of machine and with the same version it gives the same bits. Files of policies have their old names. For a cell
/// that starts from a network of the comparison's, the command that trains that network stands before it; where
/// averaged weights get new statistics, the command that tests them after it.
std::string repeat_command(const Comparison& comparison, const Cell& cell);

}  // namespace norma::lab
