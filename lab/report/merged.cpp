#include "lab/report/merged.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "data/json.h"
#include "lab/report/joined.h"
#include "lab/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace norma::lab {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "norma comparisons ";
constexpr int64_t kVersion = 1;

Page page_of(const Parts& parts) {
  std::vector<NamedComparison> named;
  named.reserve(parts.size());
  for (const Part& part : parts) {
    named.push_back({.name = part.name, .comparison = &part.comparison});
  }
  return Page(std::move(named));
}

/// The last `count` parts of a path: "a/run" of "/results/a/run" for 2.
std::string end_of(const std::filesystem::path& path, size_t count) {
  std::vector<std::string> names;
  for (const std::filesystem::path& name : path) {
    if (!name.empty() && name != "/") {
      names.push_back(name.string());
    }
  }
  std::string text;
  for (size_t i = names.size() - std::min(count, names.size()); i < names.size(); ++i) {
    text += (text.empty() ? "" : "/") + names[i];
  }
  return text.empty() ? "/" : text;
}

/// Distinct names, each as short as possible.
std::vector<std::string> names_of(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> names;
  for (const std::filesystem::path& folder : folders) {
    const auto length = static_cast<size_t>(std::distance(folder.begin(), folder.end()));
    std::string name;
    for (size_t count = 1; count <= std::max<size_t>(length, 1); ++count) {
      name = end_of(folder, count);
      const auto same = std::count_if(folders.begin(), folders.end(),
                                      [&](const std::filesystem::path& other) { return end_of(other, count) == name; });
      if (same == 1) {
        break;
      }
    }
    names.push_back(std::move(name));
  }
  return names;
}

bool same_comparison(const Comparison& a, const Comparison& b) {
  const auto settings_of_cells = [](const Comparison& comparison) {
    std::vector<Settings> settings(comparison.cells.begin(), comparison.cells.end());
    return settings;
  };
  return std::tie(a.date, a.command, a.environment.cpu, a.environment.memory) ==
             std::tie(b.date, b.command, b.environment.cpu, b.environment.memory) &&
         settings_of_cells(a) == settings_of_cells(b);
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
    check(std::none_of(parts.begin(), parts.end(), [&](const Part& other) { return other.name == part.name; }), place,
          "name: expected each once, got '{}' twice", excerpt(part.name));
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
      const auto taken = [&](const std::string& wanted) {
        return std::any_of(all.begin(), all.end(), [&](const Part& other) { return other.name == wanted; });
      };
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
      const auto known = std::find(all.heads.begin(), all.heads.end(), head);
      place = known != all.heads.end() ? known : all.heads.insert(place + 1, head);
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (Table::Row& own : tables[i].rows) {
      Table::Row& row = all.add(parts[i].name);
      row.cells.resize(all.heads.size());  // a comparison without an axis has nothing there
      for (size_t c = 0; c < own.cells.size(); ++c) {
        const auto head = std::find(all.heads.begin(), all.heads.end(), tables[i].heads[c]);
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
  Json list = Json::array();
  for (const Part& part : parts) {
    list.push_back({{"name", part.name}, {"comparison", Json::parse(to_json(part.comparison))}});
  }
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
