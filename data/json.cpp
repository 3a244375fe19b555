#include "data/json.h"

#include <array>
#include <set>

namespace norma::data {

namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxReason = 200;

/// Cuts "[json.exception.parse_error.101] parse error at line 1, column 2: …" to "syntax error while parsing value - …"
/// with the place behind it.
std::string reason_of(const nlohmann::json::exception& error) {
  std::string_view text = error.what();
  if (const size_t end = text.find("] "); end != std::string_view::npos) {
    text.remove_prefix(end + 2);
  }
  return excerpt(text, kMaxReason);
}

}  // namespace

nlohmann::json parse_json(std::string_view op, std::string_view source, std::string_view text,
                          const JsonKeyVisitor& on_key) {
  using Event = nlohmann::json::parse_event_t;
  std::array<std::set<std::string>, kMaxDepth + 1> keys;  // of the object that is open at each depth
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (event == Event::object_start || event == Event::array_start) {
      check(depth < kMaxDepth, op, "{}: expected at most {} objects and lists in each other, got more", source,
            kMaxDepth);
      keys[static_cast<size_t>(depth) + 1].clear();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (on_key) {
        on_key(key, depth);
      }
      check(keys[static_cast<size_t>(depth)].insert(key).second, op, "{}: '{}': expected each key once, got it again",
            source, excerpt(key));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& error) {
    fail(op, "{}: not JSON: {}", source, reason_of(error));
  }
}

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent);
}

std::vector<double> json_numbers(std::string_view op, const nlohmann::json& object, const std::string& name) {
  std::vector<double> numbers;
  for (const std::optional<double>& number : json_field<std::vector<std::optional<double>>>(op, object, name)) {
    numbers.push_back(number.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  return numbers;
}

std::string json_excerpt(const nlohmann::json& value) {
  constexpr size_t kMaxItems = 20;
  if ((value.is_array() || value.is_object()) && value.size() > kMaxItems) {
    return fmt::format("{} of {} items", value.is_array() ? "a list" : "an object", value.size());
  }
  // Broken UTF-8 cannot come from the parser, but must not throw here either.
  return excerpt(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace norma::data
