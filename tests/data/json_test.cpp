#include "data/json.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_json("op", "source", text); });
}

template <class T>
std::string type_error(const char* text) {
  return error_of([&] { json_as<T>("op", "name", parse_json("op", "source", text)); });
}

}  // namespace

TEST_CASE("json: as deep as 32 lists and objects, and no deeper") {
  CHECK(parse_json("op", "source", nested(32)).is_array());
  const std::string too_deep = "op: source: expected at most 32 objects and lists in each other, got more";
  CHECK(parse_error(nested(33)) == too_deep);
  CHECK(parse_error(nested(1'000'000)) == too_deep);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += "{\"a\":";
  }
  CHECK(parse_error(objects) == too_deep);
  CHECK(parse_json("op", "source", "{\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\": 1}").size() == 1);
}

TEST_CASE("json: reading takes a time proportional to the text") {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) {  // took minutes where each object looked at all that were before it
    text += fmt::format("{}\"{}\":{{\"a\":[{{}}]}}", i == 0 ? "" : ",", i);
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(parse_json("op", "source", text + "}").size() == 200'000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("json: no key twice in one object") {
  CHECK(parse_error(R"({"a": 1, "b": 2, "a": 1})") == "op: source: 'a': expected each key once, got it again");
  CHECK(parse_error(R"([{"a": {"b": 1, "c": {}, "b": 2}}])") ==
        "op: source: 'b': expected each key once, got it again");
  CHECK(parse_json("op", "source", R"({"a": {"a": {"a": 1}, "b": {"a": 2}}, "b": [{"a": 3}, {"a": 4}]})").size() == 2);
}

TEST_CASE("json: errors of bounded length that quote no control characters") {
  CHECK(parse_error("{\"a\": tru}") ==
        "op: source: not JSON: parse error at line 1, column 10: syntax error while parsing value - invalid literal; "
        "last read: '\"a\": tru}'");
  CHECK(parse_error("").starts_with("op: source: not JSON: "));
  const std::string text = parse_error("[\"" + std::string(1'000'000, 'x') + "\x1B[31m");
  CHECK(text.size() < 300);
  CHECK(text.find('\x1B') == std::string::npos);
  CHECK(json_excerpt(parse_json("op", "source", "[1,2,\"three\"]")) == "[1,2,\"three\"]");
  CHECK(json_excerpt(parse_json("op", "source", "[1" + std::string(100, ' ') + ",2]")) == "[1,2]");
  CHECK(json_excerpt(nlohmann::json(std::string(500, 'x'))) == '"' + std::string(99, 'x') + "…");
  CHECK(json_excerpt(nlohmann::json(std::vector<int>(21))) == "a list of 21 items");
}

TEST_CASE("json: values are taken as what they are") {
  const auto value = [](const char* text) { return parse_json("op", "source", text); };
  CHECK(json_as<int64_t>("op", "name", value("-9223372036854775808")) == std::numeric_limits<int64_t>::min());
  CHECK(json_as<uint64_t>("op", "name", value("18446744073709551615")) == std::numeric_limits<uint64_t>::max());
  CHECK(json_as<double>("op", "name", value("3")) == 3);
  CHECK(json_as<bool>("op", "name", value("true")));
  CHECK(json_as<std::optional<double>>("op", "name", value("null")) == std::nullopt);
  CHECK(json_as<std::optional<double>>("op", "name", value("0.5")) == 0.5);
  CHECK(json_as<std::vector<std::string>>("op", "name", value("[\"a\"]")) == std::vector<std::string>{"a"});
  CHECK(json_field<std::string>("op", value("{\"a\":\"b\"}"), "a") == "b");

  CHECK(type_error<int64_t>("3.7") == "op: name: expected a whole number, got 3.7");
  CHECK(type_error<int64_t>("3.0") == "op: name: expected a whole number, got 3.0");
  CHECK(type_error<int64_t>("true") == "op: name: expected a whole number, got true");
  CHECK(type_error<int64_t>("9223372036854775808") == "op: name: expected a whole number, got 9223372036854775808");
  CHECK(type_error<uint64_t>("-1") == "op: name: expected a whole number of at least 0, got -1");
  CHECK(type_error<double>("true") == "op: name: expected a number, got true");
  CHECK(type_error<double>("\"1\"") == "op: name: expected a number, got \"1\"");
  CHECK(type_error<bool>("1") == "op: name: expected true or false, got 1");
  CHECK(type_error<std::string>("null") == "op: name: expected a text, got null");
  CHECK(type_error<std::optional<int64_t>>("0.5") == "op: name: expected a whole number, got 0.5");
  CHECK(type_error<std::vector<double>>("[1,null]") == "op: name: expected a number, got null");
  CHECK(type_error<std::vector<double>>("{}") == "op: name: expected a list, got {}");
  CHECK(type_error<std::map<std::string, std::string>>("{\"a\":1}") == "op: name.a: expected a text, got 1");
  CHECK(error_of([&] { json_field<bool>("op", value("{}"), "a"); }) == "op: a: missing");
  CHECK(error_of([&] { json_field<bool>("op", value("[]"), "a"); }) == "op: expected an object, got []");
}

TEST_CASE("json: a byte of 0 is no end") {
  CHECK(error_of([] { parse_json("op", "f", std::string_view("{}\0garbage", 10)); }) ==
        "op: f: expected JSON, got a byte of 0 in it");
}
