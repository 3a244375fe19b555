#include "core/excerpt.h"
#include "lab/report/opening.h"
#include "lab/report/page.h"
#include "lab/report/repeat_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

// The report as GitHub's Markdown.

namespace norma::lab {

namespace {

/// A text as it is, on one line: nothing in it is taken for markup.
std::string plain(std::string_view text) {
  std::string result;
  for (const char c : plain_text(text)) {
    switch (c) {
      case '<': result += "&lt;"; break;  // not every reader of Markdown knows \<
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '\n':
      case '\t': result += ' '; break;
      default:
        if (std::string_view("\\`*_{}[]#|~").find(c) != std::string_view::npos) {
          result += '\\';
        }
        result += c;
    }
  }
  return result;
}

/// Lines of code, between more backquotes than stand in them.
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

std::string line(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

std::string table(const Page& page) {
  std::vector<std::string> heads = {"model"};
  for (const Axis& axis : page.axes) {
    heads.emplace_back(axis.name);
  }
  const size_t text_columns = heads.size() + 1;
  heads.insert(heads.end(), {"norm", "accuracy %", "test loss", "img/s", "tax", "memory", "parameters"});
  std::vector<std::string> rule;
  for (size_t i = 0; i < heads.size(); ++i) {
    rule.emplace_back(i < text_columns ? ":--" : "--:");
  }
  const bool tested = std::any_of(page.groups.begin(), page.groups.end(), [](const PageGroup& group) {
    return std::any_of(group.rows.begin(), group.rows.end(),
                       [](const PageRow& row) { return row.row.accuracy_difference.has_value(); });
  });
  if (tested) {
    heads.insert(std::find(heads.begin(), heads.end(), "test loss"), "to reference");
    rule.emplace_back("--:");
  }
  std::string text = line(heads) + line(rule);
  for (const PageGroup& group : page.groups) {
    for (const PageRow& page_row : group.rows) {
      const Row& row = page_row.row;
      std::vector<std::string> cells = {plain(row.model)};
      for (const Axis& axis : page.axes) {
        cells.push_back(plain(axis.value(row)));
      }
      cells.push_back(plain(page_row.label));
      std::string problem = plain(row.problem);
      if (row.finished > 0) {
        cells.push_back(format_spread(row.accuracy, 2, 100));
        if (tested) {
          cells.push_back(format_difference(row.accuracy_difference));
        }
        cells.insert(cells.end(), {format_spread(row.loss, 4), format_spread(row.images_per_second, 1),
                                   format_tax(row.tax), format_bytes(row.peak_bytes), format_count(row.parameters)});
        if (!problem.empty()) {
          cells[text_columns] += fmt::format(" ({} of {} seeds; {})", row.finished, row.seeds, problem);
        }
      } else {
        cells.push_back(problem);
        cells.resize(heads.size());
      }
      text += line(cells);
    }
  }
  return text;
}

std::string settings(const NamedComparison& source) {
  const Comparison& comparison = *source.comparison;
  const train::Recipe& recipe = comparison.recipe;
  const train::Environment& e = comparison.environment;
  std::string text;
  const auto put = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("- {}: {}\n", name, plain(value));
    }
  };
  put("data", fmt::format("{} of {} at {}×{}", length_of(recipe), values_of(comparison, "dataset"), recipe.image_size,
                          recipe.image_size));
  put("batch size", values_of(comparison, "batch size"));
  put("optimizer", fmt::format("{}, learning rate {}, weight decay {}, schedule {}", recipe.opt,
                               values_of(comparison, "lr"), recipe.weight_decay, recipe.sched));
  put("precision", fmt::format("{}, {}", values_of(comparison, "precision"), values_of(comparison, "format")));
  put("machine", fmt::format("{}, {} cores, {} threads used, {}", e.cpu, e.cores, e.threads, e.system));
  put("device", e.device);
  put("plug-ins", train::plugins_text(e.plugins));
  put("Norma", fmt::format("{}, {}, {}", e.norma, e.compiler, e.build));
  put("begun", comparison.date);
  return text + "\n" + code(comparison.command + "\n");
}

}  // namespace

std::string to_markdown(const Page& page) {
  std::string text =
      fmt::format("# What the norm costs, and what it buys\n\n**{}**\n\n", plain(opening_of(page.sources)));
  std::string notes;
  std::string what;
  std::string commands;
  for (const NamedComparison& source : page.sources) {
    const std::string name = source.name.empty() ? "" : plain(source.name) + ": ";
    for (const std::string& answer : answers_of(*source.comparison)) {
      text += fmt::format("- {}{}\n", name, plain(answer));
    }
    for (const std::string& note : {tax_note(*source.comparison), accuracy_note(*source.comparison),
                                    decision_note(*source.comparison), tuning_note(*source.comparison)}) {
      notes += note.empty() ? "" : fmt::format("\n{}{}\n", name, plain(note));
    }
    what += source.name.empty() ? "" : fmt::format("\n### {}\n", plain(source.name));
    what += "\n" + settings(source);
    for (const Cell& cell : source.comparison->cells) {
      commands += repeat_command(*source.comparison, cell) + "\n";
    }
  }
  text += (text.ends_with("\n\n") ? "" : "\n") + table(page) + notes;
  text += "\n## Settings and machine\n" + what;
  return text + "\n## Each run again\n\n" + code(commands);
}

std::string to_markdown(const Comparison& comparison) {
  return to_markdown(Page({{.name = "", .comparison = &comparison}}));
}

}  // namespace norma::lab
