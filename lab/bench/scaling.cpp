#include "lab/bench/scaling.h"

#include "data/json.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <cmath>

namespace norma::lab::bench {

namespace {

/// The object in `text`, which another process of this program wrote, its keys in their order.
Json ordered(std::string_view text) {
  return Json::parse(text);
}

double number(const Json& row, const char* key) {
  return row.at(key).get<double>();
}

double rate_of_each(const Json& row) {
  return number(row, "train_samples_per_sec") / number(row, "train_processes");
}

}  // namespace

void add_processes(std::vector<Json>& rows, std::string_view json) {
  Json row = ordered(json);
  check(row.contains("train_processes") && row.contains("train_samples_per_sec"), "bench",
        "expected what processes have measured, got '{}'", excerpt(json));
  const double first = rate_of_each(rows.empty() ? row : rows.front());
  row["train_efficiency"] = std::round(1000 * rate_of_each(row) / first) / 10;
  rows.push_back(std::move(row));
}

std::string scaling_table(const std::vector<Json>& rows, bool per_process) {
  Table table{.heads = {"processes", "threads of each", "batch", "img/s", "efficiency %", "ms/step", "min", "max",
                        "messages ms", "hidden ms", "not hidden ms", "hidden %"}};
  for (const Json& row : rows) {
    const double messages = number(row, "train_message_time");
    const double exposed = number(row, "train_exposed_time");
    const auto text = [&](const char* key, int digits) { return fmt::format("{:.{}f}", number(row, key), digits); };
    const bool alone = row.at("train_processes") == 1;
    table.add(text("train_processes", 0), text("threads", 0), text("train_batch_size", 0),
              text("train_samples_per_sec", 2), text("train_efficiency", 1), text("train_step_time", 1),
              text("train_step_time_min", 1), text("train_step_time_max", 1),
              alone ? "-" : fmt::format("{:.1f}", messages),
              alone ? "-" : fmt::format("{:.1f}", std::max(0.0, messages - exposed)),
              alone ? "-" : fmt::format("{:.1f}", exposed), alone ? "-" : text("train_hidden", 0));
  }
  return fmt::format(
      "{}\n{}\nefficiency: images per second and process, as a share of those in the first line. messages: the time "
      "that\nmessages take in a step, waits for other processes included; what is not hidden of it comes after the "
      "backward\npass. Means of the processes.\n",
      to_text(table),
      per_process ? "The batch grows with the processes, each of which has the same one (weak scaling)."
                  : "The batch is the same for any number of processes, which share it (strong scaling).");
}

}  // namespace norma::lab::bench
