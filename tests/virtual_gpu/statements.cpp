#include "virtual_gpu/statements.h"

#include <algorithm>
#include <cctype>

namespace virtual_gpu {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> split_operands(std::string_view text) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  size_t begin = 0;
  for (size_t k = 0; k <= text.size(); ++k) {
    const char c = k < text.size() ? text[k] : ',';
    depth += c == '{' || c == '[' || c == '(' ? 1 : 0;
    depth -= c == '}' || c == ']' || c == ')' ? 1 : 0;
    if (c == ',' && (depth == 0 || k == text.size())) {
      if (const std::string_view piece = trimmed(text.substr(begin, k - begin)); !piece.empty()) {
        pieces.push_back(piece);
      }
      begin = k + 1;
    }
  }
  return pieces;
}

std::string_view take_word(std::string_view& text) {
  text = trimmed(text);
  const size_t end = std::min(text.find_first_of(kSpace), text.size());
  const std::string_view word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

void StatementReader::skip_space() {
  while (true) {
    const size_t begin = rest_.find_first_not_of(kSpace);
    rest_.remove_prefix(std::min(begin, rest_.size()));
    if (rest_.starts_with("//")) {
      rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
    } else if (rest_.starts_with("/*")) {
      const size_t end = rest_.find("*/");
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 2);
    } else if (rest_.starts_with(";")) {
      rest_.remove_prefix(1);
    } else {
      return;
    }
  }
}

Statement StatementReader::next() {
  skip_space();
  Statement statement;
  if (rest_.empty()) {
    return statement;
  }
  if (rest_.front() == '{' || rest_.front() == '}') {
    statement.kind = rest_.front() == '{' ? Statement::Kind::kOpen : Statement::Kind::kClose;
    rest_.remove_prefix(1);
    return statement;
  }
  const auto take = [&](size_t end) {
    const std::string_view text = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end, rest_.size()));
    return text;
  };
  if (rest_.starts_with(".loc ") || rest_.starts_with(".loc\t")) {
    statement.kind = Statement::Kind::kLocation;
    statement.text = take(std::min(rest_.find('\n'), rest_.size()));
    return statement;
  }
  const size_t name_end =
      static_cast<size_t>(std::find_if_not(rest_.begin(), rest_.end(), is_name_character) - rest_.begin());
  const size_t colon = rest_.find_first_not_of(" \t", name_end);
  if (name_end != 0 && colon != std::string_view::npos && rest_[colon] == ':' &&
      !rest_.substr(colon).starts_with("::")) {
    statement.kind = Statement::Kind::kLabel;
    statement.text = take(name_end);
    rest_.remove_prefix(rest_.find(':') + 1);
    return statement;
  }
  statement.kind = rest_.front() == '.' ? Statement::Kind::kDirective : Statement::Kind::kInstruction;
  statement.text = take(rest_.find(';'));
  if (statement.text.starts_with("@")) {
    statement.text.remove_prefix(1);
    statement.guard_negated = statement.text.starts_with("!");
    statement.text.remove_prefix(statement.guard_negated ? 1 : 0);
    statement.guard = take_word(statement.text);
  }
  return statement;
}

}  // namespace virtual_gpu
