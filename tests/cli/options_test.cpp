#include "cli/program.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace norma;
using test::complaint;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::vector<std::string> kSubcommands = {"compare", "train", "eval",        "export",     "run",
                                               "audit",   "bench", "bench-norms", "check-norm", "data"};

struct Option {
  std::string name;  ///< "--batch-size"
  std::string type;  ///< "N"; "" for a switch
};

/// The options of a subcommand, by its help.
std::vector<Option> options_of(const std::string& subcommand) {
  const TemporaryFolder folder;
  std::istringstream help(run_norma(folder.path(), subcommand + " --help").out);
  std::vector<Option> options;
  for (std::string line; std::getline(help, line);) {
    if (!line.starts_with("  -")) {
      continue;
    }
    // Names and type stand left of at least two spaces.
    std::istringstream words(line.substr(2, line.find("  ", 2) - 2));
    Option option;
    for (std::string word; words >> word;) {
      if (word.starts_with("--")) {
        option.name = word.substr(0, word.find(','));
      } else if (word[0] != '-') {
        option.type = word;
      }
    }
    if (const size_t no = option.name.find("[no-]"); no != std::string::npos) {
      option.name.erase(no, 5);
    }
    if (option.name != "--help") {
      options.push_back(option);
    }
  }
  return options;
}

/// What else a subcommand needs to get as far as its options.
std::string required(const std::string& subcommand, const std::string& but) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (name != but) {
      text += " " + name + " " + value;
    }
  };
  if (subcommand == "eval") {
    add("--checkpoint", "none");
    add("--model", "resnet18");
  } else if (subcommand == "export") {
    add("--checkpoint", "none");
    add("--model", "resnet18");
    add("--output", "x.onnx");
  } else if (subcommand == "run") {
    add("--model", "resnet18");
    add("--weights", "w");
    add("--input", "x");
    add("--output", "y");
  } else if (subcommand == "check-norm") {
    add("--norm", "none");
    add("--quick", "");
  }
  return text;
}

/// True iff it is one line that says what was expected, or that a name is not known.
bool in_our_style(const std::string& text) {
  const bool one_line = std::count(text.begin(), text.end(), '\n') == 1 && text.starts_with("norma: ");
  const bool says = text.find("expected ") != std::string::npos || text.find("unknown ") != std::string::npos ||
                    text.find("cannot ") != std::string::npos;
  return one_line && says && text.size() < 400 && text.find("Could not") == std::string::npos &&
         text.find("TEXT") == std::string::npos;
}

}  // namespace

TEST_CASE("norma: nonsense for every option of every subcommand is one line and exit code 2" *
          doctest::test_suite("slow")) {
  // What is a number, what is a name from a list, and what may be any text that is not empty.
  const std::set<std::string> numbers = {"N", "X", "K", "P", "C", "RATE"};
  const std::set<std::string> sizes = {"--batch-sizes", "--channels", "--img-sizes", "--seed"};
  const std::set<std::string> names = {"NAME", "SPEC", "MODE", "DEVICE", "LIST", "TIME", "FILE.toml"};
  std::map<std::string, int> walked;
  for (const std::string& subcommand : kSubcommands) {
    for (const Option& option : options_of(subcommand)) {
      std::vector<std::string> values = {"''"};
      if (option.type.empty()) {
        values = {"=3", "=''", "=abc"};
      } else if (numbers.contains(option.type) || sizes.contains(option.name)) {
        values = {"''", "-1", "1e99", "99999999999999999999", "abc", "nan"};
      } else if (names.contains(option.type)) {
        values = {"''", "-1", "1e99", "abc"};
      }
      for (const std::string& value : values) {
        const std::string arguments = subcommand + required(subcommand, option.name) + " " + option.name +
                                      (value[0] == '=' ? value : " " + value);
        CAPTURE(arguments);
        const TemporaryFolder folder;
        const Outcome outcome = run_norma(folder.path(), arguments, "timeout 20");
        CHECK(outcome.code == 2);
        CHECK_MESSAGE(in_our_style(outcome.err), outcome.err);
        CHECK(outcome.out.empty());
        CHECK(folder.names().empty());
      }
      if (!option.type.empty()) {
        const std::string missing = complaint(subcommand + required(subcommand, option.name) + " " + option.name);
        CHECK_MESSAGE(missing.find(option.name.substr(2, 3)) != std::string::npos, missing);
        CHECK_MESSAGE(missing.ends_with(", got nothing\n"), missing);
      }
      ++walked[subcommand];
    }
  }
  // So that a change of the help's form does not leave options out.
  const std::map<std::string, int> least = {{"compare", 35}, {"train", 38}, {"eval", 22},
                                            {"export", 17},  {"run", 19},   {"data", 25},
                                            {"audit", 8},    {"bench", 33}, {"bench-norms", 11}};
  for (const auto& [subcommand, count] : least) {
    CAPTURE(subcommand);
    CHECK(walked[subcommand] >= count);
  }
}

TEST_CASE("norma: an option that takes one value is an error where it comes twice") {
  for (const char* twice : {"--model resnet18 --model resnet50", "--output a --output b", "--lr 1 --lr 1",
                            "--threads 1 --threads 2", "--norm-policy a --norm-policy b", "-b 1 --batch-size 2"}) {
    const std::string text = complaint(std::string("train ") + twice);
    CHECK_MESSAGE(text.ends_with(": expected once, got 2 times\n"), text);
  }
  CHECK(complaint("train --output a --output b") == "norma: train: --output: expected once, got 2 times\n");
  CHECK(complaint("train --flip --no-flip") == "norma: train: --flip: expected once, got 2 times\n");
  CHECK(complaint("bench --quiet --quiet") == "norma: bench: --quiet: expected once, got 2 times\n");
  CHECK(complaint("eval --checkpoint a --checkpoint b") == "norma: eval: --checkpoint: expected once, got 2 times\n");
}

TEST_CASE("norma: options that exclude each other") {
  CHECK(complaint("compare --epochs 1 --images 8") == "norma: compare: --epochs excludes --images\n");
  CHECK(complaint("compare --budget 1m --images 8") == "norma: compare: --images excludes --budget\n");
  CHECK(complaint("compare --study quick").starts_with("norma: study: unknown study 'quick'"));
  CHECK(complaint("compare --study lr --quick") == "norma: compare: --study excludes --quick\n");
  CHECK(complaint("compare --lr-scaling root").starts_with("norma: compare: lr-scaling: unknown name 'root'"));
  CHECK(complaint("compare --resume a --output b") == "norma: compare: --output excludes --resume\n");
  CHECK(complaint("bench --both-formats --no-channels-last") ==
        "norma: bench: --both-formats excludes --channels-last\n");
}

TEST_CASE("norma: an option of a family of networks that none of the runs has") {
  for (const auto& [option, models] :
       std::map<std::string, std::string>{{"--patch-size 4", "resnet18"},
                                          {"--layer-scale 0.1", "resnet18"},
                                          {"--small-stem", "convnext_atto"},
                                          {"--zero-init-last", "convnext_atto,vit_tiny"},
                                          {"--global-pool avg", "convnext_atto"},
                                          {"--qk-norm rms2d", "resnet18,convnext_atto"}}) {
    const std::string name = option.substr(2, option.find(' ') - 2);
    const std::string text = complaint("compare --dataset shapes --models " + models + " " + option);
    CHECK_MESSAGE(text.starts_with("norma: compare: " + name + ": expected a network that has this option, got "),
                  text);
  }
  for (const std::string options :
       {"--models resnet18,convnext_atto --patch-size 4 --zero-init-last",
        "--models resnet18,vit_tiny --qk-norm layer2d", "--models resnet18 --qk-norms none"}) {
    CHECK(complaint("compare --dataset shapes --norms batch --part 1/2 --budget 10m " + options)
              .find("expected a network") == std::string::npos);
  }
}

TEST_CASE("norma: values with an equals sign, and an option in the place of a value") {
  CHECK(complaint("train --lr=fast") == "norma: train: --lr: expected a number in (0, 1000], got fast\n");
  CHECK(complaint("train --resume= --quiet") == "norma: train: --resume: expected a path, got an empty text\n");
  CHECK(complaint("train --output --quiet") == "norma: train: --output: expected a path, got nothing\n");
  CHECK(complaint("train -b") == "norma: train: -b: expected a whole number from 1 to 1048576, got nothing\n");
  CHECK(complaint("train --flip=3") == "norma: train: --flip: expected no value, got 3\n");
  CHECK(complaint("train --no-flip=0") == "norma: train: --no-flip: expected no value, got 0\n");
  CHECK(complaint("train --lr 'a\nb'") == "norma: train: --lr: expected a number in (0, 1000], got a?b\n");
  CHECK(complaint("train --random-crop 33") ==
        "norma: train: random-crop: expected at most the 32 of img-size, got 33\n");
}
