#include "lab/report/page.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace norma::lab {

namespace {

ResultCell tax_cell(const std::optional<Decision>& tax) {
  if (!tax) {
    return {"–"};
  }
  const std::string rounds = fmt::format("{} round{}", tax->pairs, tax->pairs == 1 ? "" : "s");
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
  Section section{.id = "results", .menu = "Results", .title = "Results", .blocks = {std::move(results)}};
  section.blocks.insert(section.blocks.end(), page.notes.begin(), page.notes.end());
  return section;
}

Section meaning_section() {
  return {
      .id = "meaning",
      .menu = "Columns",
      .title = "What the columns mean",
      .blocks = {Facts{
          .caption = "",
          .facts = {
              {"accuracy",
               "Share of the test images, none of which was trained on, whose most probable class is the right one."},
              {"train loss",
               "Mean cross-entropy, after training and in evaluation mode, on some images that were trained on, "
               "without augmentation: how well the network fits them. The test loss less this is what it loses on new "
               "images."},
              {"test loss", "Mean cross-entropy on the test images: it also counts how sure the network was."},
              {"img/s",
               "Training images per second, of the steps that the tax is from: with batch norm the batch size over the "
               "median time of a step, with any other norm that less the tax, and so is the interval below it. Where "
               "there are no such steps, or not all yet, of the run's steps, loading included."},
              {"tax",
               "Share of its throughput that the network loses when its batch norm is replaced by this norm; negative "
               "is faster. Training steps of all norms take turns for it, spread over the whole comparison, so that "
               "all meet the same moments of the machine: images per second of different runs do not."},
              {"tensors",
               "The most memory that tensors held at one time during training: parameters, gradients, optimizer, "
               "activations."},
              {"process", "The most memory that the whole process held during training, as the system counts it."},
              {"parameters", "Numbers that are trained."}}}}};
}

}  // namespace norma::lab
