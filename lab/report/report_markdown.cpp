#include "core/excerpt.h"
#include "core/quoting.h"
#include "lab/report/interaction.h"
#include "lab/report/page.h"
#include "lab/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

// The report as GitHub's Markdown.

namespace norma::lab {

namespace {

/// Lines of code, between more backquotes than the text contains.
std::string code(const std::string& text) {
  size_t longest = 2;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}sh\n{}{}\n", fence, plain_text(text), fence);
}

std::string table(const Page& page) {
  std::vector<NamedRow> rows;
  for (const PageGroup& group : page.groups) {
    for (const PageRow& row : group.rows) {
      rows.push_back({.name = row.label, .row = &row.row});
    }
  }
  return to_markdown(results_table(rows, page.axes));
}

std::string settings(const NamedComparison& source) {
  const Comparison& comparison = *source.comparison;
  const train::Recipe& recipe = comparison.recipe;
  const train::Environment& e = comparison.environment;
  std::string text;
  const auto put = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("- {}: {}\n", name, escape_markdown(value));
    }
  };
  put("data", fmt::format("{} of {} at {}×{}", length_of(recipe), values_of(comparison, "dataset"), recipe.image_size,
                          recipe.image_size));
  put("batch size", values_of(comparison, "batch size"));
  put("optimizer", fmt::format("{}, learning rate {}, weight decay {}, schedule {}", recipe.opt,
                               values_of(comparison, "lr"), recipe.weight_decay, recipe.sched));
  put("precision", fmt::format("{}, {}", values_of(comparison, "precision"), values_of(comparison, "format")));
  put("machine", fmt::format("{}, {} cores, {} used, {}", e.cpu, e.cores, train::threads_text(e), e.system));
  put("device", e.device);
  put("plug-ins", train::plugins_text(e.plugins));
  put("Norma", fmt::format("{}, {}, {}", e.norma, e.compiler, e.build));
  put("begun", comparison.date);
  for (const PartOrigin& part : comparison.parts) {
    put(fmt::format("part {} of {}", part.number, comparison.part_count), origin_text(part));
  }
  return text + "\n" + code(comparison.command + "\n");
}

}  // namespace

std::string to_markdown(const Page& page) {
  std::string text =
      fmt::format("# What the norm costs, and what it buys\n\n**{}**\n\n", escape_markdown(opening_of(page.sources)));
  for (const std::string& answer : page.answers) {
    text += fmt::format("- {}\n", escape_markdown(answer));
  }
  text += (page.answers.empty() ? "" : "\n") + table(page);
  for (const std::string& note : page.notes) {
    text += fmt::format("\n{}\n", escape_markdown(note));
  }
  for (const NamedComparison& source : page.sources) {
    if (const Table statistics = statistics_table(*source.comparison); !statistics.rows.empty()) {
      text += fmt::format("\n## Statistics{}{}\n\n", source.name.empty() ? "" : ": ", escape_markdown(source.name));
      text += to_markdown(statistics);
    }
    if (const Table interactions = interaction_table(*source.comparison); !interactions.rows.empty()) {
      text += "\n" + to_markdown(interactions);
    }
  }
  text += "\n## Settings and machine\n";
  std::string commands;
  for (const NamedComparison& source : page.sources) {
    text += source.name.empty() ? "" : fmt::format("\n### {}\n", escape_markdown(source.name));
    text += "\n" + settings(source);
    for (const Cell& cell : source.comparison->cells) {
      commands += repeat_command(*source.comparison, cell) + "\n";
    }
  }
  return text + "\n## Each run again\n\n" + code(commands);
}

std::string to_markdown(const Comparison& comparison) {
  return to_markdown(Page({{.name = "", .comparison = &comparison}}));
}

}  // namespace norma::lab
