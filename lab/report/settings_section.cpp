#include "lab/report/page.h"
#include "lab/report/report.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

namespace norma::lab {

namespace {

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
  switch (cell.state) {
    case CellState::finished: {
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
      break;
    }
    case CellState::failed: fold.problem = "failed: " + cell.reason; break;
    case CellState::interrupted: fold.summary += "interrupted"; break;
    case CellState::pending: fold.summary += "not started"; break;
    case CellState::elsewhere: fold.summary += "in another part"; break;
  }
  fold.blocks.emplace_back(Code{repeat_command(*row.source->comparison, cell)});
  return fold;
}

}  // namespace

Section settings_section(const Page& page) {
  Section section{.id = "settings", .menu = "Settings and machine", .title = "Settings and machine"};
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
  Section section{.id = "runs",
                  .menu = "Each run",
                  .title = "Each run, and the command that repeats it",
                  .sentence =
                      "The same version on the same kind of processor, with as many threads, gives the same "
                      "accuracy bit for bit."};
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
      const std::string count = fmt::format("{} run{}", runs.size(), runs.size() == 1 ? "" : "s");
      section.blocks.emplace_back(
          Fold{.summary = fmt::format("{}: {}", group.label, count), .blocks = std::move(runs)});
    }
  }
  return section;
}

}  // namespace norma::lab
