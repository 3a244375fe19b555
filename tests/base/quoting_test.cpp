#include "base/quoting.h"

#include <doctest/doctest.h>

using namespace norma;

TEST_CASE("quoting: words that a shell would change") {
  CHECK(shell_word("group:8") == "group:8");
  CHECK(shell_word("layer2d[eps=1e-3]") == "'layer2d[eps=1e-3]'");
  CHECK(shell_word("a{b,c}") == "'a{b,c}'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("") == "''");
  CHECK(shell_quoted("a b") == "'a b'");
}

TEST_CASE("quoting: HTML's own characters are escaped, and those that it may not have are left out") {
  CHECK(escape_html("a<b & \"c\" > 'd'") == "a&lt;b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  CHECK(escape_html("83.1 ± 0.2 %") == "83.1 ± 0.2 %");
  CHECK(escape_html(std::string("a\0b\x1b\n", 5)) == "a?b?\n");
}

TEST_CASE("quoting: Markdown's marks, and lines become one") {
  CHECK(escape_markdown("a|b *c* <d>\n& `e`") == "a\\|b \\*c\\* &lt;d&gt; &amp; \\`e\\`");
}

TEST_CASE("quoting: fields of a CSV file") {
  CHECK(csv_field("group:8") == "group:8");
  CHECK(csv_field("a,b") == "\"a,b\"");
  CHECK(csv_field("a \"b\"") == "\"a \"\"b\"\"\"");
  CHECK(csv_field("a\r") == "\"a\r\"");
}
