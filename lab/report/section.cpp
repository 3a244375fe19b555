#include "lab/report/section.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "base/quoting.h"
#include "base/toml_lines.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <span>

// The sections of a report as a page, by their values for the template, and as GitHub's Markdown.

namespace norma::lab {

namespace {

using Values = nlohmann::json;

Values blocks_of(const std::vector<Block>& blocks);

Values pairs_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  return mapped(pairs, [](const auto& pair) { return Values{{"name", pair.first}, {"text", pair.second}}; });
}

Values figures_of(std::span<const Figure> figures) {
  return mapped(figures, [](const Figure& one) {
    return Values{{"title", one.title}, {"note", one.note}, {"chart", to_html(one.chart)}};
  });
}

/// The values of a block, by the name under which the template has its kind.
struct ValuesOf {
  Values operator()(const Heading& heading) const { return {{"heading", heading.text}}; }
  Values operator()(const Note& note) const { return {{note.is_warning ? "warning" : "note", note.text}}; }
  Values operator()(const Code& code) const { return {{"code", code.text}}; }
  Values operator()(const Facts& facts) const {
    return {
        {facts.caption.empty() ? "meaning" : "facts", {{"caption", facts.caption}, {"rows", pairs_of(facts.facts)}}}};
  }

  Values operator()(const CaptionedTable& block) const {
    Values rows = mapped(block.table.rows, [](const Table::Row& row) {
      return Values{{"name", row.cells.front()},
                    {"cells", std::vector<std::string>(row.cells.begin() + 1, row.cells.end())}};
    });
    return {{"table", {{"caption", block.caption}, {"heads", block.table.heads}, {"rows", std::move(rows)}}}};
  }

  Values operator()(const ResultTable& results) const {
    const auto row_values = [&](const ResultRow& row) {
      Values cells = Values::array();
      for (size_t i = 0; i < row.cells.size(); ++i) {
        cells.push_back({{"head", results.heads[i]}, {"text", row.cells[i].text}, {"aside", row.cells[i].aside}});
      }
      return Values{
          {"name", row.name}, {"cells", std::move(cells)}, {row.cells.empty() ? "instead" : "problem", row.problem}};
    };
    Values groups = mapped(results.groups, [&](const ResultGroup& group) {
      return Values{{"label", group.label}, {"rows", mapped(group.rows, row_values)}};
    });
    return {{"results",
             {{"caption", results.caption},
              {"heads", results.heads},
              {"columns", results.heads.size()},
              {"all", results.heads.size() + 1},
              {"groups", std::move(groups)}}}};
  }

  Values operator()(const Figures& block) const {
    const size_t count = block.figures.size();
    const size_t open = std::min(block.open, count);
    Values values = Values::object();
    if (open > 0) {
      values["figures"] = {{"shown", figures_of(std::span(block.figures).first(open))}};
    }
    if (count > open) {
      values["more"] = {{"count", count - open},
                        {"others", open > 0},
                        {"several", count - open > 1},
                        {"folded", figures_of(std::span(block.figures).subspan(open))}};
    }
    return values;
  }

  Values operator()(const Fold& fold) const {
    return {{"fold", {{"summary", fold.summary}, {"problem", fold.problem}, {"blocks", blocks_of(fold.blocks)}}}};
  }
};

Values blocks_of(const std::vector<Block>& blocks) {
  return mapped(blocks, [](const Block& block) { return std::visit(ValuesOf(), block); });
}

Values values_of(const Section& section) {
  return {{"id", section.id},
          {"title", section.title},
          {"sentence", section.sentence},
          {"blocks", blocks_of(section.blocks)}};
}

std::string blocks_text(const std::vector<Block>& blocks);

/// Lines of code, between more backquotes than the text contains.
std::string code_text(const std::string& text) {
  size_t longest = 2;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}sh\n{}\n{}\n", fence, plain_text(text), fence);
}

/// The text of a block, which ends with a line's end; "" for what needs a page.
struct TextOf {
  std::string operator()(const Heading& heading) const {
    return fmt::format("### {}\n", escape_markdown(heading.text));
  }
  std::string operator()(const Note& note) const { return escape_markdown(note.text) + "\n"; }
  std::string operator()(const CaptionedTable& block) const { return to_markdown(block.table); }
  std::string operator()(const Code& code) const { return code_text(code.text); }
  std::string operator()(const ResultTable& results) const { return to_markdown(results.table); }
  std::string operator()(const Figures& /*figures*/) const { return ""; }
  std::string operator()(const Facts& facts) const {
    std::string text;
    for (const auto& [name, what] : facts.facts) {
      text += fmt::format("- {}: {}\n", escape_markdown(name), escape_markdown(what));
    }
    return text;
  }
  std::string operator()(const Fold& fold) const {
    return fold.on_page_only ? ""
                             : fmt::format("{}{}\n{}", escape_markdown(fold.summary), escape_markdown(fold.problem),
                                           blocks_text(fold.blocks));
  }
};

/// Each block after an empty line.
std::string blocks_text(const std::vector<Block>& blocks) {
  std::string text;
  for (const Block& block : blocks) {
    const std::string one = std::visit(TextOf(), block);
    text += one.empty() ? "" : "\n" + one;
  }
  return text;
}

bool is_chart(const Block& block) {
  return std::holds_alternative<Figures>(block) || std::holds_alternative<Heading>(block);
}

}  // namespace

const std::vector<std::string>& texts_of(const std::string& name) {
  static const auto texts = [] {
    std::map<std::string, std::vector<std::string>> all;
    const TomlForm form{.line = "name = text", .key = "text", .max_line_bytes = 4000};
    for (const TomlLine& line : parse_toml_lines("report", texts_file(), "texts.toml", form)) {
      all[line.key] = mapped(line.list.value_or(std::vector{line.value}),
                             [](const TomlScalar& text) { return std::get<std::string>(text); });
    }
    return all;
  }();
  return texts.at(name);
}

Section section_called(const std::string& id) {
  const std::vector<std::string>& texts = texts_of(id);
  return {.id = id, .menu = texts[0], .title = texts[1], .sentence = texts.size() > 2 ? texts[2] : ""};
}

std::string to_html(const Section& section) {
  return section.blocks.empty() ? "" : fill(page_template(), "section", values_of(section));
}

std::string to_html(const Document& document) {
  Values menu = Values::array();
  Values sections = Values::array();
  for (const Section& section : document.sections) {
    if (!section.blocks.empty()) {
      menu.push_back({{"id", section.id}, {"text", section.menu}});
      sections.push_back(values_of(section));
    }
  }
  const size_t length = sum_of(document.answers, &std::string::size);
  constexpr size_t kLongest = 1000;
  Values values = {{"style", page_style()},
                   {"first", menu.front()["id"]},
                   {"title", document.title},
                   {"headline", document.headline},
                   {"key_facts", pairs_of(document.key_facts)},
                   {"menu", std::move(menu)},
                   {"sections", std::move(sections)}};
  if (!document.answers.empty()) {
    values[length <= kLongest ? "answers" : "many_answers"] = {{"items", document.answers}};
  }
  return fill(page_template(), "page", values);
}

std::string to_markdown(const Document& document) {
  std::string text = fmt::format("# {}\n\n**{}**\n", document.title, escape_markdown(document.headline));
  for (size_t i = 0; i < document.answers.size(); ++i) {
    text += fmt::format("{}- {}\n", i == 0 ? "\n" : "", escape_markdown(document.answers[i]));
  }
  for (const Section& section : document.sections) {
    if (!std::ranges::all_of(section.blocks, is_chart)) {
      text += fmt::format("\n## {}\n", escape_markdown(section.title));
      text += section.sentence.empty() ? "" : fmt::format("\n{}\n", escape_markdown(section.sentence));
      text += blocks_text(section.blocks);
    }
  }
  return text;
}

}  // namespace norma::lab
