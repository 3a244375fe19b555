#include "lab/report/merged.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "data/json.h"
#include "lab/report/page.h"
#include "train/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace norma::lab {

namespace {

/// Takes into `whole` what `part` has of it. False: both have the same cell.
bool take(Comparison& whole, Comparison part) {
  bool fits = true;
  for (size_t i = 0; i < part.cells.size(); ++i) {
    if (is_here(part.cells[i])) {
      fits &= !is_here(whole.cells[i]);
      whole.cells[i] = std::move(part.cells[i]);
    }
  }
  std::ranges::move(part.timings, std::back_inserter(whole.timings));
  std::ranges::move(part.tunings, std::back_inserter(whole.tunings));
  for (SourceNetwork& source : part.sources) {
    const auto known = std::ranges::find(whole.sources, source.model, &SourceNetwork::model);
    if (known == whole.sources.end()) {
      whole.sources.push_back(std::move(source));
    } else if (known->sha256 != source.sha256) {
      known->sha256.clear();
    }
  }
  std::ranges::move(part.parts, std::back_inserter(whole.parts));
  return fits;
}

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "norma comparisons ";
constexpr int64_t kVersion = 1;

Page page_of(const Parts& parts) {
  return Page(mapped(parts, [](const Part& part) { return NamedComparison{part.name, &part.comparison}; }));
}

/// The last `count` parts of a path: "a/run" of "/results/a/run" for 2.
std::string end_of(const std::filesystem::path& path, size_t count) {
  std::vector<std::string> names;
  for (const std::filesystem::path& name : path) {
    if (!name.empty() && name != "/") {
      names.push_back(name.string());
    }
  }
  names.erase(names.begin(), names.end() - static_cast<std::ptrdiff_t>(std::min(count, names.size())));
  return names.empty() ? "/" : fmt::format("{}", fmt::join(names, "/"));
}

/// Distinct names, each as short as possible.
std::vector<std::string> names_of(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> names;
  for (const std::filesystem::path& folder : folders) {
    const auto length = static_cast<size_t>(std::distance(folder.begin(), folder.end()));
    std::string name;
    for (size_t count = 1; count <= std::max<size_t>(length, 1); ++count) {
      name = end_of(folder, count);
      const auto same = std::ranges::count_if(
          folders, [&](const std::filesystem::path& other) { return end_of(other, count) == name; });
      if (same == 1) {
        break;
      }
    }
    names.push_back(std::move(name));
  }
  return names;
}

bool same_cells(const Comparison& a, const Comparison& b) {
  const auto settings = [](const Cell& cell) -> const Settings& { return cell; };
  return std::ranges::equal(a.cells, b.cells, {}, settings, settings);
}

bool same_comparison(const Comparison& a, const Comparison& b) {
  return std::tie(a.date, a.command, a.environment.cpu, a.environment.memory) ==
             std::tie(b.date, b.command, b.environment.cpu, b.environment.memory) &&
         same_cells(a, b);
}

bool is_one(const Parts& parts) {
  return parts.size() == 1 && parts.front().name.empty();
}

/// True iff parts of a divided comparison are missing.
bool is_incomplete(const Parts& parts) {
  if (!is_one(parts)) {
    return false;
  }
  const Comparison& comparison = parts.front().comparison;
  return static_cast<int64_t>(comparison.parts.size()) < comparison.part_count;
}

/// The one comparison that was divided into these.
Parts join(const std::vector<std::filesystem::path>& folders, std::vector<Parts> reports) {
  std::vector<std::string> names;
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < reports.size(); ++i) {
    check(is_one(reports[i]), "report", "'{}' is no part of a comparison: merge the parts first, without it",
          folders[i].string());
    names.push_back(folders[i].string());
    comparisons.push_back(std::move(reports[i].front().comparison));
  }
  Parts one(1);
  one.front().comparison = joined(names, std::move(comparisons));
  return one;
}

}  // namespace

std::string plan_difference(const Comparison& a, const Comparison& b) {
  train::Recipe recipe = b.recipe;
  recipe.data_dir = a.recipe.data_dir;  // each machine has the data where it has them
  if (!a.initial_sha256.empty() && a.initial_sha256 == b.initial_sha256) {
    recipe.initial_checkpoint = a.recipe.initial_checkpoint;
  }
  if (const std::vector<std::string> lines = train::differences(a.recipe, recipe); !lines.empty()) {
    return lines.front();
  }
  if (!same_cells(a, b)) {
    return fmt::format("models, norms, seeds or other axes, {} runs → {}", a.cells.size(), b.cells.size());
  }
  if (a.initial_sha256 != b.initial_sha256) {
    return "contents of the file of initial-checkpoint";
  }
  if (a.source_classes != b.source_classes) {
    return fmt::format("classes of the networks that runs start from {} → {}", fmt::join(a.source_classes, ","),
                       fmt::join(b.source_classes, ","));
  }
  const std::optional<bool> exact = a.environment.exact_convolutions;
  if (exact && b.environment.exact_convolutions && exact != b.environment.exact_convolutions) {
    return *exact ? "convolutions exact → fast" : "convolutions fast → exact";
  }
  if (a.environment.processes != b.environment.processes) {  // by which batch norms have other statistics
    return fmt::format("number of processes {} → {}", a.environment.processes, b.environment.processes);
  }
  if (a.tune_lr != b.tune_lr) {
    return fmt::format("tune-lr {} → {}", a.tune_lr, b.tune_lr);
  }
  if (a.timing_rounds != b.timing_rounds) {
    return fmt::format("timing-rounds {} → {}", a.timing_rounds, b.timing_rounds);
  }
  return a.part_count == b.part_count ? "" : fmt::format("number of parts {} → {}", a.part_count, b.part_count);
}

Comparison joined(const std::vector<std::string>& names, std::vector<Comparison> parts) {
  std::map<int64_t, std::string> holders;
  for (size_t i = 0; i < parts.size(); ++i) {
    check(parts[i].part_count > 0, "report", "'{}' is no part of a comparison: merge the parts first, without it",
          names[i]);
    const std::string difference = plan_difference(parts.front(), parts[i]);
    check(difference.empty(), "report", "'{}' and '{}' are parts of different plans: {}", names.front(), names[i],
          difference);
    for (const PartOrigin& origin : parts[i].parts) {
      const auto [holder, is_new] = holders.emplace(origin.number, names[i]);
      check(is_new, "report", "'{}' and '{}' both hold part {} of {}: leave one of them out", holder->second, names[i],
            origin.number, parts[i].part_count);
    }
  }
  Comparison whole = std::move(parts.front());
  bool fits = true;
  for (size_t i = 1; i < parts.size(); ++i) {
    fits &= take(whole, std::move(parts[i]));
  }
  std::ranges::sort(whole.parts, {}, &PartOrigin::number);
  fits &= static_cast<int64_t>(whole.parts.size()) < whole.part_count || std::ranges::all_of(whole.cells, is_here);
  std::set<std::string> versions;
  for (const PartOrigin& origin : whole.parts) {
    versions.insert(origin.environment.norma);
  }
  check(fits, "report", "the parts were dealt out in different ways; they were run by Norma {}",
        fmt::join(versions, ", "));
  const PartOrigin& first = whole.parts.front();
  whole.environment = first.environment;
  whole.command = first.command;
  whole.date = first.date;
  // In the order of an undivided comparison.
  const auto first_cell = [&](const auto& is_of) {
    return std::ranges::find_if(whole.cells, is_of) - whole.cells.begin();
  };
  std::ranges::stable_sort(whole.timings, {}, [&](const Timing& timing) {
    return first_cell([&](const Cell& cell) { return timing_group(cell) == timing.group; });
  });
  std::ranges::stable_sort(whole.tunings, {}, [&](const Tuning& tuning) {
    return first_cell([&](const Cell& cell) { return same_but_seed(cell, tuning.settings); });
  });
  return whole;
}

Parts parts_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the report", text);
  const auto format = data::json_field<std::string>(where, json, "format");
  if (!format.starts_with(kFormat)) {
    Parts parts(1);
    parts.front().comparison = comparison_from_json(text, where);
    return parts;
  }
  version_of(format, kFormat, kVersion, where);
  check(json.contains("comparisons") && json["comparisons"].is_array() && json["comparisons"].size() > 1, where,
        "comparisons: expected a list of two or more");
  Parts parts;
  for (const nlohmann::json& one : json["comparisons"]) {
    const std::string place = fmt::format("{}: comparison {}", where, parts.size() + 1);
    Part part;
    part.name = data::json_field<std::string>(place, one, "name");
    check(!part.name.empty(), place, "name: expected one, got an empty text");
    check(!is_in(parts, part.name, &Part::name), place, "name: expected each once, got '{}' twice", excerpt(part.name));
    check(one.contains("comparison"), place, "comparison: missing");
    part.comparison = comparison_from_json(data::json_text(one["comparison"]), place);
    parts.push_back(std::move(part));
  }
  return parts;
}

Parts merged(const std::vector<std::filesystem::path>& folders, std::vector<Parts> reports) {
  if (std::ranges::any_of(reports, is_incomplete)) {
    return join(folders, std::move(reports));
  }
  const std::vector<std::string> names = names_of(folders);
  Parts all;
  std::vector<std::string> from;  // the name of each part for people
  for (size_t i = 0; i < reports.size(); ++i) {
    for (Part& part : reports[i]) {
      for (size_t other = 0; other < all.size(); ++other) {
        check(!same_comparison(all[other].comparison, part.comparison), "report",
              "'{}' and '{}' hold the same comparison, begun {}: leave one of them out", from[other],
              folders[i].string(), part.comparison.date);
      }
      std::string name = part.name.empty() ? names[i] : part.name;
      const auto taken = [&](const std::string& wanted) { return is_in(all, wanted, &Part::name); };
      if (taken(name)) {
        name = fmt::format("{}/{}", names[i], name);
      }
      for (int number = 2; taken(name); ++number) {
        name = fmt::format("{}/{} {}", names[i], part.name, number);
      }
      all.push_back({.name = std::move(name), .comparison = std::move(part.comparison)});
      from.push_back(folders[i].string());
    }
  }
  check(all.size() > 1, "report", "folders: expected two comparisons or more to merge, got {}", all.size());
  return all;
}

std::string to_table(const Parts& parts) {
  std::string text;
  for (const Part& part : parts) {
    text += part.name.empty() ? "" : fmt::format("{}{}:\n", text.empty() ? "" : "\n", part.name);
    text += to_table(part.comparison);
  }
  return text;
}

std::string to_csv(const Parts& parts) {
  if (is_one(parts)) {
    return to_csv(parts.front().comparison);
  }
  Table all{.heads = {"comparison"}};
  std::vector<Table> tables;
  for (const Part& part : parts) {
    tables.push_back(cell_table(part.comparison));
    auto place = all.heads.begin();  // a head that is new stands after the one before it
    for (const std::string& head : tables.back().heads) {
      const auto known = std::ranges::find(all.heads, head);
      place = known != all.heads.end() ? known : all.heads.insert(place + 1, head);
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (Table::Row& own : tables[i].rows) {
      Table::Row& row = all.add(parts[i].name);
      row.cells.resize(all.heads.size());  // a comparison without an axis has nothing there
      for (size_t c = 0; c < own.cells.size(); ++c) {
        const auto head = std::ranges::find(all.heads, tables[i].heads[c]);
        row.cells[static_cast<size_t>(head - all.heads.begin())] = std::move(own.cells[c]);
      }
    }
  }
  return to_csv(all);
}

std::string to_json(const Parts& parts) {
  if (is_one(parts)) {
    return to_json(parts.front().comparison);
  }
  Json list = mapped(parts, [](const Part& part) {
    return Json{{"name", part.name}, {"comparison", Json::parse(to_json(part.comparison))}};
  });
  return data::json_text(Json{{"format", fmt::format("{}{}", kFormat, kVersion)}, {"comparisons", std::move(list)}},
                         1) +
         "\n";
}

std::string to_html(const Parts& parts) {
  return to_html(document_of(page_of(parts)));
}

std::string to_markdown(const Parts& parts) {
  return to_markdown(document_of(page_of(parts)));
}

void write_report(const Parts& parts, const train::HeldFolder& folder) {
  folder.write_text("results.csv", to_csv(parts));
  folder.write_text("report.html", to_html(parts));
  folder.write_text("report.md", to_markdown(parts));
  folder.write_text("results.json", to_json(parts));
}

}  // namespace norma::lab
