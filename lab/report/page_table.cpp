#include "core/quoting.h"
#include "lab/report/page.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <array>

namespace norma::lab {

namespace {

constexpr std::array<std::string_view, 8> kHeads = {"accuracy", "train loss", "test loss", "img/s",
                                                    "tax",      "tensors",    "process",   "parameters"};
constexpr size_t kTax = 4;

std::string cell(size_t column, std::string_view text, std::string_view aside = "") {
  return fmt::format("<td role=\"cell\" data-head=\"{}\">{}{}</td>", kHeads[column], escape_html(text),
                     aside.empty() ? "" : fmt::format("<span class=\"aside\">{}</span>", escape_html(aside)));
}

std::string tax_cell(const std::optional<Decision>& tax) {
  if (!tax) {
    return cell(kTax, "–");
  }
  const std::string rounds = fmt::format("{} round{}", tax->pairs, tax->pairs == 1 ? "" : "s");
  const std::string median = format_percent(tax->difference) + " %";
  const std::string interval = fmt::format("{} to {}", format_percent(tax->low), format_percent(tax->high));
  switch (tax->state) {
    case Decision::State::waiting:
      return cell(kTax, "not known yet", fmt::format("{} of {} rounds", tax->pairs, tax->planned));
    case Decision::State::unknown: return cell(kTax, "not known", "after " + rounds);
    case Decision::State::none_found:
      return cell(kTax, "none found", fmt::format("{} ({}), {}", median, interval, rounds));
    case Decision::State::found: break;
  }
  return cell(kTax, median, fmt::format("{}, {}", interval, rounds));
}

void put_row(std::string& html, const PageRow& page_row) {
  const Row& row = page_row.row;
  html += fmt::format("<tr role=\"row\"><th scope=\"row\" role=\"rowheader\" class=\"text\">{}</th>",
                      escape_html(page_row.label));
  if (row.finished == 0) {
    html += fmt::format("<td role=\"cell\" class=\"problem\" colspan=\"{}\">{}</td></tr>\n", kHeads.size(),
                        escape_html(row.problem));
    return;
  }
  html += cell(0, format_spread(row.accuracy, 2, 100) + " %",
               row.accuracy_difference ? "to reference " + format_difference(row.accuracy_difference) : "");
  html += cell(1, row.fit_loss ? format_spread(*row.fit_loss, 4) : "–");
  html += cell(2, format_spread(row.loss, 4));
  html += cell(3, format_spread(row.images_per_second, 1));
  html += tax_cell(row.tax);
  html += cell(5, format_bytes(row.peak_bytes));
  html += cell(6, row.peak_resident > 0 ? format_bytes(row.peak_resident) : "–");
  html += cell(7, format_count(row.parameters)) + "</tr>\n";
  if (!row.problem.empty()) {
    html += fmt::format(
        "<tr role=\"row\"><td role=\"cell\" class=\"problem\" colspan=\"{}\">{}: {} of {} seeds; {}</td></tr>\n",
        kHeads.size() + 1, escape_html(page_row.label), row.finished, row.seeds, escape_html(row.problem));
  }
}

}  // namespace

std::string results_section(const Page& page) {
  std::string html = section_head("results", "Results");
  // The elements' own roles are repeated, since the layout as cards on a phone would lose them.
  html +=
      "<div class=\"wide\"><table class=\"results\" role=\"table\">\n"
      "<caption>Each norm in each network. After ± stands the standard deviation over the seeds.</caption>\n"
      "<thead role=\"rowgroup\"><tr role=\"row\"><th scope=\"col\" role=\"columnheader\" class=\"text\">norm</th>";
  for (const std::string_view head : kHeads) {
    html += fmt::format("<th scope=\"col\" role=\"columnheader\">{}</th>", head);
  }
  html += "</tr></thead>\n";
  for (const PageGroup& group : page.groups) {
    html += fmt::format(
        "<tbody role=\"rowgroup\"><tr role=\"row\" class=\"first\"><th scope=\"rowgroup\" role=\"rowheader\" "
        "class=\"text\" colspan=\"{}\">{}</th></tr>\n",
        kHeads.size() + 1, escape_html(group.label));
    for (const PageRow& row : group.rows) {
      put_row(html, row);
    }
    html += "</tbody>\n";
  }
  return html + "</table></div>\n";
}

std::string meaning_section() {
  return section_head("meaning", "What the columns mean") + R"html(<dl class="meaning">
<dt>accuracy</dt><dd>Share of the test images, none of which was trained on, whose most probable class is the right one.</dd>
<dt>train loss</dt><dd>Mean cross-entropy, after training and in evaluation mode, on some images that were trained on, without augmentation: how well the network fits them. The test loss less this is what it loses on new images.</dd>
<dt>test loss</dt><dd>Mean cross-entropy on the test images: it also counts how sure the network was.</dd>
<dt>img/s</dt><dd>Training images per second: the batch size over the median time of the training steps that the tax is from. Where there are none, or not all yet, over that of the run's steps, loading included.</dd>
<dt>tax</dt><dd>Share of its throughput that the network loses when its batch norm is replaced by this norm; negative is faster. Training steps of all norms take turns for it, spread over the whole comparison, so that all meet the same moments of the machine: images per second of different runs do not.</dd>
<dt>tensors</dt><dd>The most memory that tensors held at one time during training: parameters, gradients, optimizer, activations.</dd>
<dt>process</dt><dd>The most memory that the whole process held during training, as the system counts it.</dd>
<dt>parameters</dt><dd>Numbers that are trained.</dd>
</dl>
)html";
}

}  // namespace norma::lab
