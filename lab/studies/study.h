#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A difference that a claim speaks of: between a norm and another one, or the same one with other values on some axes.
/// With an `axis` it is an interaction: the difference at one value of the axis is compared with that at another.
struct Expectation {
  enum class Sign : uint8_t {
    more,
    less,
    none,      ///< within kEqualPoints
    not_more,  ///< less than kEqualPoints
    any,       ///< one of either sign, without which the claim cannot be weighed
    fails,     ///< no difference: a run of the norm does not train: its loss is no number, or is_a_guess()
  };
  enum class Measure : uint8_t {
    accuracy,       ///< on the test images, in points
    training_loss,  ///< Cell::fit, in tenths, so that kEqualPoints are a loss of 0.03
    growth,         ///< activation_growth() of the run's telemetry, in decibels
  };
  std::string norm;
  std::string reference;
  Sign sign = Sign::more;
  std::string axis = {};  ///< of option_axes(); "": the difference itself, with whatever else the comparison has
  /// The value of the axis at which the difference is expected to be more, or less, than at the second one. "": the
  /// smallest number that the comparison has there, and the largest. 0 training images are all of them.
  std::string at = {};
  std::string than = {};
  Measure measure = Measure::accuracy;
  /// Values of the norm's runs, and those of the reference's, by the names of option_axes() or "lr". The same axes in
  /// both; empty: all values that the comparison has.
  std::map<std::string, std::string> with = {};
  std::map<std::string, std::string> reference_with = {};
};

/// What a paper says, as far as a comparison of small networks can show it.
struct Claim {
  std::string sentence;                   ///< with a subject and a verb, without a full stop
  std::string source;                     ///< "arXiv 2503.10622"
  std::string setting;                    ///< what is other than there
  std::vector<Expectation> expectations;  ///< all must hold
  /// An axis of option_axes(): claim_text() names the accuracy of each norm at each of its values, too. "": of none.
  std::string beside = {};
};

/// A question about norms, and the grid that answers it. Options that are given replace the grid's values.
struct Study {
  std::string name;
  std::string question;
  std::vector<std::string> models;
  std::vector<std::string> norms;
  // Axes; an empty one has the recipe's value.
  std::vector<int64_t> batch_sizes = {};
  std::vector<double> lrs = {};
  std::vector<std::string> precisions = {};
  std::map<std::string, std::vector<std::string>> options = {};  ///< values on option_axes(), by the option's name
  /// The classes that runs are about; a network that runs start from is trained on the others. Empty: all.
  std::vector<int64_t> classes = {};
  std::string lr_scaling = "none";    ///< of to_string(LrScaling)
  std::vector<uint64_t> seeds = {0};  ///< studies with a claim have several, since one decides nothing
  /// The test images of each run if there is a budget of time, most of which all test images would take. 0: all of
  /// them.
  int64_t budget_test_images = 2000;
  std::optional<Claim> claim = {};  ///< none: the study only asks
  std::string text = {};            ///< of a user's file; "": a study of Norma's
};

/// The study in the text of a file (docs/studies.md). Throws Error "study: …", with `source` and the line, for what is
/// no study.
Study study_from_toml(std::string_view text, const std::string& source, std::string name);

/// Norma's studies, the files beside this one, by name.
const std::vector<Study>& studies();

/// The study of this name. Throws Error "study: …" for an unknown one, with the nearest known name.
const Study& study_of(std::string_view name);

/// The study of this name, or the one in the file if it ends in ".toml". Throws Error as the others do.
Study study_named(const std::string& name_or_file);

/// An embedded file, by its name without ".toml".
struct StudyFile {
  std::string_view name;
  std::string_view text;
};
std::vector<StudyFile> study_files();

}  // namespace norma::lab
