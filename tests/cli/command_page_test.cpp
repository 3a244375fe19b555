#include "cli/program.h"
#include "train/recipe_option.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace norma;

namespace {

/// An entry of the man page: an option, an exit status or a variable.
struct Entry {
  std::string names;  // "-b, --batch-size"
  std::string text;

  [[nodiscard]] std::string last_name() const { return names.substr(names.rfind(' ') + 1); }
  /// What stands in brackets at the end of the text: "128", "required".
  [[nodiscard]] std::string otherwise() const {
    const bool is_required = text.ends_with(" (required)");
    const size_t open = text.rfind(is_required ? " (" : " [");
    return is_required || text.ends_with("]") ? text.substr(open + 2, text.size() - open - 3) : "";
  }
};

/// A part of the man page: "EXIT STATUS", "norma eval".
struct Section {
  std::string title;
  std::string about;  // its first line
  std::vector<Entry> entries;
};

/// A line of `norma man` as it is shown.
std::string shown(std::string line) {
  for (const auto& [roff, text] : std::vector<std::pair<std::string, std::string>>{
           {"\\-", "-"}, {"\\(aq", "'"}, {"\\(ga", "`"}, {"\\(ha", "^"}, {"\\(ti", "~"}, {"\\&", ""}, {"\\e", "\\"}}) {
    for (size_t at = line.find(roff); at != std::string::npos; at = line.find(roff, at + text.size())) {
      line.replace(at, roff.size(), text);
    }
  }
  return line;
}

std::vector<Section> man_page() {
  const test::TemporaryFolder folder;
  std::istringstream page(test::run_norma(folder.path(), "man").out);
  std::vector<Section> sections(1);
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(".SH ") || line.starts_with(".SS ")) {
      sections.push_back({.title = shown(line.substr(4)), .about = {}, .entries = {}});
    } else if (sections.back().about.empty()) {
      sections.back().about = shown(line);
    }
    if (line == ".TP") {
      std::string names;
      std::string text;
      std::getline(page, names);
      std::getline(page, text);
      if (names.starts_with("\\fB")) {  // else a word without a name
        sections.back().entries.push_back({shown(names.substr(3, names.find("\\fR") - 3)), shown(text)});
      }
    }
  }
  return sections;
}

std::vector<Section> subcommands() {
  std::vector<Section> found = man_page();
  std::erase_if(found, [](const Section& section) { return !section.title.starts_with("norma "); });
  REQUIRE(found.size() > 10);
  return found;
}

std::string in_brackets(const std::string& otherwise) {
  return otherwise.empty() ? "" : fmt::format(" ({})", otherwise);
}

std::string table_of_subcommands() {
  std::string text = "| subcommand | does |\n|---|---|\n";
  for (const Section& command : subcommands()) {
    text += fmt::format("| `{}` | {} |\n", command.title.substr(6), command.about);
  }
  return text;
}

/// The name of a recipe's option in --help.
std::string long_name(const train::RecipeOption& option) {
  return (option.is_switch() ? "--[no-]" : "--") + option.name;
}

/// The options of the table below are in the last column, unless they have another default here.
std::string table_of_options() {
  std::string text = "| | options | of a recipe, as below |\n|---|---|---|\n";
  const std::vector<train::RecipeOption>& all = train::recipe_options();
  for (const Section& command : subcommands()) {
    std::vector<std::string> own;
    std::map<std::string, std::vector<std::string>> of_recipe;  // by heading
    for (const Entry& entry : command.entries) {
      const auto option = std::ranges::find(all, entry.last_name(), long_name);
      const std::string cell = fmt::format("`{}`", entry.last_name());
      if (option != all.end() && (option->is_switch() || option->default_text({}) == entry.otherwise())) {
        of_recipe[option->heading].push_back(cell);
      } else if (entry.last_name() != "--help") {
        own.push_back(cell + in_brackets(entry.otherwise()));
      }
    }
    std::vector<std::string> cells;
    for (const auto& [heading, names] : of_recipe) {
      std::vector<std::string> missing;
      for (const train::RecipeOption& option : all) {
        const std::string cell = fmt::format("`{}`", long_name(option));
        if (option.heading == heading && std::ranges::find(names, cell) == names.end()) {
          missing.push_back(cell);
        }
      }
      cells.push_back(missing.empty()                 ? heading
                      : missing.size() < names.size() ? fmt::format("{} but {}", heading, fmt::join(missing, ", "))
                                                      : fmt::format("{}", fmt::join(names, ", ")));
    }
    text += fmt::format("| `{}` | {} | {} |\n", command.title.substr(6), fmt::join(own, ", "), fmt::join(cells, "; "));
  }
  return text;
}

/// What a resumed run may change.
std::string table_of_recipe() {
  struct Row {
    std::string heading;
    std::vector<std::string> staying;
    std::vector<std::string> changing;
  };
  std::vector<Row> rows;
  for (const train::RecipeOption& option : train::recipe_options()) {
    auto row = std::ranges::find(rows, option.heading, &Row::heading);
    if (row == rows.end()) {
      row = rows.insert(rows.end(), Row{.heading = option.heading, .staying = {}, .changing = {}});
    }
    const bool is_on = option.is_switch() && option.items({}) == std::vector<std::string>{"true"};
    const std::string otherwise = option.is_switch() ? (is_on ? "on" : "off") : option.default_text({});
    const char* const stress = option.on_resume == train::OnResume::always ? "**" : "";
    (option.on_resume == train::OnResume::another_run ? row->staying : row->changing)
        .push_back(fmt::format("{0}`{1}`{0}{2}", stress, long_name(option), in_brackets(otherwise)));
  }
  std::string text = "| | stays | may change |\n|---|---|---|\n";
  for (const Row& row : rows) {
    text += fmt::format("| {} | {} | {} |\n", row.heading, fmt::join(row.staying, ", "), fmt::join(row.changing, ", "));
  }
  return text;
}

/// The exit status and the environment.
std::string table_of(const std::string& title, const std::string& head) {
  const std::regex page("docs/([a-z]+\\.md)");
  std::string text = fmt::format("| {} |\n|---|---|\n", head);
  for (const Section& section : man_page()) {
    for (const Entry& entry : section.title == title ? section.entries : std::vector<Entry>{}) {
      text += fmt::format("| `{}` | {} |\n", entry.names, std::regex_replace(entry.text, page, "[$1]($1)"));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("norma man: the tables in docs/command.md are what it says") {
  const std::filesystem::path file = test::source_folder() / "docs/command.md";
  std::string page = test::read_file(file);
  const std::string before = page;
  for (const auto& [name, table] :
       std::vector<std::pair<std::string, std::string>>{{"subcommands", table_of_subcommands()},
                                                        {"exit codes", table_of("EXIT STATUS", "exit code | meaning")},
                                                        {"options", table_of_options()},
                                                        {"options of a recipe", table_of_recipe()},
                                                        {"variables", table_of("ENVIRONMENT", "variable | effect")}}) {
    CAPTURE(name);
    const std::string begin =
        fmt::format("<!-- {}: NORMA_WRITE_DOCS=1 test_cli -tc='norma man: the tables*' -->\n", name);
    const std::string end = fmt::format("<!-- end of the {} -->\n", name);
    REQUIRE(page.find(begin) != std::string::npos);
    const size_t from = page.find(begin) + begin.size();
    const size_t to = page.find(end, from);
    REQUIRE(to != std::string::npos);
    page.replace(from, to - from, table);
  }
  if (std::getenv("NORMA_WRITE_DOCS") != nullptr) {
    test::write_file(file, page);
  } else {
    CHECK(page == before);
  }
}
