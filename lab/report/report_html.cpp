#include "core/quoting.h"
#include "lab/report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace norma::lab {

namespace {

std::string list_of_sections(const std::vector<PageSection>& sections) {
  std::string html = "<nav aria-label=\"Sections\"><ul>";
  for (const PageSection& section : sections) {
    if (!section.html.empty()) {
      html += fmt::format("<li><a href=\"#{}\">{}</a></li>", section.id, section.title);
    }
  }
  return html + "</ul></nav>\n";
}

/// The distinct values of all comparisons: "cpu, cuda:0".
template <class F>
std::string each_once(const Page& page, F&& value_of) {
  std::vector<std::string> values;
  for (const NamedComparison& source : page.sources) {
    std::string value = value_of(*source.comparison);
    if (!value.empty() && std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(std::move(value));
    }
  }
  return fmt::format("{}", fmt::join(values, "; "));
}

std::string seeds_of(const Page& page) {
  std::vector<uint64_t> seeds;
  for (const NamedComparison& source : page.sources) {
    for (const Cell& cell : source.comparison->cells) {
      if (std::find(seeds.begin(), seeds.end(), cell.seed) == seeds.end()) {
        seeds.push_back(cell.seed);
      }
    }
  }
  return seeds.size() > 10 ? fmt::format("{}", seeds.size()) : fmt::format("{}", fmt::join(seeds, ", "));
}

std::string key_facts(const Page& page) {
  size_t finished = 0;
  size_t failed = 0;
  for (const PageGroup& group : page.groups) {
    for (const PageRow& row : group.rows) {
      for (const Cell* cell : row.cells) {
        finished += cell->state == CellState::finished ? 1 : 0;
        failed += cell->state == CellState::failed ? 1 : 0;
      }
    }
  }
  std::string html = "<dl class=\"key\">\n";
  const auto put = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) {
      html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, escape_html(value));
    }
  };
  put("runs",
      fmt::format("{} of {} finished{}", finished, page.cells, failed > 0 ? fmt::format(", {} failed", failed) : ""));
  put("data", each_once(page, [](const Comparison& c) {
        return fmt::format("{} of {} at {}×{}", length_of(c.recipe), values_of(c, "dataset"), c.recipe.image_size,
                           c.recipe.image_size);
      }));
  put("seeds", seeds_of(page));
  put("machine", each_once(page, [](const Comparison& c) { return machine_text(c.environment); }));
  put("begun", each_once(page, [](const Comparison& c) { return c.date; }));
  return html + "</dl>\n";
}

/// The part below the opening: the answer group by group, unless the opening says it all.
std::string answers(const Page& page) {
  if (page.answers.empty()) {
    return "";
  }
  std::string html = "<ul class=\"answers\">\n";
  for (const std::string& item : page.answers) {
    html += fmt::format("<li>{}</li>\n", escape_html(item));
  }
  html += "</ul>\n";
  constexpr size_t kLongest = 1000;
  return html.size() <= kLongest ? html
                                 : fmt::format(
                                       "<details class=\"fold\"><summary>The answer for each network"
                                       "</summary>\n{}</details>\n",
                                       html);
}

std::string notes(const Page& page) {
  std::string html;
  for (const std::string& note : page.notes) {
    html += fmt::format("<p class=\"note\">{}</p>\n", escape_html(note));
  }
  return html;
}

size_t style_of(const Page& page, const Telemetry* telemetry) {
  for (const PageGroup& group : page.groups) {
    for (const PageRow& row : group.rows) {
      if (std::ranges::any_of(row.cells,
                              [&](const Cell* cell) { return cell->telemetry && &*cell->telemetry == telemetry; })) {
        return row.style;
      }
    }
  }
  return 0;
}

std::vector<NamedTelemetry> telemetry_of(const Page& page) {
  std::vector<NamedTelemetry> runs;
  for (const NamedComparison& source : page.sources) {
    for (NamedTelemetry& run : named_telemetry(*source.comparison)) {
      run.label += source.name.empty() ? "" : " · " + source.name;
      run.style = style_of(page, run.telemetry);
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace

std::string to_html(const Page& page) {
  std::vector<PageSection> sections = {{"axes", "Accuracy by setting", axes_section(page)},
                                       {"results", "Results", results_section(page) + notes(page)},
                                       {"accuracy", "Accuracy", accuracy_section(page)},
                                       {"difference", "Beside batch norm", difference_section(page)},
                                       {"statistics", "Statistics", statistics_section(page)},
                                       {"time", "Accuracy against time", time_section(page)},
                                       {"tax", "Norm tax", tax_section(page)},
                                       {"memory", "Memory", memory_section(page)},
                                       {"learning", "Training loss", learning_section(page)}};
  for (PageSection& section : telemetry_sections(telemetry_of(page))) {
    sections.push_back(std::move(section));
  }
  sections.push_back({"meaning", "Columns", meaning_section()});
  sections.push_back({"settings", "Settings and machine", settings_section(page)});
  sections.push_back({"runs", "Each run", runs_section(page)});
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Norma: comparison of norms</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<a class=\"skip\" href=\"#{}\">To the results</a>\n<header>\n"
      "<h1>What the norm costs, and what it buys</h1>\n<p class=\"answer\">{}</p>\n",
      page_style(), sections.front().html.empty() ? "results" : sections.front().id,
      escape_html(opening_of(page.sources)));
  html += answers(page) + key_facts(page) + list_of_sections(sections) + "</header>\n<main>\n";
  for (const PageSection& section : sections) {
    if (!section.html.empty()) {
      html += fmt::format("<section aria-labelledby=\"{}\">\n{}</section>\n", section.id, section.html);
    }
  }
  return html +
         "</main>\n<footer><p>Made by norma. Every network saw the same images in the same order.</p></footer>\n"
         "</body>\n</html>\n";
}

std::string to_html(const Comparison& comparison) {
  return to_html(Page({{.name = "", .comparison = &comparison}}));
}

}  // namespace norma::lab
