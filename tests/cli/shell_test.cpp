#include "cli/program.h"
#include "models/registry.h"
#include "nn/norm/factory.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

using namespace norma;
using test::complaint;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;
using test::write_file;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// What a program of the shell prints, and its exit code.
Outcome run_shell(const std::filesystem::path& folder, const std::string& line) {
  return test::outcome_in(
      folder,
      std::system(fmt::format("cd '{}' && {} > stdout.txt 2> stderr.txt < /dev/null", folder.string(), line).c_str()));
}

/// The program under the name by which the scripts call it.
const std::string kNorma = fmt::format("norma() {{ '{}' \"$@\"; }}\n", test::norma_program());

/// The lines with which the program answers a shell that completes the last of these words.
std::vector<std::string> answer_to(const std::string& words) {
  const TemporaryFolder folder;
  return lines_of(run_norma(folder.path(), "completion words " + words).out);
}

bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " > /dev/null").c_str()) == 0;
}

/// bash with the completion of norma.
class Bash {
 public:
  Bash() {
    const Outcome script = run_norma(folder_.path(), "completion bash");
    REQUIRE(script.code == 0);
    std::filesystem::create_directory(folder_ / "work");
    write_file(folder_ / "norma.bash", kNorma + script.out);
  }

  /// What it offers for the last of these words, which are in the shell's syntax. Throws where bash complains.
  [[nodiscard]] std::vector<std::string> offers(const std::string& words) const {
    write_file(folder_ / "ask.bash",
               "source ../norma.bash\nCOMP_WORDS=(norma " + words +
                   ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_norma\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
    const Outcome asked = run_shell(folder_ / "work", "bash ../ask.bash");
    CHECK_MESSAGE(asked.err.empty(), words, ": ", asked.err);
    std::vector<std::string> offered = lines_of(asked.out);
    std::sort(offered.begin(), offered.end());
    offered.erase(std::remove(offered.begin(), offered.end(), ""), offered.end());
    return offered;
  }
  [[nodiscard]] std::filesystem::path folder() const { return folder_ / "work"; }
  [[nodiscard]] std::filesystem::path script() const { return folder_ / "norma.bash"; }

 private:
  TemporaryFolder folder_;
};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Those that begin so, sorted.
std::vector<std::string> beginning(std::vector<std::string> names, const std::string& start) {
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(start); });
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<std::string> kCommands = {"compare", "train", "eval",       "average",     "convert",    "export",
                                            "run",     "audit", "bench",      "bench-norms", "check-norm", "report",
                                            "data",    "info",  "completion", "man"};

/// Lines of --help that begin an option: "-b, --batch-size N", "--[no-]flip".
std::vector<std::string> option_lines(const std::string& help) {
  std::vector<std::string> found;
  const std::regex option("^  ((-[a-zA-Z], ?)?--[^ ]+(, --[^ ]+)*( [A-Z][^ ]*)?)( .*)?$");
  for (const std::string& line : lines_of(help)) {
    std::smatch match;
    if (std::regex_match(line, match, option)) {
      found.push_back(match[1].str());
    }
  }
  return found;
}

/// A text as one line with single spaces.
std::string in_one_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

}  // namespace

TEST_CASE("norma completion: bash completes subcommands, options, names and lists of them") {
  const Bash bash;
  CHECK(bash.offers("tra") == std::vector<std::string>{"train"});
  CHECK(bash.offers("bench") == std::vector<std::string>{"bench", "bench-norms"});
  CHECK(bash.offers("train --clip") == std::vector<std::string>{"--clip-grad", "--clip-mode"});
  CHECK(bash.offers("train --no-fl") == std::vector<std::string>{"--no-flip"});
  CHECK(bash.offers("train --model resnet1") == beginning(models::model_names(), "resnet1"));
  CHECK(bash.offers("train --norm ''") == beginning(nn::norm_names(), ""));
  CHECK(bash.offers("train --norm = lay") == beginning(nn::norm_names(), "lay"));
  CHECK(bash.offers("train --norm =") == beginning(nn::norm_names(), ""));
  CHECK(bash.offers("compare --norms batch,layer2") == std::vector<std::string>{"batch,layer2d"});
  CHECK(bash.offers("compare --norms batch layer2") == std::vector<std::string>{"layer2d"});
  CHECK(bash.offers("train --dynamics gradients,sat") == std::vector<std::string>{"gradients,saturation"});
  CHECK(bash.offers("compare --dynamics ''") ==
        beginning({"all", "gradients", "saturation", "sharpness", "weights"}, ""));
  CHECK(bash.offers("train --opt nest") == std::vector<std::string>{"nesterov"});
  CHECK(bash.offers("completion ''") == std::vector<std::string>{"bash", "fish", "zsh"});
  // A number is nobody's to guess; behind a switch and behind a value there are options again.
  CHECK(bash.offers("train --epochs ''").empty());
  CHECK(contains(bash.offers("train --flip ''"), "--model"));
  CHECK(contains(bash.offers("train --model resnet18 ''"), "--norm"));
  CHECK(contains(bash.offers("train --norm --mod"), "--model"));
  CHECK_FALSE(contains(bash.offers("data ''"), "--model"));
}

TEST_CASE("norma completion: bash offers files and folders, also with spaces in their names") {
  const Bash bash;
  std::filesystem::create_directory(bash.folder() / "my runs");
  write_file(bash.folder() / "my file.toml", "");
  CHECK(bash.offers("train --config my") == std::vector<std::string>{"my file.toml", "my runs"});
  CHECK(bash.offers("train --resume 'my r'") == std::vector<std::string>{"my runs"});
  CHECK(bash.offers("train --data-dir my") == std::vector<std::string>{"my runs"});
  CHECK(bash.offers("report my") == std::vector<std::string>{"my runs"});
  CHECK(bash.offers("run --weights my") == std::vector<std::string>{"my file.toml", "my runs"});
  CHECK(bash.offers("average my") == std::vector<std::string>{"my file.toml", "my runs"});
  CHECK(bash.offers("convert my") == std::vector<std::string>{"my file.toml", "my runs"});
}

TEST_CASE("norma completion: every option of every --help is offered, and names for each that takes a name") {
  const Bash bash;
  const TemporaryFolder folder;
  std::string ask = "source '" + bash.script().string() + "'\n";
  std::vector<std::string> named;
  for (const std::string& command : kCommands) {
    const std::vector<std::string> shown = option_lines(run_norma(folder.path(), command + " --help").out);
    CHECK_MESSAGE(!shown.empty(), command);
    const std::vector<std::string> offered = bash.offers(command + " -");
    for (const std::string& line : shown) {
      const std::regex name("--\\[no-\\]([a-z0-9-]+)|(--?[a-zA-Z][a-z0-9-]*)");
      for (std::sregex_iterator it(line.begin(), line.end(), name); it != std::sregex_iterator(); ++it) {
        for (const std::string& one : (*it)[1].matched
                                          ? std::vector<std::string>{"--" + (*it)[1].str(), "--no-" + (*it)[1].str()}
                                          : std::vector<std::string>{(*it)[2].str()}) {
          CHECK_MESSAGE(contains(offered, one), command, " ", one);
        }
      }
      const std::regex takes_name("^(-., )?(--[a-z0-9-]+)(, --[a-z0-9-]+)* (NAME|SPEC|MODE|DEVICE|LIBRARY)$");
      std::smatch match;
      if (std::regex_match(line, match, takes_name)) {
        ask += fmt::format("norma completion words {} {} '' | sed -n 2p | grep . || echo nothing\n", command,
                           match[2].str());
        named.push_back(command + " " + match[2].str());
      }
    }
  }
  CHECK(named.size() > 20);
  write_file(folder / "ask.bash", ask);
  const std::vector<std::string> answers = lines_of(run_shell(folder.path(), "bash ask.bash").out);
  REQUIRE(answers.size() == named.size());
  for (size_t i = 0; i < named.size(); ++i) {
    CHECK_MESSAGE(answers[i] != "nothing", named[i]);
  }
}

TEST_CASE("norma completion: zsh and fish") {
  const TemporaryFolder folder;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Outcome script = run_norma(folder.path(), "completion " + shell);
    CHECK(script.code == 0);
    CHECK(script.err.empty());
    CHECK_MESSAGE(script.out.find(" completion words ") != std::string::npos, shell);
    write_file(folder / "script", script.out);
    if (is_installed(shell)) {
      const Outcome checked = run_shell(folder.path(), shell + " -n script");
      CHECK_MESSAGE(checked.code == 0, checked.err);
      CHECK_MESSAGE(checked.err.empty(), checked.err);
    } else {
      MESSAGE("skipped: " << shell << " is not installed, so that its script is not checked for syntax");
    }
  }
  CHECK(complaint("completion") == "norma: completion: expected one shell: bash, zsh or fish, got 0\n");
  CHECK(complaint("completion fisch") == "norma: completion: unknown shell 'fisch'; did you mean 'fish'?\n");
}

TEST_CASE("norma completion: what a shell is told") {
  using Lines = std::vector<std::string>;
  CHECK(answer_to("bench-") == Lines{"words", "bench-norms\tHow fast each norm moves its bytes, beside a copy"});
  CHECK(answer_to("train --clip-g") ==
        Lines{"words", "--clip-grad\tlargest norm of all gradients together, or what --clip-mode says"});
  CHECK(answer_to("train --opt=nest") == Lines{"words", "--opt=nesterov"});
  CHECK(answer_to("compare --models resnet18,resnet34,resnet15") == Lines{"list", "resnet18,resnet34,resnet152"});
  CHECK(answer_to("train --data-dir ''") == Lines{"folder"});
  CHECK(answer_to("train --config=r") == Lines{"file"});
  CHECK(answer_to("average ''") == Lines{"file"});
  CHECK(answer_to("convert a.pth b") == Lines{"file"});
  CHECK(answer_to("trian --mo") == Lines{"words"});
  Lines told = answer_to("train --plugin none.so --norm lay");  // a file that nobody looks for
  CHECK(told.front() == "words");
  told.erase(told.begin());
  CHECK(beginning(told, "") == beginning(nn::norm_names(), "lay"));
}

TEST_CASE("norma completion: fish offers what it is told") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "bin");
  std::filesystem::create_symlink(test::norma_program(), folder / "bin/norma");
  std::filesystem::create_directory(folder / "my runs");
  write_file(folder / "my.toml", "");
  const std::string path = "PATH=\"$PWD/bin:$PATH\" ";
  if (is_installed("fish")) {
    const auto offers = [&](const std::string& line) {
      return lines_of(
          run_shell(folder.path(),
                    fmt::format("{}fish -c 'norma completion fish | source; complete -C \"{}\"'", path, line))
              .out);
    };
    CHECK(offers("norma train --clip-g") ==
          std::vector<std::string>{"--clip-grad\tlargest norm of all gradients together, or what --clip-mode says"});
    CHECK(offers("norma train --opt=nest") == std::vector<std::string>{"--opt=nesterov"});
    CHECK(offers("norma compare --norms batch,layer2") == std::vector<std::string>{"batch,layer2d"});
    CHECK(contains(offers("norma train --config my"), "my.toml"));
    CHECK(contains(offers("norma "), "man\tPrint the man page"));
  } else {
    MESSAGE("skipped: fish is not installed");
  }
}

TEST_CASE("norma man: every option of every --help is in it, and groff has no complaint") {
  const TemporaryFolder folder;
  const Outcome page = run_norma(folder.path(), "man");
  REQUIRE(page.code == 0);
  CHECK(page.out.find("\n.TH NORMA 1 ") != std::string::npos);
  size_t at = 0;
  for (const std::string& command : kCommands) {
    std::string escaped = std::regex_replace(command, std::regex("-"), "\\-");
    at = page.out.find("\n.SS norma " + escaped + "\n", at);
    REQUIRE_MESSAGE(at != std::string::npos, command);
    const size_t end = std::min(page.out.find("\n.SS ", at + 1), page.out.find("\n.SH ", at));
    const std::string section = page.out.substr(at, end - at);
    const std::vector<std::string> shown = option_lines(run_norma(folder.path(), command + " --help").out);
    size_t entries = 0;
    for (size_t i = section.find("\n.TP\n\\fB"); i != std::string::npos; i = section.find("\n.TP\n\\fB", i + 1)) {
      ++entries;
    }
    CHECK_MESSAGE(entries == shown.size(), command);
  }
  write_file(folder / "norma.1", page.out);
  if (!is_installed("groff")) {
    MESSAGE("skipped: groff is not installed, so that the page is not shown");
    return;
  }
  const Outcome shown = run_shell(folder.path(), "groff -k -man -ww -Tutf8 -P-cbou norma.1");
  CHECK(shown.code == 0);
  CHECK_MESSAGE(shown.err.empty(), shown.err);
  const std::string text = in_one_line(shown.out);
  for (const char* part :
       {"NAME norma - trains image networks", "norma train Train one network; resumes",
        "-b, --batch-size N images per step [128]", "--[no-]flip mirror each image with probability 1/2",
        "--layer-decay X learning rate of each block, as a share of the next one's [1: all the same]",
        "resnet18 … resnet152, convnext_atto … convnext_xlarge", "norma train --config runs/mine/args.toml --seed 1"}) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
  }
}
