#include "lab/bench/benchmark.h"

#include "base/lists.h"
#include "core/tf32.h"
#include "lab/bench/spread.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace norma::lab::bench {

namespace {

using kernels::Conv2dCall;
using kernels::Conv2dCase;
using kernels::MatmulCase;

/// The name of an op's line: "conv2d" with a 3x3 kernel and stride 2 is "conv2d 3x3/2".
std::string label(const OpWork& work) {
  const auto* call = std::any_cast<Conv2dCall>(&work.call);
  if (call == nullptr) {
    return work.op;
  }
  const Conv2dCase& conv = call->conv;
  std::string text = fmt::format("{} {}x{}", work.op, conv.kh, conv.kw);
  if (conv.stride_h > 1) {
    text += fmt::format("/{}", conv.stride_h);
  }
  return conv.groups > 1 && conv.groups == conv.c ? text + " depthwise" : text;
}

bool is_product(const OpWork& work) {
  return std::any_cast<Conv2dCall>(&work.call) != nullptr || std::any_cast<MatmulCase>(&work.call) != nullptr;
}

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

std::string milliseconds_text(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}

}  // namespace

double Detail::outside() const {
  return step() - sum_of(lines, &OpLine::seconds);
}

Detail make_detail(const std::vector<OpRecord>& records, const StepParts& parts, const std::vector<double>& floors,
                   double copy_rate) {
  Detail detail{.parts = parts, .copy_rate = copy_rate};
  std::map<std::tuple<std::string, OpPass, std::string>, OpLine> lines;
  size_t next_floor = 0;
  for (const OpRecord& record : records) {
    const OpWork& work = record.work;
    const std::string name = label(work);
    OpLine& line = lines[{name, record.pass, work.implementation}];
    line.op = name;
    line.pass = record.pass;
    line.implementation = work.implementation;
    ++line.calls;
    line.seconds += record.seconds;
    line.bytes += work.bytes;
    line.flops += work.flops;
    if (is_product(work)) {
      const double floor = floors.at(next_floor++);
      line.floor += floor;
      detail.product_floor += floor;
    } else {
      line.floor += work.bytes / copy_rate;
      detail.moving_floor += work.bytes / copy_rate;
    }
  }
  detail.lines = mapped(lines, [](const auto& one) { return one.second; });
  std::ranges::stable_sort(detail.lines, [](const OpLine& a, const OpLine& b) { return a.seconds > b.seconds; });
  return detail;
}

Detail measure_detail(Step& step, ProductFloor& floor) {
  constexpr int kRounds = 5;
  const Tf32Guard tf32(step.precision().tf32);  // for the products alone, too
  Copy copy(bytes_beyond_caches(floor.device()), floor.device());
  copy.run();
  std::vector<std::vector<OpRecord>> records;
  std::vector<StepParts> parts;
  std::vector<double> totals;
  std::vector<std::vector<double>> floors;
  std::vector<double> floor_totals;
  std::vector<double> copies;
  // The three take turns, so that a slow moment of the machine meets all.
  for (int round = 0; round < kRounds; ++round) {
    {
      const OpProfile profile(floor.device());
      parts.push_back(step.run_parts());
      records.push_back(profile.records());
    }
    totals.push_back(parts.back().total());
    if (round == 0) {
      floor.run(product_calls(records.back()));  // finds the fastest ways
    }
    floors.push_back(floor.run(product_calls(records.back())));
    floor_totals.push_back(sum_of(floors.back()));
    for (int i = 0; i < 3; ++i) {
      floor.cache().clear();
      copies.push_back(copy.run());
    }
  }
  const size_t middle = median_index(totals);
  return make_detail(records[middle], parts[middle], floors[median_index(floor_totals)],
                     copy.bytes() / copies[median_index(copies)]);
}

std::string to_table(const Detail& detail) {
  Table table{.heads = {"op", "pass", "by", "calls", "ms", "share %", "GB", "GB/s", "GFLOP/s", "floor ms", "of floor"},
              .words = 3};
  double product_seconds = 0;
  double moving_seconds = 0;
  double bytes = 0;
  for (const OpLine& line : detail.lines) {
    table.add(line.op, to_string(line.pass), line.implementation, line.calls, milliseconds_text(line.seconds),
              fmt::format("{:.1f}", percent(line.seconds, detail.step())), fmt::format("{:.3f}", 1e-9 * line.bytes),
              line.is_product() ? "-" : fmt::format("{:.1f}", 1e-9 * line.bytes / line.seconds),
              line.is_product() ? fmt::format("{:.1f}", 1e-9 * line.flops / line.seconds) : "-",
              milliseconds_text(line.floor), fmt::format("{:.2f}", line.seconds / line.floor));
    (line.is_product() ? product_seconds : moving_seconds) += line.seconds;
    bytes += line.is_product() ? 0 : line.bytes;
  }
  table.rows.push_back({{"outside ops", "", "", "", milliseconds_text(detail.outside()),
                         fmt::format("{:.1f}", percent(detail.outside(), detail.step())), "", "", "", "", ""}});
  std::string text = to_text(table);
  const StepParts& parts = detail.parts;
  const auto line = [&](std::string_view what, double seconds, const std::string& remark) {
    text += fmt::format("{:<38}{:>11} ms {:>5.1f} %{}\n", what, milliseconds_text(seconds),
                        percent(seconds, detail.step()), remark.empty() ? "" : "  " + remark);
  };
  text += '\n';
  line("step", detail.step(), "");
  line("  forward", parts.forward, "");
  if (parts.backward > 0) {
    line("  backward", parts.backward, "");
    line("  optimizer", parts.optimizer, "");
  }
  line("= convolutions and products alone", detail.product_floor,
       fmt::format("here they took {} ms", milliseconds_text(product_seconds)));
  line("+ bytes of the others at the copy rate", detail.moving_floor,
       fmt::format("{:.3f} GB at {:.1f} GB/s; here they took {} ms", 1e-9 * bytes, 1e-9 * detail.copy_rate,
                   milliseconds_text(moving_seconds)));
  line("+ rest", detail.rest(), "");
  if (detail.product_floor > 0) {
    text += fmt::format("step / convolutions and products alone = {:.3f}\n", detail.step() / detail.product_floor);
  }
  return text;
}

}  // namespace norma::lab::bench
