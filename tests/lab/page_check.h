#pragma once

#include <fmt/format.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace norma::test {

/// The attributes of a tag: name to value.
inline std::map<std::string, std::string> attributes_of(const std::string& tag) {
  static const std::regex attribute("([\\w-]+)=\"([^\"]*)\"");
  std::map<std::string, std::string> attributes;
  for (std::sregex_iterator i(tag.begin(), tag.end(), attribute), end; i != end; ++i) {
    attributes[(*i)[1]] = (*i)[2];
  }
  return attributes;
}

/// What is wrong with a page that has no script: elements that do not close, ids that come twice or are nowhere, levels
/// of headings, tables without scope or caption, drawings without names, references to elsewhere.
inline std::vector<std::string> faults_of_page(const std::string& page) {
  std::vector<std::string> faults;
  const auto fault = [&](const std::string& text) { faults.push_back(text); };
  static const std::set<std::string> kVoid = {"meta", "!doctype", "input"};
  std::vector<std::string> open;
  std::set<std::string> ids;
  std::vector<std::string> referred;
  int level = 0;
  bool in_head_of_table = false;
  bool svg_needs_title = false;
  bool table_needs_caption = false;
  std::map<std::string, int> seen;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    if (end == std::string::npos) {
      fault("a tag without an end");
      break;
    }
    const std::string tag = page.substr(at + 1, end - at - 1);
    std::string name = tag.substr(tag[0] == '/' ? 1 : 0);
    name = name.substr(0, name.find_first_of(" \n/"));
    for (char& c : name) {
      c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) {
        fault(fmt::format("</{}> where <{}> is open", name, open.empty() ? "nothing" : open.back()));
      }
      if (!open.empty()) {
        open.pop_back();
      }
      in_head_of_table &= name != "thead";
      at = end;
      continue;
    }
    ++seen[name];
    if (svg_needs_title && name != "title") {
      fault("a drawing without a title");
    }
    svg_needs_title = false;
    if (table_needs_caption && name != "caption") {
      fault("a table without a caption");
    }
    table_needs_caption = name == "table";
    const auto attributes = attributes_of(tag);
    const auto value = [&](const char* key) {
      const auto found = attributes.find(key);
      return found == attributes.end() ? std::string() : found->second;
    };
    if (const std::string id = value("id"); !id.empty() && !ids.insert(id).second) {
      fault(fmt::format("id {} twice", id));
    }
    for (const char* key : {"aria-labelledby", "href"}) {
      const std::string refers = value(key);
      for (size_t begin = 0; begin < refers.size();) {
        const size_t stop = std::min(refers.find(' ', begin), refers.size());
        referred.push_back(refers.substr(begin, stop - begin));
        begin = stop + 1;
      }
    }
    if (name.size() == 2 && name[0] == 'h' && std::isdigit(static_cast<unsigned char>(name[1])) != 0) {
      const int now = name[1] - '0';
      if (now > level + 1) {
        fault(fmt::format("a heading of level {} after one of {}", now, level));
      }
      level = now;
    }
    in_head_of_table |= name == "thead";
    if (name == "th" && value("scope") != (in_head_of_table ? "col" : value("colspan").empty() ? "row" : "rowgroup")) {
      fault("a head of a table with the scope '" + value("scope") + "'");
    }
    if (name == "svg" && value("aria-hidden") != "true") {
      svg_needs_title = true;
      if (value("role") != "img" || value("aria-labelledby").empty()) {
        fault("a drawing that is no image with a name");
      }
    }
    if (name == "script" || name == "link" || name == "img" || name == "iframe" || attributes.contains("src") ||
        std::regex_search(tag, std::regex("\\son\\w+="))) {
      fault("what a page without scripts and files of its own does not have: <" + tag + ">");
    }
    if (name == "path" || name == "rect") {  // empty, and closed by itself or by </path>
      if (!tag.ends_with("/")) {
        open.push_back(name);
      }
    } else if (!kVoid.contains(name)) {
      open.push_back(name);
    }
    if (name == "style") {
      const size_t stop = page.find("</style>", end);
      const std::string css = page.substr(end, stop - end);
      for (const char* outside : {"url(", "@import", "http"}) {
        if (css.find(outside) != std::string::npos) {
          fault(fmt::format("{} in the style sheet", outside));
        }
      }
      at = stop - 1;
      continue;
    }
    at = end;
  }
  for (const std::string& one : open) {
    fault(fmt::format("<{}> stays open", one));
  }
  for (const std::string& id : referred) {
    if (!ids.contains(id[0] == '#' ? id.substr(1) : id)) {
      fault(fmt::format("'{}' is nowhere on the page", id));
    }
  }
  for (const char* landmark : {"header", "nav", "main", "footer", "h1", "title"}) {
    if (seen[landmark] < 1) {
      fault(fmt::format("no <{}>", landmark));
    }
  }
  return faults;
}

}  // namespace norma::test
