#include "data/json.h"

#include "base/lists.h"

namespace norma::data {

namespace {

constexpr size_t kMaxReason = 200;

/// Cuts "[json.exception.parse_error.101] parse error at line 1, column 2: …" to "syntax error while parsing value - …"
/// with the place after it.
std::string reason_of(const nlohmann::json::exception& error) {
  std::string_view text = error.what();
  if (const size_t end = text.find("] "); end != std::string_view::npos) {
    text.remove_prefix(end + 2);
  }
  return excerpt(text, kMaxReason);
}

/// Builds a value from the parser's events. (nlohmann's parser with a callback looks at all siblings after each
/// object.)
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  Builder(std::string_view op, std::string_view source, int most_deep)
      : op_(op), source_(source), most_deep_(most_deep) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t /*count*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*count*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [place, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    check(is_new, op_, "{}: '{}': expected each key once, got it again", source_, excerpt(name));
    member_ = &place->second;
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const Json::exception& error) override {
    fail(op_, "{}: not JSON: {}", source_, reason_of(error));
  }

 private:
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json value) {
    check(open_.size() < static_cast<size_t>(most_deep_), op_,
          "{}: expected at most {} objects and lists in each other, got more", source_, most_deep_);
    Json& opened = place() = std::move(value);
    open_.push_back(&opened);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  /// Where the next value goes.
  Json& place() {
    if (open_.empty()) {
      return root_;
    }
    return open_.back()->is_array() ? open_.back()->emplace_back() : *member_;
  }

  std::string_view op_;
  std::string_view source_;
  int most_deep_;
  Json root_;
  std::vector<Json*> open_;  // an array does not grow while a value in it is open
  Json* member_ = nullptr;   // of the last key
};

}  // namespace

nlohmann::json parse_json(std::string_view op, std::string_view source, std::string_view text, int most_deep) {
  // The parser takes it for the end.
  check(text.find('\0') == std::string_view::npos, op, "{}: expected JSON, got a byte of 0 in it", source);
  Builder builder(op, source, most_deep);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent);
}

std::vector<double> json_numbers(std::string_view op, const nlohmann::json& object, const std::string& name) {
  return mapped(json_field<std::vector<std::optional<double>>>(op, object, name),
                [](const auto& number) { return number.value_or(std::numeric_limits<double>::quiet_NaN()); });
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
