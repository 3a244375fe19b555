#include "lab/report/section.h"
#include "lab/report/template.h"

#include <nlohmann/json.hpp>

#include <algorithm>

// The sections of a report as a page: their values for the template.

namespace norma::lab {

namespace {

using Values = nlohmann::json;

Values blocks_of(const std::vector<Block>& blocks);

Values pairs_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Values list = Values::array();
  for (const auto& [name, text] : pairs) {
    list.push_back({{"name", name}, {"text", text}});
  }
  return list;
}

Values figures_of(const std::vector<Figure>& figures, size_t begin, size_t end) {
  Values list = Values::array();
  for (size_t i = begin; i < end; ++i) {
    list.push_back({{"title", figures[i].title}, {"note", figures[i].note}, {"chart", to_html(figures[i].chart)}});
  }
  return list;
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
    Values rows = Values::array();
    for (const Table::Row& row : block.table.rows) {
      rows.push_back(
          {{"name", row.cells.front()}, {"cells", std::vector<std::string>(row.cells.begin() + 1, row.cells.end())}});
    }
    return {{"table", {{"caption", block.caption}, {"heads", block.table.heads}, {"rows", std::move(rows)}}}};
  }

  Values operator()(const ResultTable& results) const {
    Values groups = Values::array();
    for (const ResultGroup& group : results.groups) {
      Values rows = Values::array();
      for (const ResultRow& row : group.rows) {
        Values cells = Values::array();
        for (size_t i = 0; i < row.cells.size(); ++i) {
          cells.push_back({{"head", results.heads[i]}, {"text", row.cells[i].text}, {"aside", row.cells[i].aside}});
        }
        rows.push_back({{"name", row.name},
                        {"cells", std::move(cells)},
                        {row.cells.empty() ? "instead" : "problem", row.problem}});
      }
      groups.push_back({{"label", group.label}, {"rows", std::move(rows)}});
    }
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
      values["figures"] = {{"shown", figures_of(block.figures, 0, open)}};
    }
    if (count > open) {
      values["more"] = {{"count", count - open},
                        {"others", open > 0},
                        {"several", count - open > 1},
                        {"folded", figures_of(block.figures, open, count)}};
    }
    return values;
  }

  Values operator()(const Fold& fold) const {
    return {{"fold", {{"summary", fold.summary}, {"problem", fold.problem}, {"blocks", blocks_of(fold.blocks)}}}};
  }
};

Values blocks_of(const std::vector<Block>& blocks) {
  Values list = Values::array();
  for (const Block& block : blocks) {
    list.push_back(std::visit(ValuesOf(), block));
  }
  return list;
}

Values values_of(const Section& section) {
  return {{"id", section.id},
          {"title", section.title},
          {"sentence", section.sentence},
          {"blocks", blocks_of(section.blocks)}};
}

}  // namespace

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
  size_t length = 0;
  for (const std::string& answer : document.answers) {
    length += answer.size();
  }
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

}  // namespace norma::lab
