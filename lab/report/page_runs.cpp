#include "core/quoting.h"
#include "lab/report/page.h"
#include "lab/report/report.h"
#include "train/augmentation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace norma::lab {

namespace {

void put_fact(std::string& html, std::string_view name, std::string_view value) {
  if (!value.empty()) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_html(name), escape_html(value));
  }
}

std::string facts(std::string_view caption, const std::string& rows) {
  return fmt::format("<table class=\"facts\">\n<caption>{}</caption>\n<tbody>\n{}</tbody></table>\n",
                     escape_html(caption), rows);
}

std::string recipe_facts(const Comparison& comparison) {
  const train::Recipe& recipe = comparison.recipe;
  std::string html;
  put_fact(html, "data",
           fmt::format("{} at {}×{}", values_of(comparison, "dataset"), recipe.image_size, recipe.image_size));
  put_fact(html, "augmentation", train::augmentation_text(recipe));
  put_fact(html, "length", length_of(recipe));
  put_fact(html, "test images", recipe.test_images > 0 ? format_count(recipe.test_images) : "all");
  put_fact(html, "batch size", values_of(comparison, "batch size"));
  put_fact(html, "optimizer",
           fmt::format("{}, learning rate {}, weight decay {} (not on norms and biases), momentum {}", recipe.opt,
                       values_of(comparison, "lr"), recipe.weight_decay,
                       recipe.sched == "onecycle" ? "0.95 to 0.85 and back" : fmt::format("{}", recipe.momentum)));
  put_fact(html, "schedule", recipe.sched);
  put_fact(html, "memory format", values_of(comparison, "format"));
  put_fact(html, "precision", values_of(comparison, "precision"));
  if (const std::string start = start_note(comparison); !start.empty()) {
    put_fact(html, "start", start);
  }
  put_fact(html, "all of it", train::to_json(recipe));
  return facts("Settings", html);
}

std::string machine_facts(const Comparison& comparison) {
  const train::Environment& e = comparison.environment;
  std::string html;
  put_fact(html, "date", comparison.date);
  put_fact(html, "command", comparison.command);
  put_fact(html, "Norma", e.norma);
  put_fact(html, "device", e.device);
  put_fact(html, "plug-ins", train::plugins_text(e.plugins));
  put_fact(html, "3x3 convolutions", e.exact_convolutions.value_or(false) ? "exact" : "");
  put_fact(html, "CPU", fmt::format("{}, {} cores, {} used", e.cpu, e.cores, train::threads_text(e)));
  put_fact(html, "instruction sets", fmt::format("{}", fmt::join(e.instruction_sets, " ")));
  put_fact(html, "memory", format_bytes(e.memory));
  put_fact(html, "system", e.system);
  put_fact(html, "compiler", e.compiler + ", " + e.build);
  for (const auto& [name, version] : e.libraries) {
    put_fact(html, name, version);
  }
  for (const PartOrigin& part : comparison.parts) {
    put_fact(html, fmt::format("part {} of {}", part.number, comparison.part_count), origin_text(part));
  }
  return facts("Machine", html);
}

std::string run_details(const PageRow& row, const Cell& cell) {
  std::string html = fmt::format("<details><summary>{}, seed {}: ", escape_html(row.label), cell.seed);
  if (cell.state == CellState::finished) {
    html += fmt::format("{:.2f} %, test loss {:.4f}", 100 * cell.accuracy, cell.loss);
  } else if (cell.state == CellState::failed) {
    html += fmt::format("<span class=\"problem\">failed: {}</span>", escape_html(cell.reason));
  } else {
    html += cell.state == CellState::interrupted ? "interrupted" : is_here(cell) ? "not started" : "in another part";
  }
  html += "</summary>\n";
  if (cell.state == CellState::finished) {
    html +=
        fmt::format("<p>{} steps in {:.0f} s, {:.1f} images per second; at most {} of tensors{}; {} parameters.</p>\n",
                    format_count(static_cast<int64_t>(cell.losses.size())), cell.seconds, cell.images_per_second,
                    format_bytes(cell.peak_bytes),
                    cell.peak_resident > 0 ? fmt::format(", {} of the process", format_bytes(cell.peak_resident)) : "",
                    format_count(cell.parameters));
  }
  return html + fmt::format("<pre><code>{}</code></pre></details>\n",
                            escape_html(repeat_command(*row.source->comparison, cell)));
}

}  // namespace

std::string settings_section(const Page& page) {
  std::string html = section_head("settings", "Settings and machine");
  for (const NamedComparison& source : page.sources) {
    if (!source.name.empty()) {
      html += fmt::format("<h3>{}</h3>\n", escape_html(source.name));
    }
    html += recipe_facts(*source.comparison) + machine_facts(*source.comparison);
  }
  return html;
}

std::string runs_section(const Page& page) {
  constexpr size_t kOpenRuns = 24;
  std::string html = section_head("runs", "Each run, and the command that repeats it");
  html +=
      "<p class=\"note\">The same version on the same kind of processor, with as many threads, gives the same accuracy "
      "bit for bit.</p>\n";
  for (const PageGroup& group : page.groups) {
    std::string runs;
    size_t count = 0;
    for (const PageRow& row : group.rows) {
      for (const Cell* cell : row.cells) {
        runs += run_details(row, *cell);
        ++count;
      }
    }
    html += page.cells <= kOpenRuns ? fmt::format("<h3>{}</h3>\n{}", escape_html(group.label), runs)
                                    : fmt::format("<details><summary>{}: {} run{}</summary>\n{}</details>\n",
                                                  escape_html(group.label), count, count == 1 ? "" : "s", runs);
  }
  return html;
}

}  // namespace norma::lab
