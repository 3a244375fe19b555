#include "lab/report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <variant>

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

/// The distinct values of all comparisons: "cpu; cuda:0".
template <class F>
std::string each_once(const Page& page, F&& value_of) {
  std::vector<std::string> values;
  for (const NamedComparison& source : page.sources) {
    std::string value = value_of(*source.comparison);
    if (!value.empty() && std::ranges::find(values, value) == values.end()) {
      values.push_back(std::move(value));
    }
  }
  return fmt::format("{}", fmt::join(values, "; "));
}

std::string seeds_of(const Page& page) {
  std::vector<uint64_t> seeds;
  for (const NamedComparison& source : page.sources) {
    for (const Cell& cell : source.comparison->cells) {
      if (std::ranges::find(seeds, cell.seed) == seeds.end()) {
        seeds.push_back(cell.seed);
      }
    }
  }
  return seeds.size() > 10 ? fmt::format("{}", seeds.size()) : fmt::format("{}", fmt::join(seeds, ", "));
}

std::vector<std::pair<std::string, std::string>> key_facts(const Page& page) {
  int64_t finished = 0;
  int64_t failed = 0;
  for (const NamedComparison& source : page.sources) {
    finished += std::ranges::count(source.comparison->cells, CellState::finished, &Cell::state);
    failed += std::ranges::count(source.comparison->cells, CellState::failed, &Cell::state);
  }
  Facts facts;
  facts.add("runs", fmt::format("{} of {} finished{}", finished, page.cells,
                                failed > 0 ? fmt::format(", {} failed", failed) : ""));
  facts.add("data", each_once(page, data_text));
  facts.add("seeds", seeds_of(page));
  facts.add("machine", each_once(page, [](const Comparison& c) { return machine_text(c.environment); }));
  facts.add("begun", each_once(page, [](const Comparison& c) { return c.date; }));
  return facts.facts;
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
      notes.push_back({.text = name + note, .is_warning = note == busy_note(comparison)});
    }
    for (Row& row : summarize(comparison)) {
      PageRow made{.source = &source, .row = {}, .label = train::norm_label(row.norm, comparison.recipe), .cells = {}};
      if (!source.name.empty()) {
        made.label += " · " + source.name;
      }
      // A norm has one color; each of several comparisons has its own dashes.
      made.style =
          styles.try_emplace(row.norm, styles.size()).first->second + 8 * static_cast<size_t>(&source - sources.data());
      for (const Cell& cell : comparison.cells) {
        if (same_but_seed(cell, row)) {
          made.cells.push_back(&cell);
        }
      }
      const Settings settings = comparison_group(row);
      made.row = std::move(row);
      auto group = std::ranges::find(groups, settings, &PageGroup::settings);
      if (group == groups.end()) {
        groups.push_back({.settings = settings, .label = label_of_group(settings, axes), .rows = {}});
        group = groups.end() - 1;
      }
      group->rows.push_back(std::move(made));
    }
  }
}

Document document_of(const Page& page) {
  Document document{.title = "What the norm costs, and what it buys",
                    .headline = opening_of(page.sources),
                    .answers = page.answers,
                    .key_facts = key_facts(page),
                    .sections = {axes_section(page), results_section(page)}};
  std::vector<Section>& sections = document.sections;
  std::ranges::move(figure_sections(page), std::back_inserter(sections));
  std::ranges::move(telemetry_sections(telemetry_of(page)), std::back_inserter(sections));
  sections.insert(sections.end(), {meaning_section(), settings_section(page), runs_section(page)});
  return document;
}

std::string to_html(const Comparison& comparison) {
  return to_html(document_of(Page({{.name = "", .comparison = &comparison}})));
}

std::string to_markdown(const Comparison& comparison) {
  return to_markdown(document_of(Page({{.name = "", .comparison = &comparison}})));
}

std::string to_table(const Comparison& comparison) {
  const Section results = results_section(Page({{.name = "", .comparison = &comparison}}));
  const std::string answer = answer_of(comparison);
  std::string text;
  for (const Block& block : results.blocks) {
    if (const auto* table = std::get_if<ResultTable>(&block)) {
      text += to_text(table->table) + answer + (answer.empty() ? "" : "\n");
    } else if (const auto* note = std::get_if<Note>(&block)) {
      text += note->text + "\n";
    }
  }
  return text;
}

std::string data_text(const Comparison& comparison) {
  const train::Recipe& recipe = comparison.recipe;
  const std::string length = recipe.images > 0
                                 ? format_count(recipe.images) + " images"
                                 : fmt::format("{} epoch{}", recipe.epochs, recipe.epochs == 1 ? "" : "s");
  return fmt::format("{} of {} at {}×{}", length, values_of(comparison, "dataset"), recipe.image_size,
                     recipe.image_size);
}

}  // namespace norma::lab
