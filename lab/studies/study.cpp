#include "lab/studies/study.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "base/toml_lines.h"
#include "lab/report/settings.h"
#include "train/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <sstream>
#include <utility>
#include <variant>

namespace norma::lab {

namespace {

constexpr std::string_view kOp = "study";

// --- values of a line -------------------------------------------------------------------------------------------

std::string text_in(const TomlLine& line) {
  const auto* text = std::get_if<std::string>(&line.value);
  check(text != nullptr && !text->empty(), kOp, "{}: {}: expected a text", line.value_place, line.key);
  return *text;
}

std::vector<std::string> words_of(const TomlLine& line) {
  std::vector<std::string> words = mapped(line.list.value_or(std::vector<TomlScalar>()), toml_word);
  check(!words.empty() && std::ranges::none_of(words, &std::string::empty), kOp,
        "{}: {}: expected a list of texts or numbers", line.value_place, line.key);
  return words;
}

template <class Number>
std::vector<Number> numbers_of(const TomlLine& line) {
  std::vector<Number> numbers;
  for (const std::string& word : words_of(line)) {
    const std::optional<Number> number = parse_number<Number>(word);
    check(number.has_value(), kOp, "{}: {}: expected a list of numbers, got '{}'", line.value_place, line.key,
          excerpt(word));
    numbers.push_back(*number);
  }
  return numbers;
}

/// What take_option() returns.
std::string value_word(const std::string& place, const std::string& axis, const std::string& word) {
  train::Recipe recipe;
  return take_option(recipe, place, axis, word);
}

void check_axis(const std::string& place, const std::string& name, bool or_lr) {
  auto known = mapped(option_axes(), [](const OptionAxis& axis) { return std::string(axis.option); });
  if (or_lr) {
    known.emplace_back("lr");
  }
  check(is_in(known, name), kOp, "{}: {}", place, unknown_name("axis", name, known));
}

// --- what a claim expects ---------------------------------------------------------------------------------------

/// Reads "batch lr=0.05 = batch lr=0.0125", "training loss: …", "derf > rms2d, opt adamw beside muon", "batch fails".
class ExpectationReader {
 public:
  ExpectationReader(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  Expectation read() {
    Expectation expected;
    std::string_view rest = text_;
    for (const auto& [prefix, measure] :
         {std::pair<std::string_view, Expectation::Measure>{"training loss: ", Expectation::Measure::training_loss},
          {"growth: ", Expectation::Measure::growth}}) {
      if (rest.starts_with(prefix)) {
        expected.measure = measure;
        rest.remove_prefix(prefix.size());
      }
    }
    const size_t comma = rest.find(", ");
    std::vector<std::string> words = split(rest.substr(0, comma));
    if (words.size() > 1 && words.back() == "fails" && comma == std::string_view::npos) {
      expected.sign = Expectation::Sign::fails;
      std::tie(expected.norm, expected.with) = side_of({words.begin(), words.end() - 1});
      return expected;
    }
    const auto sign = std::ranges::find_if(words, [](const std::string& word) { return sign_of(word).has_value(); });
    check(sign != words.end(), kOp, "{}: expect: expected two norms with >, <, =, <= or != between them, got '{}'",
          place_, excerpt(text_));
    expected.sign = *sign_of(*sign);
    std::tie(expected.norm, expected.with) = side_of({words.begin(), sign});
    std::tie(expected.reference, expected.reference_with) = side_of({sign + 1, words.end()});
    check(std::ranges::equal(
              expected.with, expected.reference_with, {}, [](const auto& one) { return one.first; },
              [](const auto& one) { return one.first; }),
          kOp, "{}: expect: expected values of the same axes on both sides, got '{}'", place_, excerpt(text_));
    if (comma != std::string_view::npos) {
      read_axis(split(rest.substr(comma + 1)), expected);
    }
    return expected;
  }

 private:
  static std::vector<std::string> split(std::string_view text) {
    std::istringstream stream{std::string(text)};
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
      words.push_back(word);
    }
    return words;
  }

  static std::optional<Expectation::Sign> sign_of(std::string_view word) {
    using Sign = Expectation::Sign;
    constexpr std::array<std::pair<std::string_view, Sign>, 5> kSigns = {
        {{">", Sign::more}, {"<", Sign::less}, {"=", Sign::none}, {"<=", Sign::not_more}, {"!=", Sign::any}}};
    const auto* found = std::ranges::find(kSigns, word, [](const auto& one) { return one.first; });
    return found == kSigns.end() ? std::nullopt : std::optional(found->second);
  }

  /// The word that a comparison has for this value: 5e-2 and 0.05 are one.
  [[nodiscard]] std::string value_of(const std::string& axis, const std::string& word) const {
    const std::string op = fmt::format("{}: {}: expect", kOp, place_);
    if (axis != "lr") {
      return value_word(op, axis, word);
    }
    const std::optional<double> lr = parse_number<double>(word);
    check(lr.has_value(), op, "lr: expected a number, got '{}'", excerpt(word));
    return fmt::format("{}", *lr);
  }

  /// "batch lr=0.05 weight-decay=0.02"
  [[nodiscard]] std::pair<std::string, std::map<std::string, std::string>> side_of(
      const std::vector<std::string>& words) const {
    check(!words.empty(), kOp, "{}: expect: expected a norm on both sides, got '{}'", place_, excerpt(text_));
    std::map<std::string, std::string> with;
    for (auto word = words.begin() + 1; word != words.end(); ++word) {
      const size_t equal = word->find('=');
      check(equal != std::string::npos, kOp, "{}: expect: expected axis=value after a norm, got '{}'", place_,
            excerpt(*word));
      check_axis(place_ + ": expect", word->substr(0, equal), /* or_lr= */ true);
      with[word->substr(0, equal)] = value_of(word->substr(0, equal), word->substr(equal + 1));
    }
    return {words.front(), with};
  }

  /// "opt adamw beside muon"; "train-images least beside most"
  void read_axis(const std::vector<std::string>& words, Expectation& expected) const {
    check(words.size() == 4 && words[2] == "beside", kOp,
          "{}: expect: expected an axis with two values, as 'opt adamw beside muon', after the comma, got '{}'", place_,
          excerpt(text_));
    check_axis(place_ + ": expect", words[0], /* or_lr= */ false);
    expected.axis = words[0];
    if (words[1] != "least" || words[3] != "most") {
      expected.at = value_of(words[0], words[1]);
      expected.than = value_of(words[0], words[3]);
    }
  }

  std::string_view text_;
  const std::string& place_;
};

// --- the lines of a file ----------------------------------------------------------------------------------------

/// A line of this key fills its part of a study.
struct Key {
  std::string name;
  std::function<void(const TomlLine&, Study&, Claim&)> take;
};

std::vector<Key> keys() {
  std::vector<Key> all = {
      {"question", [](const TomlLine& line, Study& study, Claim&) { study.question = text_in(line); }},
      {"models", [](const TomlLine& line, Study& study, Claim&) { study.models = words_of(line); }},
      {"norms", [](const TomlLine& line, Study& study, Claim&) { study.norms = words_of(line); }},
      {"batch-sizes",
       [](const TomlLine& line, Study& study, Claim&) { study.batch_sizes = numbers_of<int64_t>(line); }},
      {"lrs", [](const TomlLine& line, Study& study, Claim&) { study.lrs = numbers_of<double>(line); }},
      {"precisions", [](const TomlLine& line, Study& study, Claim&) { study.precisions = words_of(line); }},
      {"classes", [](const TomlLine& line, Study& study, Claim&) { study.classes = numbers_of<int64_t>(line); }},
      {"seeds", [](const TomlLine& line, Study& study, Claim&) { study.seeds = numbers_of<uint64_t>(line); }},
      {"lr-scaling", [](const TomlLine& line, Study& study, Claim&) { study.lr_scaling = text_in(line); }},
      {"budget-test-images",
       [](const TomlLine& line, Study& study, Claim&) {
         const std::optional<int64_t> count = parse_number<int64_t>(toml_word(line.value));
         check(count && *count >= 0, kOp, "{}: {}: expected a whole number, at least 0", line.value_place, line.key);
         study.budget_test_images = *count;
       }},
      {"claim", [](const TomlLine& line, Study&, Claim& claim) { claim.sentence = text_in(line); }},
      {"source", [](const TomlLine& line, Study&, Claim& claim) { claim.source = text_in(line); }},
      {"setting", [](const TomlLine& line, Study&, Claim& claim) { claim.setting = text_in(line); }},
      {"beside",
       [](const TomlLine& line, Study&, Claim& claim) {
         claim.beside = text_in(line);
         check_axis(line.value_place + ": beside", claim.beside, /* or_lr= */ true);
       }},
      {"expect", [](const TomlLine& line, Study&, Claim& claim) {
         for (const std::string& text : words_of(line)) {
           claim.expectations.push_back(ExpectationReader(text, line.value_place).read());
         }
       }}};
  for (const OptionAxis& axis : option_axes()) {
    all.push_back({axis.option, [](const TomlLine& line, Study& study, Claim&) {
                     study.options[line.key] = mapped(words_of(line), [&](const std::string& word) {
                       return value_word(fmt::format("{}: {}", kOp, line.value_place), line.key, word);
                     });
                   }});
  }
  return all;
}

}  // namespace

Study study_from_toml(std::string_view text, const std::string& source, std::string name) {
  constexpr int64_t kTestImagesOfClaims = 4000;  // which tell differences of a few tenths of a point
  const std::vector<Key> known = keys();
  Study study{.name = std::move(name)};
  Claim claim;
  std::vector<std::string> given;
  for (const TomlLine& line : parse_toml_lines(kOp, text, source, {.line = "key = value", .key = "key"})) {
    const auto key = std::ranges::find(known, line.key, &Key::name);
    check(key != known.end(), kOp, "{}: {}", line.key_place, unknown_name("key", line.key, mapped(known, &Key::name)));
    key->take(line, study, claim);
    given.push_back(line.key);
  }
  const auto has = [&](std::string_view key) { return is_in(given, key); };
  for (const std::string_view needed : {"question", "models", "norms"}) {
    check(has(needed), kOp, "{}: expected a line '{} = …', got none", source, needed);
  }
  const bool claims = has("claim") || has("source") || has("setting") || has("expect") || has("beside");
  for (const std::string_view needed : {"claim", "source", "setting", "expect"}) {
    check(!claims || has(needed), kOp, "{}: expected a line '{} = …' beside the others of a claim, got none", source,
          needed);
  }
  if (claims) {
    if (!has("budget-test-images")) {
      study.budget_test_images = kTestImagesOfClaims;
    }
    study.claim = std::move(claim);
  }
  return study;
}

const std::vector<Study>& studies() {
  static const std::vector<Study> all = mapped(study_files(), [](const StudyFile& file) {
    return study_from_toml(file.text, fmt::format("{}.toml", file.name), std::string(file.name));
  });
  return all;
}

const Study& study_of(std::string_view name) {
  const auto found = std::ranges::find(studies(), name, &Study::name);
  check(found != studies().end(), kOp, "{}", unknown_name("study", name, mapped(studies(), &Study::name)));
  return *found;
}

Study study_named(const std::string& name_or_file) {
  if (!name_or_file.ends_with(".toml")) {
    return study_of(name_or_file);
  }
  const std::string text = read_text_file(kOp, name_or_file, kMaxTomlBytes);
  Study study = study_from_toml(text, name_or_file, std::filesystem::path(name_or_file).stem().string());
  study.text = text;
  return study;
}

}  // namespace norma::lab
