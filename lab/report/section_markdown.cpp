#include "base/excerpt.h"
#include "base/quoting.h"
#include "lab/report/section.h"

#include <fmt/format.h>

#include <algorithm>

// The sections of a report as GitHub's Markdown.

namespace norma::lab {

namespace {

std::string blocks_text(const std::vector<Block>& blocks);

/// Lines of code, between more backquotes than the text contains.
std::string code_text(const std::string& text) {
  size_t longest = 2;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}sh\n{}\n{}\n", fence, plain_text(text), fence);
}

/// The text of a block, which ends with a line's end; "" for what needs a page.
struct TextOf {
  std::string operator()(const Heading& heading) const {
    return fmt::format("### {}\n", escape_markdown(heading.text));
  }
  std::string operator()(const Note& note) const { return escape_markdown(note.text) + "\n"; }
  std::string operator()(const CaptionedTable& block) const { return to_markdown(block.table); }
  std::string operator()(const Code& code) const { return code_text(code.text); }
  std::string operator()(const ResultTable& results) const { return to_markdown(results.table); }
  std::string operator()(const Figures& /*figures*/) const { return ""; }
  std::string operator()(const Facts& facts) const {
    std::string text;
    for (const auto& [name, what] : facts.facts) {
      text += fmt::format("- {}: {}\n", escape_markdown(name), escape_markdown(what));
    }
    return text;
  }
  std::string operator()(const Fold& fold) const {
    return fold.on_page_only ? ""
                             : fmt::format("{}{}\n{}", escape_markdown(fold.summary), escape_markdown(fold.problem),
                                           blocks_text(fold.blocks));
  }
};

/// Each block after an empty line.
std::string blocks_text(const std::vector<Block>& blocks) {
  std::string text;
  for (const Block& block : blocks) {
    const std::string one = std::visit(TextOf(), block);
    text += one.empty() ? "" : "\n" + one;
  }
  return text;
}

bool is_chart(const Block& block) {
  return std::holds_alternative<Figures>(block) || std::holds_alternative<Heading>(block);
}

}  // namespace

std::string to_markdown(const Document& document) {
  std::string text = fmt::format("# {}\n\n**{}**\n", document.title, escape_markdown(document.headline));
  for (size_t i = 0; i < document.answers.size(); ++i) {
    text += fmt::format("{}- {}\n", i == 0 ? "\n" : "", escape_markdown(document.answers[i]));
  }
  for (const Section& section : document.sections) {
    if (!std::ranges::all_of(section.blocks, is_chart)) {
      text += fmt::format("\n## {}\n", escape_markdown(section.title));
      text += section.sentence.empty() ? "" : fmt::format("\n{}\n", escape_markdown(section.sentence));
      text += blocks_text(section.blocks);
    }
  }
  return text;
}

}  // namespace norma::lab
