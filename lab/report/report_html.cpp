#include "lab/report/chart.h"
#include "lab/report/report.h"
#include "lab/report/telemetry_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace norma::lab {

namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --text: #1d2127; --soft: #5c6570; --line: #d9dee4; --back: #ffffff; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ed; --soft: #9aa4af; --line: #353c45; --back: #14171b; --panel: #1c2026; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.6rem; }
.answer { font-size: 1.15rem; border-left: 4px solid var(--soft); padding-left: 0.8rem; }
.soft { color: var(--soft); margin-top: 0.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2), table.facts th, table.facts td { text-align: left; }
table.facts th { font-weight: normal; color: var(--soft); width: 12rem; vertical-align: top; }
table.facts td { white-space: normal; overflow-wrap: anywhere; }
tr.group td { border-top: 2px solid var(--line); }
td.problem { text-align: left; color: #c4432b; white-space: normal; }
dl { margin: 0; } dt { font-weight: 600; margin-top: 0.5rem; } dd { margin: 0; color: var(--soft); }
figure { margin: 0 0 1rem; padding: 0.8rem; background: var(--panel); border-radius: 8px; }
figcaption { font-weight: 600; margin-bottom: 0.4rem; }
svg { width: 100%; height: auto; display: block; }
svg svg { width: auto; }
.label { font-size: 12px; fill: var(--soft); } .grid { stroke: var(--line); } .axis { stroke: var(--soft); }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; } .faint { stroke-width: 1; opacity: 0.22; }
.legend { margin: 0.4rem 0 0; font-size: 0.9rem; } .legend span { margin-right: 1.2rem; white-space: nowrap; }
.legend i { display: inline-block; width: 1.2em; height: 0.3em; margin-right: 0.4em; vertical-align: middle;
            border-radius: 2px; }
code { font-size: 0.9em; background: var(--panel); padding: 0.1em 0.3em; border-radius: 4px; overflow-wrap: anywhere; }
)css";

/// The norms of a comparison have one colour each, the same in all charts.
class Colours {
 public:
  explicit Colours(const Comparison& comparison) {
    for (const Cell& cell : comparison.cells) {
      colours_.try_emplace(cell.norm, palette(colours_.size()));
    }
  }
  [[nodiscard]] std::string of(const std::string& norm) const { return colours_.at(norm); }

 private:
  std::map<std::string, std::string> colours_;
};

std::vector<Settings> groups_of(const Comparison& comparison) {
  std::vector<Settings> groups;
  for (const Cell& cell : comparison.cells) {
    if (std::find(groups.begin(), groups.end(), comparison_group(cell)) == groups.end()) {
      groups.push_back(comparison_group(cell));
    }
  }
  return groups;
}

/// Exponential moving average over about a fortieth of the run, without the pull towards 0 at the start.
std::vector<double> smoothed(const std::vector<double>& values) {
  const double keep = 1 - 1 / std::max(1.0, static_cast<double>(values.size()) / 40);
  std::vector<double> result;
  result.reserve(values.size());
  double sum = 0;
  double weight = 0;
  for (const double value : values) {
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    result.push_back(sum / weight);
  }
  return result;
}

void put_table(std::string& page, const std::vector<Row>& rows, const Comparison& comparison) {
  const std::vector<Axis> axes = varying_axes(comparison);
  page += "<div class=\"scroll\"><table>\n<tr><th>model</th><th>norm</th>";
  for (const Axis& axis : axes) {
    page += fmt::format("<th>{}</th>", axis.name);
  }
  const bool tested = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.accuracy_difference; });
  page += fmt::format("<th>accuracy</th>{}", tested ? "<th>to reference</th>" : "");
  page +=
      "<th>test loss</th><th>img/s</th><th>tax</th><th>tensors</th><th>process</th>"
      "<th>parameters</th></tr>\n";
  std::string model;
  for (const Row& row : rows) {
    const std::string_view start = model.empty() || model == row.model ? "<tr>" : "<tr class=\"group\">";
    model = row.model;
    page += fmt::format("{}<td>{}</td><td>{}</td>", start, escape_html(row.model),
                        escape_html(train::norm_label(row.norm, comparison.recipe)));
    for (const Axis& axis : axes) {
      page += fmt::format("<td>{}</td>", escape_html(axis.value(row)));
    }
    if (row.finished > 0) {
      page += fmt::format("<td>{} %</td>", format_spread(row.accuracy, 2, 100));
      if (tested) {
        page += fmt::format("<td>{}</td>", format_difference(row.accuracy_difference));
      }
      page +=
          fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>", format_spread(row.loss, 4),
                      format_spread(row.images_per_second, 1), format_tax(row.tax), format_bytes(row.peak_bytes),
                      row.peak_resident > 0 ? format_bytes(row.peak_resident) : "–", format_count(row.parameters));
    } else {
      page += fmt::format("<td class=\"problem\" colspan=\"{}\">{}</td>", tested ? 8 : 7, escape_html(row.problem));
    }
    page += "</tr>\n";
    if (row.finished > 0 && !row.problem.empty()) {
      page +=
          fmt::format("<tr><td colspan=\"{}\"></td><td class=\"problem\" colspan=\"7\">{} of {} seeds; {}</td></tr>\n",
                      axes.size() + 2, row.finished, row.seeds, escape_html(row.problem));
    }
  }
  page += "</table></div>\n";
}

void put_loss_curves(std::string& page, const Comparison& comparison, const Colours& colours) {
  for (const Settings& group : groups_of(comparison)) {
    LineChart chart{.title = "Training loss of " + group_label(comparison, group),
                    .x_label = "training images",
                    .y_label = "loss",
                    .series = {}};
    for (const Cell& cell : comparison.cells) {
      if (comparison_group(cell) != group || cell.losses.empty()) {
        continue;
      }
      std::vector<double> images;
      for (size_t i = 0; i < cell.losses.size(); ++i) {
        images.push_back(static_cast<double>(cell.batch_size) * static_cast<double>(i + 1));
      }
      chart.series.push_back(
          {.name = cell.norm, .colour = colours.of(cell.norm), .x = images, .y = cell.losses, .faint = true});
      chart.series.push_back({.name = train::norm_label(cell.norm, comparison.recipe),
                              .colour = colours.of(cell.norm),
                              .x = images,
                              .y = smoothed(cell.losses)});
    }
    if (!chart.series.empty()) {
      page += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escape_html(chart.title),
                          line_chart(chart));
    }
  }
}

void put_bars(std::string& page, const std::vector<Row>& rows, const Comparison& comparison, const Colours& colours) {
  BarChart accuracy{.title = "Test accuracy", .bars = {}, .end = 100};
  BarChart speed{.title = "Training images per second", .bars = {}};
  for (const Row& row : rows) {
    if (row.finished > 0) {
      std::string name = row.model + " " + train::norm_label(row.norm, comparison.recipe);
      for (const Axis& axis : varying_axes(comparison)) {
        name += fmt::format(", {} {}", axis.name, axis.value(row));
      }
      accuracy.bars.push_back({.name = name,
                               .colour = colours.of(row.norm),
                               .value = 100 * row.accuracy.mean,
                               .text = format_spread(row.accuracy, 2, 100) + " %"});
      speed.bars.push_back({.name = name,
                            .colour = colours.of(row.norm),
                            .value = row.images_per_second.mean,
                            .text = format_spread(row.images_per_second, 0)});
    }
  }
  for (const BarChart& chart : {accuracy, speed}) {
    page += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", chart.title, bar_chart(chart));
  }
}

void put_explanations(std::string& page) {
  page += R"html(<dl>
<dt>accuracy</dt><dd>Share of the test images, none of which was trained on, whose most probable class is the right one.</dd>
<dt>test loss</dt><dd>Mean cross-entropy on the test images: it also counts how sure the network was.</dd>
<dt>img/s</dt><dd>Training images per second: the batch size over the median time of a training step, loading included, evaluation not.</dd>
<dt>tax</dt><dd>Share of its throughput that the network loses when its batch norm is replaced by this norm; negative is faster. Training steps of all norms take turns for it, spread over the whole comparison, so that all meet the same moments of the machine: images per second of different runs do not.</dd>
<dt>tensors</dt><dd>The most memory that tensors held at one time during training: parameters, gradients, optimizer, activations.</dd>
<dt>process</dt><dd>The most memory that the whole process held during training, as the system counts it.</dd>
<dt>parameters</dt><dd>Numbers that are trained.</dd>
</dl>
<p class="soft">A value after ± is the standard deviation over the seeds. In the loss curves, the pale line is the loss of each batch and the strong one its moving average.</p>
)html";
}

void put_fact(std::string& page, std::string_view name, std::string_view value) {
  if (!value.empty()) {
    page += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_html(name), escape_html(value));
  }
}

std::string length_of(const train::Recipe& recipe) {
  return recipe.images > 0 ? format_count(recipe.images) + " images"
                           : fmt::format("{} epoch{}", recipe.epochs, recipe.epochs == 1 ? "" : "s");
}

void put_recipe(std::string& page, const Comparison& comparison) {
  const train::Recipe& recipe = comparison.recipe;
  page += "<table class=\"facts\">\n";
  put_fact(page, "data",
           fmt::format("{} at {}×{}", values_of(comparison, "dataset"), recipe.image_size, recipe.image_size));
  put_fact(page, "augmentation",
           fmt::format("{}{}", recipe.crop_padding > 0 ? fmt::format("crop by {} pixels ", recipe.crop_padding) : "",
                       recipe.flip ? "flip" : (recipe.crop_padding > 0 ? "" : "none")));
  put_fact(page, "length", length_of(recipe));
  put_fact(page, "batch size", values_of(comparison, "batch size"));
  put_fact(page, "optimizer",
           fmt::format("{}, learning rate {}, weight decay {} (not on norms and biases), momentum {}", recipe.opt,
                       values_of(comparison, "lr"), recipe.weight_decay,
                       recipe.sched == "onecycle" ? "0.95 to 0.85 and back" : fmt::format("{}", recipe.momentum)));
  put_fact(page, "schedule", recipe.sched);
  put_fact(page, "memory format", values_of(comparison, "format"));
  put_fact(page, "precision", values_of(comparison, "precision"));
  put_fact(page, "all of it", train::to_json(recipe));
  page += "</table>\n";
}

void put_environment(std::string& page, const Comparison& comparison) {
  const train::Environment& e = comparison.environment;
  page += "<table class=\"facts\">\n";
  put_fact(page, "date", comparison.date);
  put_fact(page, "command", comparison.command);
  put_fact(page, "Norma", e.norma);
  if (!e.device.empty()) {
    put_fact(page, "device", e.device);
  }
  put_fact(page, "CPU", fmt::format("{}, {} cores, {} threads used", e.cpu, e.cores, e.threads));
  put_fact(page, "instruction sets", fmt::format("{}", fmt::join(e.instruction_sets, " ")));
  put_fact(page, "memory", format_bytes(e.memory));
  put_fact(page, "system", e.system);
  put_fact(page, "compiler", e.compiler + ", " + e.build);
  for (const auto& [name, version] : e.libraries) {
    put_fact(page, name, version);
  }
  page += "</table>\n";
}

}  // namespace

std::string to_html(const Comparison& comparison) {
  const std::vector<Row> rows = summarize(comparison);
  const Colours colours(comparison);
  std::string page;
  page += fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Norma: comparison of norms</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<h1>What the norm costs, and what it buys</h1>\n"
      "<p class=\"soft\">{} of {} at {}×{}, on {}. Every network saw the same images in the same order. {}</p>\n",
      kStyle, escape_html(length_of(comparison.recipe)), escape_html(values_of(comparison, "dataset")),
      comparison.recipe.image_size, comparison.recipe.image_size, escape_html(comparison.environment.cpu),
      escape_html(comparison.date));
  if (const std::string answer = answer_of(comparison); !answer.empty()) {
    page += fmt::format("<p class=\"answer\">{}</p>\n", escape_html(answer));
  }
  put_table(page, rows, comparison);
  for (const std::string& note :
       {tax_note(comparison), accuracy_note(comparison), paired_note(comparison), tuning_note(comparison)}) {
    if (!note.empty()) {
      page += fmt::format("<p>{}</p>\n", escape_html(note));
    }
  }
  page += "<h2>Learning</h2>\n";
  put_loss_curves(page, comparison, colours);
  page += "<h2>Accuracy and speed</h2>\n";
  put_bars(page, rows, comparison, colours);
  page += telemetry_sections(named_telemetry(comparison));
  page += "<h2>What the columns mean</h2>\n";
  put_explanations(page);
  page += "<h2>Recipe</h2>\n";
  put_recipe(page, comparison);
  page += "<h2>Measured on</h2>\n";
  put_environment(page, comparison);
  page += "</body>\n</html>\n";
  return page;
}

}  // namespace norma::lab
