#include "base/toml_lines.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

using namespace norma;
using norma::test::error_of;

namespace {

constexpr TomlForm kForm{.line = "name = value", .key = "name"};

std::vector<TomlLine> lines_of(std::string_view text, const TomlForm& form = kForm) {
  return parse_toml_lines("op", text, "f", form);
}

std::string error_in(std::string_view text, const TomlForm& form = kForm) {
  return error_of([&] { lines_of(text, form); });
}

}  // namespace

TEST_CASE("toml lines: values of each type, in the order of the file, with their places") {
  const std::vector<TomlLine> lines = lines_of(
      "# a comment\nz = true\n \"a.b\" = 'text'\n\nwhole = -7 # seven\nnumber = 1e-3\nday = 1979-05-27\nlist = [1, "
      "0.5,\n"
      "  \"c\", false, [2]]\nnone = []\n");
  REQUIRE(lines.size() == 7);
  CHECK(lines[0].key == "z");
  CHECK(std::get<bool>(lines[0].value));
  CHECK(lines[1].key == "a.b");
  CHECK(std::get<std::string>(lines[1].value) == "text");
  CHECK(lines[1].key_place == "f:3:2");
  CHECK(lines[1].value_place == "f:3:10");
  CHECK(lines[1].line == 3);
  CHECK(std::get<int64_t>(lines[2].value) == -7);
  CHECK(std::get<double>(lines[3].value) == 1e-3);
  CHECK(lines[4].key == "day");
  CHECK(std::holds_alternative<std::monostate>(lines[4].value));
  CHECK_FALSE(lines[4].list);
  REQUIRE(lines[5].list);
  const std::vector<TomlScalar> expected = {int64_t{1}, 0.5, std::string("c"), false, std::monostate()};
  CHECK((*lines[5].list == expected));
  CHECK(std::holds_alternative<std::monostate>(lines[5].value));
  REQUIRE(lines[6].list);
  CHECK(lines[6].list->empty());
  CHECK(lines[6].line == 10);
  CHECK(lines_of("").empty());
}

TEST_CASE("toml lines: tables are refused, however they are written") {
  CHECK(error_in("a = 1\n  [table]\n") == "op: f:2: expected a line name = value, got '[table]'");
  CHECK(error_in("[[list]]") == "op: f:1: expected a line name = value, got '[[list]]'");
  CHECK(error_in("\xEF\xBB\xBF[{}]") == "op: f:1: expected a line name = value, got '[{}]'");
  CHECK(lines_of("\xEF\xBB\xBF"
                 "a = 1")
            .size() == 1);
  CHECK(error_in("a.b = 1") == "op: f:1: expected a line name = value, got 'a.b = 1'");
  TomlForm form = kForm;
  form.dotted_keys = true;
  const std::vector<TomlLine> lines = lines_of("a.0.\"b.c\" = 1\nd = 2", form);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].key == "a");
  CHECK(lines[0].dotted_key == "a.0.b.c");
  CHECK(lines[1].dotted_key.empty());
}

TEST_CASE("toml lines: what is twice, too long or no TOML is named with its place") {
  CHECK(error_in("a = 1\nb = 2\na = 3\n") == "op: f:3:5: 'a': expected each name once, got it again");
  CHECK(error_in("\"x y\" = 1\n\"x y\" = 3") == "op: f:2:9: 'x y': expected each name once, got it again");
  CHECK(error_in("a = 1\nb 2\n").starts_with("op: f:2:3: "));
  CHECK(error_in("a = " + std::string(1000, '1')) == "op: f:1: expected a line of at most 1000 bytes, got 1004");
  TomlForm form = kForm;
  form.max_line_bytes = 7;
  CHECK(lines_of("a = 123\nb = 1", form).size() == 2);
  CHECK(error_in("a = 1\nb = 1234", form) == "op: f:2: expected a line of at most 7 bytes, got 8");
  CHECK(error_in(std::string(kMaxTomlBytes + 1, '\n')) == "op: f: expected at most 1 MiB, got 1 MiB");
}
