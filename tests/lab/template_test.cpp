#include "lab/report/section.h"

#include "error_text.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace norma::lab;
using norma::test::error_of;
using Json = nlohmann::json;

namespace {

std::string filled(const std::string& text, const Json& values) {
  return fill("{{=page}}\n" + text, "page", values);
}

}  // namespace

TEST_CASE("template: values are escaped, unless three braces ask for them as they are") {
  CHECK(filled("<b>{{x}}</b>{{{x}}}", {{"x", "a<b"}}) == "<b>a&lt;b</b>a<b");
  CHECK(filled("{{n}} {{none}}!", {{"n", 3}, {"none", ""}}) == "3 !");
}

TEST_CASE("template: sections stand for each element, once, or not at all") {
  CHECK(filled("{{#list}}<{{.}}>{{/list}}", {{"list", {"a", "b"}}}) == "<a><b>");
  CHECK(filled("{{#list}}{{name}}{{other}} {{/list}}", {{"other", 7}, {"list", {{{"name", "a"}}, {{"name", "b"}}}}}) ==
        "a7 b7 ");
  CHECK(filled("{{#x}}{{x}}{{/x}}{{^x}}no{{/x}}", {{"x", "yes"}}) == "yes");
  for (const Json& nothing : {Json(false), Json(nullptr), Json(""), Json::array(), Json::object()}) {
    CHECK(filled("{{#x}}yes{{/x}}{{^x}}no{{/x}}", {{"x", nothing}}) == "no");
  }
  CHECK(filled("{{#x}}yes{{/x}}{{^x}}no{{/x}}", Json::object()) == "no");
  // What the outer object has is nothing to the inner one's sections: else parts that call themselves would not end.
  CHECK(filled("{{#list}}{{#outer}}x{{/outer}}{{name}}{{/list}}",
               {{"outer", true}, {"list", Json::array({{{"name", "a"}}})}}) == "a");
}

TEST_CASE("template: a part stands in another one, and in itself as deep as the values") {
  const std::string text = "{{=page}}\n[{{>tree}}]{{=tree}}\n{{name}}{{#children}}({{>tree}}){{/children}}";
  const Json leaf = {{"name", "b"}};
  CHECK(fill(text, "page", {{"name", "a"}, {"children", {leaf, leaf}}}) == "[a(b)(b)]");
}

TEST_CASE("template: what is nowhere is an error that names it") {
  CHECK(error_of([] { filled("{{x}}", Json::object()); }) == "template: expected a value for 'x', got none");
  CHECK(error_of([] { filled("{{>x}}", Json::object()); }) == "template: expected a part of the name 'x', got none");
  CHECK(error_of([] { filled("{{#x}}", Json::object()); }) == "template: expected {{/x}} after '', got none");
  CHECK(error_of([] { filled("a {{x", Json::object()); }) == "template: expected }} after 'x', got none");
}
