#include "base/lists.h"
#include "data/json.h"
#include "lab/bench/benchmark.h"

#include "core/parallel.h"
#include "lab/report/table.h"
#include "session/environment.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace norma::lab::bench {

namespace {

double rounded(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}

double milliseconds(double seconds) {
  return rounded(1e3 * seconds, 3);
}

double megabytes(int64_t bytes) {
  return rounded(static_cast<double>(bytes) / 1e6, 1);
}

std::string format_name(const BenchRow& row) {
  return row.channels_last ? "channels_last" : "contiguous";
}

Json ops_of(const Detail& detail) {
  Json ops = Json::array();
  for (const OpLine& line : detail.lines) {
    Json op = {{"op", line.op},
               {"pass", to_string(line.pass)},
               {"implementation", line.implementation},
               {"calls", line.calls},
               {"time", milliseconds(line.seconds)},
               {"gbytes", rounded(1e-9 * line.bytes, 6)},
               {"floor", milliseconds(line.floor)}};
    if (line.is_product()) {
      op["gflops"] = rounded(1e-9 * line.flops, 6);
    }
    ops.push_back(std::move(op));
  }
  return ops;
}

void add_measured(Json& row, const BenchOptions& options, Mode mode, const Measured& m) {
  const std::string prefix = fmt::format("{}_", to_string(mode));
  const auto add = [&](std::string_view key, Json value) { row[prefix + std::string(key)] = std::move(value); };
  const auto add_parts = [&] {
    add("fwd_time", milliseconds(m.parts.forward));
    add("bwd_time", milliseconds(m.parts.backward));
    add("opt_time", milliseconds(m.parts.optimizer));
  };
  add("samples_per_sec", rounded(m.samples_per_second(), 2));
  add("step_time", milliseconds(m.step.median));
  add("batch_size", m.batch_size);
  add("img_size", options.recipe.image_size);
  if (mode == Mode::infer) {
    add("gmacs", rounded(m.gmacs, 2));
    add("macts", rounded(m.macts, 2));
  }
  add("step_time_min", milliseconds(m.step.min));
  add("step_time_mean", milliseconds(m.step.mean));
  add("step_time_max", milliseconds(m.step.max));
  if (!options.alternate) {
    add("peak_memory", megabytes(m.resident_growth));
    add("peak_rss", megabytes(m.peak_resident));
    add("peak_allocated", megabytes(m.peak_allocated));
  }
  if (m.graph_size > 0) {
    add("graph_size", m.graph_size);
  }
  if (options.group) {
    add("processes", options.group->size());
    add_parts();
    add("message_time", milliseconds(m.parts.messages));
    add("exposed_time", milliseconds(m.parts.exposed));
    const double hidden = m.parts.messages > 0 ? std::max(0.0, 1 - m.parts.exposed / m.parts.messages) : 0;
    add("hidden", rounded(100 * hidden, 1));
  }
  if (options.retry) {
    add("requested_batch_size", options.recipe.batch_size);
    add("retries", m.retries);
  }
  if (m.detail) {
    if (mode == Mode::train) {
      add_parts();
    }
    add("detail_step_time", milliseconds(m.detail->step()));
    add("product_floor", milliseconds(m.detail->product_floor));
    add("moving_floor", milliseconds(m.detail->moving_floor));
    add("rest", milliseconds(m.detail->rest()));
    add("copy_rate", rounded(1e-9 * m.detail->copy_rate, 2));
    add("ops", ops_of(*m.detail));
  }
}

/// All columns of a row, in order.
Json to_row(const Benchmark& benchmark, const BenchRow& row) {
  const BenchOptions& options = benchmark.options;
  Json json = {{"model", row.model}};
  for (const Mode mode : options.modes) {
    if (const auto& measured = row.measured(mode)) {
      add_measured(json, options, mode, *measured);
      const std::optional<NormTax> tax = norm_tax(benchmark, row, mode);
      if (tax && benchmark.rows.size() > 1) {
        const std::string key = fmt::format("{}_norm_tax", to_string(mode));
        json[key] = rounded(100 * tax->share, 2);
        if (tax->rounds && tax->rounds->sure) {
          json[key + "_low"] = rounded(100 * tax->rounds->low, 2);
          json[key + "_high"] = rounded(100 * tax->rounds->high, 2);
        }
      }
    }
  }
  if (row.parameters > 0) {
    json["param_count"] = rounded(1e-6 * static_cast<double>(row.parameters), 2);
  }
  json["norm"] = train::norm_label(row.norm, options.recipe);
  json["precision"] = options.recipe.precision;
  json["format"] = format_name(row);
  json["threads"] = num_threads();
  json["device"] = train::device_text();
  json["conv_layer"] = options.recipe.conv_layer;
  if (row.train) {
    json["opt"] = options.recipe.opt;
  }
  if (row.infer) {
    json["fold"] = options.fold;
  }
  if (!row.error.empty()) {
    json["error"] = row.error;
  }
  return json;
}

/// "0.4" or, for norms that took turns, "0.4 (-0.7 to 1.5)", in percent.
std::string tax_text(const std::optional<NormTax>& tax) {
  if (!tax) {
    return "-";
  }
  const std::string share = format_percent(tax->share);
  return tax->rounds && tax->rounds->sure
             ? fmt::format("{} ({} to {})", share, format_percent(tax->rounds->low), format_percent(tax->rounds->high))
             : share;
}

/// The throughput to sort by: of training if that was measured.
double speed(const BenchRow& row) {
  return row.train ? row.train->samples_per_second() : row.infer ? row.infer->samples_per_second() : 0;
}

std::vector<Json> rows_of(const Benchmark& benchmark) {
  std::vector<BenchRow> rows = benchmark.rows;
  std::ranges::stable_sort(rows, [](const BenchRow& a, const BenchRow& b) { return speed(a) > speed(b); });
  return mapped(rows, [&](const BenchRow& row) { return to_row(benchmark, row); });
}

double number(const Json& row, const char* key) {
  return row.at(key).get<double>();
}

double rate_of_each(const Json& row) {
  return number(row, "train_samples_per_sec") / number(row, "train_processes");
}

}  // namespace

std::optional<NormTax> norm_tax(const Benchmark& benchmark, const BenchRow& row, Mode mode) {
  const auto& mine = row.measured(mode);
  const auto batch = std::ranges::find_if(benchmark.rows, [&](const BenchRow& other) {
    return other.model == row.model && other.channels_last == row.channels_last && other.norm == "batch" &&
           other.measured(mode);
  });
  if (!mine || batch == benchmark.rows.end()) {
    return std::nullopt;
  }
  if (row.norm == batch->norm) {
    return NormTax{};
  }
  const auto& theirs = batch->measured(mode);
  if (!benchmark.options.alternate || mine->seconds.size() != theirs->seconds.size()) {
    return NormTax{.share = 1 - mine->samples_per_second() / theirs->samples_per_second(), .rounds = {}};
  }
  std::vector<double> lost;
  for (size_t round = 0; round < mine->seconds.size(); ++round) {
    lost.push_back(1 - theirs->seconds[round] / mine->seconds[round]);
  }
  const MedianInterval rounds = median_interval(lost);
  return NormTax{.share = rounds.median, .rounds = rounds};
}

std::string to_json(const Benchmark& benchmark) {
  return to_json(rows_of(benchmark));
}

std::string to_csv(const Benchmark& benchmark) {
  return to_csv(rows_of(benchmark));
}

std::string to_json(const std::vector<Json>& rows) {
  return data::json_text(rows.size() == 1 ? rows.front() : Json(rows), 4) + "\n";
}

std::string to_csv(const std::vector<Json>& rows) {
  Table table;
  for (const Json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (!value.is_array()) {  // the ops are in the JSON only
        add_once(table.heads, key);
      }
    }
  }
  for (const Json& row : rows) {
    std::vector<std::string>& line = table.rows.emplace_back().cells;
    for (const std::string& column : table.heads) {
      const Json value = row.value(column, Json(""));
      line.push_back(value.is_string() ? value.get<std::string>() : data::json_text(value));
    }
  }
  return lab::to_csv(table);
}

bool is_result(std::string_view beginning) {
  if (beginning.starts_with("model,")) {
    return beginning.substr(0, beginning.find('\n')).find(",norm,precision,format,threads") != std::string_view::npos;
  }
  const auto has = [&](std::string_view text) { return beginning.find(text) != std::string_view::npos; };
  const bool measured = has("_step_time_min\": ");
  const bool failed = has("\"precision\": ") && has("\"format\": ") && has("\"threads\": ");
  return (beginning.starts_with("{\n    \"model\": ") || beginning.starts_with("[\n    {\n        \"model\": ")) &&
         (measured || failed);
}

std::string to_table(const Benchmark& benchmark) {
  Table table{
      .heads = {"model", "norm", "format", "bench", "batch", "img/s", "tax %", "ms/step", "min", "max", "memory MB"},
      .words = 4};
  for (const BenchRow& row : benchmark.rows) {
    const std::string model = train::model_label(row.model, benchmark.options.recipe);
    const std::string norm = train::norm_label(row.norm, benchmark.options.recipe);
    for (const Mode mode : benchmark.options.modes) {
      Table::Row& line = table.add(model, norm, format_name(row), to_string(mode));
      const auto& m = row.measured(mode);
      if (!m) {
        line.remark = row.error.empty() ? "-" : row.error;
        continue;
      }
      line.add(m->batch_size, fmt::format("{:.2f}", m->samples_per_second()), tax_text(norm_tax(benchmark, row, mode)),
               fmt::format("{:.3f}", 1e3 * m->step.median), fmt::format("{:.3f}", 1e3 * m->step.min),
               fmt::format("{:.3f}", 1e3 * m->step.max),
               benchmark.options.alternate ? "-" : fmt::format("{:.0f}", megabytes(m->resident_growth)));
    }
  }
  return to_text(table);
}

void add_processes(std::vector<Json>& rows, std::string_view json) {
  Json row = Json::parse(json);  // which another process of this program wrote
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
