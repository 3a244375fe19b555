#include "lab/report/page.h"

#include "base/lists.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <utility>
#include <variant>

namespace norma::lab {

namespace {

ResultCell tax_cell(const std::optional<Decision>& tax) {
  if (!tax) {
    return {"–"};
  }
  const std::string rounds = counted(tax->pairs, "round");
  const std::string median = format_percent(tax->difference) + " %";
  const std::string interval = fmt::format("{} to {}", format_percent(tax->low), format_percent(tax->high));
  switch (tax->state) {
    case Decision::State::waiting: return {"not known yet", fmt::format("{} of {} rounds", tax->pairs, tax->planned)};
    case Decision::State::unknown: return {"not known", "after " + rounds};
    case Decision::State::none_found: return {"none found", fmt::format("{} ({}), {}", median, interval, rounds)};
    case Decision::State::found: break;
  }
  return {median, fmt::format("{}, {}", interval, rounds)};
}

ResultRow row_of(const PageRow& page_row) {
  const Row& row = page_row.row;
  if (row.finished == 0) {
    return {.name = page_row.label, .cells = {}, .problem = row.problem};
  }
  const std::optional<Interval>& rate = row.rate_within;
  return {
      .name = page_row.label,
      .cells = {{format_spread(row.accuracy, 2, 100) + " %",
                 row.accuracy_difference ? "to reference " + format_difference(row.accuracy_difference) : ""},
                {row.fit_loss ? format_spread(*row.fit_loss, 4) : "–"},
                {format_spread(row.loss, 4)},
                {format_spread(row.images_per_second, 1),
                 rate ? fmt::format("{:.1f} to {:.1f}", rate->low, rate->high) : ""},
                tax_cell(row.tax),
                {format_bytes(row.peak_bytes)},
                {row.peak_resident > 0 ? format_bytes(row.peak_resident) : "–"},
                {format_count(row.parameters)}},
      .problem = row.problem.empty() ? "" : fmt::format("{} of {} seeds; {}", row.finished, row.seeds, row.problem)};
}

Facts settings_of_recipe(const Comparison& comparison) {
  const train::Recipe& recipe = comparison.recipe;
  Facts facts{.caption = "Settings", .facts = {}};
  facts.add("data", data_text(comparison));
  facts.add("augmentation", train::augmentation_text(recipe));
  facts.add("test images", recipe.test_images > 0 ? format_count(recipe.test_images) : "all");
  facts.add("batch size", values_of(comparison, "batch size"));
  facts.add("optimizer",
            fmt::format("{}, learning rate {}, weight decay {} (not on norms and biases), momentum {}", recipe.opt,
                        values_of(comparison, "lr"), recipe.weight_decay,
                        recipe.sched == "onecycle" ? "0.95 to 0.85 and back" : fmt::format("{}", recipe.momentum)));
  facts.add("schedule", recipe.sched);
  facts.add("memory format", values_of(comparison, "format"));
  facts.add("precision", values_of(comparison, "precision"));
  facts.add("start", start_note(comparison));
  facts.add("all of it", train::to_json(recipe));
  return facts;
}

Facts machine_of(const Comparison& comparison) {
  const train::Environment& e = comparison.environment;
  Facts facts{.caption = "Machine", .facts = {}};
  facts.add("begun", comparison.date);
  facts.add("Norma", e.norma);
  facts.add("device", e.device);
  facts.add("plug-ins", train::plugins_text(e.plugins));
  facts.add("3x3 convolutions", e.exact_convolutions.value_or(false) ? "exact" : "");
  facts.add("CPU", fmt::format("{}, {} cores, {} used", e.cpu, e.cores, train::threads_text(e)));
  facts.add("instruction sets", fmt::format("{}", fmt::join(e.instruction_sets, " ")));
  facts.add("memory", format_bytes(e.memory));
  facts.add("system", e.system);
  facts.add("compiler", e.compiler + ", " + e.build);
  for (const auto& [name, version] : e.libraries) {
    facts.add(name, version);
  }
  for (const PartOrigin& part : comparison.parts) {
    facts.add(fmt::format("part {} of {}", part.number, comparison.part_count),
              fmt::format("begun {} on {} by: {}", part.date, machine_text(part.environment), part.command));
  }
  return facts;
}

Fold run_details(const PageRow& row, const Cell& cell) {
  Fold fold{.summary = fmt::format("{}, seed {}: ", row.label, cell.seed), .blocks = {}};
  (cell.state == CellState::failed ? fold.problem : fold.summary) += problem_of(cell);
  if (cell.state == CellState::finished) {
    fold.summary += fmt::format("{:.2f} %, test loss {:.4f}", 100 * cell.accuracy, cell.loss);
    const std::string process =
        cell.peak_resident > 0 ? fmt::format(", {} of the process", format_bytes(cell.peak_resident)) : "";
    // Rates of runs met different moments of the machine: beside those of the table they would contradict.
    const std::string rate =
        row.row.rate_in_turns ? "" : fmt::format(", {:.1f} images per second", cell.images_per_second);
    fold.blocks.emplace_back(
        Note{.text = fmt::format("{} steps in {:.0f} s{}; at most {} of tensors{}; {} parameters.",
                                 format_count(static_cast<int64_t>(cell.losses.size())), cell.seconds, rate,
                                 format_bytes(cell.peak_bytes), process, format_count(cell.parameters))});
  }
  fold.blocks.emplace_back(Code{repeat_command(*row.source->comparison, cell)});
  return fold;
}

/// The distinct values of all comparisons: "cpu; cuda:0".
template <class F>
std::string each_once(const Page& page, F&& value_of) {
  std::vector<std::string> values;
  for (const NamedComparison& source : page.sources) {
    if (const std::string value = value_of(*source.comparison); !value.empty()) {
      add_once(values, value);
    }
  }
  return fmt::format("{}", fmt::join(values, "; "));
}

std::string seeds_of(const Page& page) {
  std::vector<uint64_t> seeds;
  for (const NamedComparison& source : page.sources) {
    for (const Cell& cell : source.comparison->cells) {
      add_once(seeds, cell.seed);
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

Section results_section(const Page& page) {
  ResultTable results{
      .caption = "Each norm in each network. After ± stands the standard deviation over the seeds.",
      .heads = {"accuracy", "train loss", "test loss", "img/s", "tax", "tensors", "process", "parameters"},
      .groups = {},
      .table = {}};
  std::vector<NamedRow> rows;
  for (const PageGroup& group : page.groups) {
    ResultGroup& made = results.groups.emplace_back(ResultGroup{.label = group.label, .rows = {}});
    for (const PageRow& row : group.rows) {
      made.rows.push_back(row_of(row));
      rows.push_back({.name = row.label, .row = &row.row});
    }
  }
  results.table = results_table(rows, page.axes);
  Section section = section_called("results");
  section.blocks.emplace_back(std::move(results));
  section.blocks.insert(section.blocks.end(), page.notes.begin(), page.notes.end());
  return section;
}

Section meaning_section() {
  Facts columns{.caption = "", .facts = {}};
  const std::vector<std::string>& texts = texts_of("columns");
  for (size_t i = 0; i < texts.size(); i += 2) {
    columns.add(texts[i], texts[i + 1]);
  }
  Section section = section_called("meaning");
  section.blocks.emplace_back(std::move(columns));
  return section;
}

Section settings_section(const Page& page) {
  Section section = section_called("settings");
  for (const NamedComparison& source : page.sources) {
    if (!source.name.empty()) {
      section.blocks.emplace_back(Heading{source.name});
    }
    section.blocks.emplace_back(Code{source.comparison->command});
    section.blocks.emplace_back(settings_of_recipe(*source.comparison));
    section.blocks.emplace_back(machine_of(*source.comparison));
  }
  return section;
}

Section runs_section(const Page& page) {
  constexpr size_t kOpenRuns = 24;
  Section section = section_called("runs");
  for (const PageGroup& group : page.groups) {
    std::vector<Block> runs;
    for (const PageRow& row : group.rows) {
      for (const Cell* cell : row.cells) {
        runs.emplace_back(run_details(row, *cell));
      }
    }
    if (page.cells <= kOpenRuns) {
      section.blocks.emplace_back(Heading{group.label});
      std::ranges::move(runs, std::back_inserter(section.blocks));
    } else {
      const std::string count = counted(static_cast<int64_t>(runs.size()), "run");
      section.blocks.emplace_back(
          Fold{.summary = fmt::format("{}: {}", group.label, count), .blocks = std::move(runs)});
    }
  }
  return section;
}

Page::Page(std::vector<NamedComparison> named) : sources(std::move(named)) {
  axes = varying_axes(mapped(sources, &NamedComparison::comparison));
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
        groups.push_back({.settings = settings, .label = group_label(settings, axes), .rows = {}});
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
  const std::string length =
      recipe.images > 0 ? format_count(recipe.images) + " images" : counted(recipe.epochs, "epoch");
  return fmt::format("{} of {} at {}×{}", length, values_of(comparison, "dataset"), recipe.image_size,
                     recipe.image_size);
}

}  // namespace norma::lab
