#include "lab/report/section.h"

#include "base/error.h"
#include "base/quoting.h"

#include <nlohmann/json.hpp>

#include <ranges>

namespace norma::lab {

namespace {

using Values = nlohmann::json;

constexpr std::string_view kOp = "template";

std::string_view between(std::string_view text, size_t begin, std::string_view end) {
  const size_t stop = text.find(end, begin);
  check(stop != std::string_view::npos, kOp, "expected {} after '{}', got none", end, text.substr(begin, 20));
  return text.substr(begin, stop - begin);
}

bool is_nothing(const Values* value) {
  return value == nullptr || value->is_null() || *value == false || (value->is_string() && *value == "") ||
         (!value->is_primitive() && value->empty());
}

class Filler {
 public:
  explicit Filler(std::string_view text) : text_(text) {}

  void write_part(std::string_view name, const Values& values) { write_with(values, part(name)); }
  std::string result;

 private:
  [[nodiscard]] std::string_view part(std::string_view name) const {
    const std::string head = "{{=" + std::string(name) + "}}\n";
    const size_t begin = text_.find(head);
    check(begin != std::string_view::npos, kOp, "expected a part of the name '{}', got none", name);
    const size_t end = text_.find("{{=", begin + 1);
    return text_.substr(begin + head.size(), end == std::string_view::npos ? end : end - begin - head.size());
  }

  [[nodiscard]] const Values* of_innermost(std::string_view name) const {
    for (const Values* scope : scopes_ | std::views::reverse) {
      if (scope->is_object()) {
        const auto found = scope->find(std::string(name));
        return found == scope->end() ? nullptr : &*found;
      }
    }
    return nullptr;
  }

  [[nodiscard]] std::string value(std::string_view name) const {
    for (const Values* scope : scopes_ | std::views::reverse) {
      if (name == "." || (scope->is_object() && scope->contains(std::string(name)))) {
        const Values& found = name == "." ? *scope : *scope->find(std::string(name));
        return found.is_string() ? found.get<std::string>() : found.dump();
      }
    }
    fail(kOp, "expected a value for '{}', got none", name);
  }

  void write_with(const Values& value, std::string_view body) {
    scopes_.push_back(&value);
    write(body);
    scopes_.pop_back();
  }

  void write_section(char kind, std::string_view name, std::string_view body) {
    const Values* found = of_innermost(name);
    if (is_nothing(found) != (kind == '^')) {
      return;
    }
    if (kind == '^') {
      write(body);
    } else if (!found->is_array()) {
      write_with(*found, body);
    } else {
      for (const Values& one : *found) {
        write_with(one, body);
      }
    }
  }

  void write(std::string_view text) {
    for (size_t at = text.find("{{"); at != std::string_view::npos; at = text.find("{{")) {
      result += text.substr(0, at);
      const bool raw = text.substr(at).starts_with("{{{");
      std::string_view name = between(text, at + (raw ? 3 : 2), raw ? "}}}" : "}}");
      text.remove_prefix(at + name.size() + (raw ? 6 : 4));
      const char kind = name.empty() ? ' ' : name.front();
      if (kind == '#' || kind == '^') {
        name.remove_prefix(1);
        const std::string end = "{{/" + std::string(name) + "}}";
        const std::string_view body = between(text, 0, end);
        write_section(kind, name, body);
        text.remove_prefix(body.size() + end.size());
      } else if (kind == '>') {
        write(part(name.substr(1)));
      } else {
        result += raw ? value(name) : escape_html(value(name));
      }
    }
    result += text;
  }

  std::string_view text_;
  std::vector<const Values*> scopes_;  // the innermost last
};

}  // namespace

std::string fill(std::string_view text, std::string_view part, const nlohmann::json& values) {
  Filler filler(text);
  filler.write_part(part, values);
  return std::move(filler.result);
}

}  // namespace norma::lab
