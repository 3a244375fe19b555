#include "cli/program.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

std::vector<std::filesystem::path> recipes() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_folder() / "recipes")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The lines of a recipe, or of args.toml, "batch-size = 128".
std::vector<std::string> options_in(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    line = line.substr(0, line.find(" #"));
    line.erase(line.find_last_not_of(' ') + 1);
    if (!line.empty() && line[0] != '#') {
      lines.push_back(line);
    }
    at = end + 1;
  }
  return lines;
}

std::string name_of(const std::string& option) {
  return option.substr(0, option.find(' '));
}

/// "lr = 5e-3" and "lr = 0.005": numbers are compared as such, alone and in lists.
bool is_same(std::string a, std::string b) {
  const auto numbers = [](std::string& text) {
    std::vector<double> found;
    std::string rest;
    for (size_t at = text.find('=') + 1; at < text.size();) {
      char* end = nullptr;
      const double number = std::strtod(text.c_str() + at, &end);
      const auto length = static_cast<size_t>(end - text.c_str()) - at;
      if (length > 0) {
        found.push_back(number);
        at += length;
      } else {
        rest += text[at] == ' ' ? "" : std::string(1, text[at]);
        ++at;
      }
    }
    text = name_of(text) + rest;
    return found;
  };
  return numbers(a) == numbers(b) && a == b;
}

}  // namespace

TEST_CASE("recipes: each says where it comes from, what to expect and what it costs, and is in the documentation") {
  const std::string documentation = read_file(test::source_folder() / "docs/training.md");
  CHECK(recipes().size() >= 12);
  for (const std::filesystem::path& file : recipes()) {
    CAPTURE(file);
    const std::string text = read_file(file);
    for (const char* heading : {"\n# Source: ", "\n# Expected: ", "\n# Cost: ", "\n# Start: norma train --config "}) {
      CHECK_MESSAGE(text.find(heading) != std::string::npos, heading);
    }
    CHECK(text.find("--config " + file.filename().string()) != std::string::npos);
    CHECK(documentation.find("`" + file.filename().string() + "`") != std::string::npos);
  }
}

// Half a minute in all and up to 4 GB of memory, so that ctest runs it once for each recipe, as "recipes: …"
// (tests/CMakeLists.txt).
TEST_CASE("recipes: each parses, builds its network and takes two steps at its size" * doctest::skip(true)) {
  // What stands here in the place of the recipe's own: generated images, two of them in a step.
  const std::string generated =
      " --dataset shapes --batch-size 2 --grad-accum-steps 1 --images 4 --test-images 2 --output o --log-interval 1 -j "
      "0";
  const std::vector<std::string> replaced = {"dataset", "batch-size", "grad-accum-steps", "epochs"};
  const char* const only = std::getenv("NORMA_TEST_RECIPE");
  std::vector<std::filesystem::path> files = recipes();
  std::erase_if(files, [&](const auto& file) { return only != nullptr && file.filename() != only; });
  REQUIRE(!files.empty());
  for (const std::filesystem::path& file : files) {
    CAPTURE(file);
    const TemporaryFolder folder;
    // The run ends at its checkpoint, of up to 3 GB, for which there is no room; the steps are done by then.
    const Outcome outcome =
        run_norma(folder.path(), "train --config '" + file.string() + "'" + generated, "trap '' XFSZ; ulimit -f 1000;");
    CHECK_MESSAGE(outcome.err.ends_with("last.safetensors: File too large\n"), outcome.err);
    CHECK_MESSAGE(outcome.out.find("step 2/2") != std::string::npos, outcome.out);
    // Everything else is as the recipe says.
    const std::vector<std::string> taken = options_in(read_file(folder / "o/args.toml"));
    for (const std::string& option : options_in(read_file(file))) {
      if (std::find(replaced.begin(), replaced.end(), name_of(option)) == replaced.end()) {
        CHECK_MESSAGE(
            std::any_of(taken.begin(), taken.end(), [&](const std::string& line) { return is_same(line, option); }),
            option);
      }
    }
  }
}
