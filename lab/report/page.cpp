#include "lab/report/page.h"

#include "core/quoting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace norma::lab {

namespace {

std::vector<Axis> varying(const std::vector<NamedComparison>& sources) {
  std::vector<Axis> axes;
  std::copy_if(further_axes().begin(), further_axes().end(), std::back_inserter(axes), [&](const Axis& axis) {
    const std::string first = axis.value(sources.front().comparison->cells.front());
    return std::any_of(sources.begin(), sources.end(), [&](const NamedComparison& source) {
      return std::any_of(source.comparison->cells.begin(), source.comparison->cells.end(),
                         [&](const Cell& cell) { return axis.value(cell) != first; });
    });
  });
  return axes;
}

std::string label_of_group(const Settings& settings, const std::vector<Axis>& axes) {
  std::vector<std::string> values;
  for (const Axis& axis : axes) {
    values.push_back(fmt::format("{} {}", axis.name, axis.value(settings)));
  }
  return values.empty() ? settings.model : fmt::format("{} with {}", settings.model, fmt::join(values, ", "));
}

}  // namespace

Page::Page(std::vector<NamedComparison> named) : sources(std::move(named)) {
  axes = varying(sources);
  std::map<std::string, size_t> styles;  // of norms, in the order in which they come
  for (const NamedComparison& source : sources) {
    const Comparison& comparison = *source.comparison;
    cells += comparison.cells.size();
    const std::string name = source.name.empty() ? "" : source.name + ": ";
    for (const std::string& answer : answers_of(comparison)) {
      answers.push_back(name + answer);
    }
    for (const std::string& note : notes_of(comparison)) {
      notes.push_back(name + note);
    }
    for (Row& row : summarize(comparison)) {
      PageRow made{.source = &source, .row = {}, .label = train::norm_label(row.norm, comparison.recipe), .cells = {}};
      if (!source.name.empty()) {
        made.label += " · " + source.name;
      }
      // A norm has one colour; each of several comparisons has its own dashes.
      made.style =
          styles.try_emplace(row.norm, styles.size()).first->second + 8 * static_cast<size_t>(&source - sources.data());
      for (const Cell& cell : comparison.cells) {
        if (same_but_seed(cell, row)) {
          made.cells.push_back(&cell);
        }
      }
      const Settings settings = comparison_group(row);
      made.row = std::move(row);
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const PageGroup& other) { return other.settings == settings; });
      if (group == groups.end()) {
        groups.push_back({.settings = settings, .label = label_of_group(settings, axes), .rows = {}});
        group = groups.end() - 1;
      }
      group->rows.push_back(std::move(made));
    }
  }
}

std::string section_head(std::string_view id, std::string_view title) {
  return fmt::format("<h2 id=\"{}\">{}</h2>\n", id, escape_html(title));
}

std::string figure(std::string_view title, std::string_view note, std::string_view chart) {
  return fmt::format("<figure><figcaption>{}{}</figcaption>\n{}</figure>\n", escape_html(title),
                     note.empty() ? "" : fmt::format("<p>{}</p>", escape_html(note)), chart);
}

std::string figures(const std::vector<std::string>& charts, size_t open) {
  std::string shown;
  std::string folded;
  for (size_t i = 0; i < charts.size(); ++i) {
    (i < open ? shown : folded) += charts[i];
  }
  std::string html = shown.empty() ? "" : fmt::format("<div class=\"figures\">\n{}</div>\n", shown);
  if (!folded.empty()) {
    const size_t count = charts.size() - open;
    html += fmt::format(
        "<details class=\"fold\"><summary>{}{} chart{}</summary>\n<div class=\"figures\">\n{}</div></details>\n", count,
        open > 0 ? " more" : "", count == 1 ? "" : "s", folded);
  }
  return html;
}

std::string origin_text(const PartOrigin& part) {
  return fmt::format("begun {} on {} by: {}", part.date, machine_text(part.environment), part.command);
}

std::string length_of(const train::Recipe& recipe) {
  return recipe.images > 0 ? format_count(recipe.images) + " images"
                           : fmt::format("{} epoch{}", recipe.epochs, recipe.epochs == 1 ? "" : "s");
}

}  // namespace norma::lab
