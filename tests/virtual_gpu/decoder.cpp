#include "virtual_gpu/decoder.h"

#include "virtual_gpu/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace virtual_gpu {

std::unique_ptr<Module::Kernel> decode_kernel(std::string_view text, const ModuleParts& parts) {
  return Decoder(parts).decode(text);
}

Decoder::Decoder(const ModuleParts& parts) : parts_(parts), kernel_(std::make_unique<Module::Kernel>()) {
  kernel_->files = parts.files;
  kernel_->globals = parts.globals;
}

std::unique_ptr<Module::Kernel> Decoder::decode(std::string_view text) {
  const size_t brace = text.find('{');
  const std::string_view header = text.substr(0, brace);
  const std::string_view body = text.substr(brace + 1, text.rfind('}') - brace - 1);
  const size_t open = header.find('(');
  const size_t close = header.rfind(')');
  Frame frame;
  if (open != std::string_view::npos) {
    read_parameters(header.substr(open + 1, close - open - 1));
  }
  if (const size_t at = header.find(".maxntid"); at != std::string_view::npos) {
    std::string_view rest = header.substr(at);
    rest = rest.substr(0, rest.find('\n'));
    take_word(rest);
    uint64_t threads = 1;
    for (const std::string_view each : split_operands(rest)) {
      threads *= parse_integer(each).value_or(1);
    }
    kernel_->max_threads = static_cast<int>(threads);
  }
  read_body(body, frame);
  add({.flow = Flow::kExit, .outputs = 0}, "exit");
  finish_jumps(frame);
  place_dynamic_shared();
  place_registers(*kernel_, register_bytes_, pinned_);
  return std::move(kernel_);
}

void Decoder::read_parameters(std::string_view list) {
  uint64_t offset = 0;
  for (const std::string_view each : split_operands(list)) {
    std::string_view rest = each;
    take_word(rest);  // .param
    const Declaration declaration = parse_declaration(rest);
    offset = align_up(offset, declaration.alignment);
    kernel_->parameter_names.emplace_back(declaration.name);
    kernel_->parameter_offsets.push_back(static_cast<uint32_t>(offset));
    kernel_->parameter_bytes.push_back(static_cast<uint32_t>(declaration.bytes));
    offset += declaration.bytes;
  }
  kernel_->all_parameter_bytes = static_cast<uint32_t>(offset);
}

void Decoder::read_body(std::string_view body, Frame& frame) {
  if (frame.kernel) {
    for (size_t k = 0; k < kernel_->parameter_names.size(); ++k) {
      frame.names.add(
          kernel_->parameter_names[k],
          {.kind = Symbol::Kind::kAddress, .space = Space::kParameter, .address = kernel_->parameter_offsets[k]});
    }
  }
  StatementReader reader(body);
  while (true) {
    const Statement statement = reader.next();
    switch (statement.kind) {
      case Statement::Kind::kEnd: return;
      case Statement::Kind::kOpen: frame.names.open(); break;
      case Statement::Kind::kClose: frame.names.close(); break;
      case Statement::Kind::kLocation: read_location(statement.text); break;
      case Statement::Kind::kDirective: read_directive(statement.text, frame); break;
      case Statement::Kind::kLabel: frame.labels[statement.text] = static_cast<uint32_t>(kernel_->code.size()); break;
      case Statement::Kind::kInstruction: read_instruction(statement, frame); break;
    }
  }
}

void Decoder::read_location(std::string_view text) {
  take_word(text);
  source_.file = static_cast<uint32_t>(parse_integer(take_word(text)).value_or(0));
  source_.line = static_cast<uint32_t>(parse_integer(take_word(text)).value_or(0));
}

void Decoder::read_directive(std::string_view text, Frame& frame) {
  std::string_view rest = text;
  const std::string_view word = take_word(rest);
  if (word == ".reg") {
    read_registers(rest, frame);
  } else if (word == ".local" || word == ".param") {
    const Declaration declaration = parse_declaration(rest);
    const uint64_t offset = align_up(kernel_->local_bytes, std::max<uint64_t>(declaration.alignment, 16));
    kernel_->local_bytes = offset + declaration.bytes;
    frame.names.add(declaration.name, {.kind = Symbol::Kind::kAddress, .space = Space::kLocal, .address = offset});
  } else if (word == ".shared") {
    const Declaration declaration = parse_declaration(rest);
    const uint64_t offset = align_up(kernel_->static_shared_bytes, declaration.alignment);
    kernel_->static_shared_bytes = offset + declaration.bytes;
    frame.names.add(declaration.name,
                    {.kind = Symbol::Kind::kAddress, .space = Space::kShared, .address = kSharedBegin + offset});
  } else if (word != ".pragma") {
    throw Fault(Fault::Kind::kUnsupported, fmt::format("PTX: {}", text));
  }
}

void Decoder::read_registers(std::string_view text, Frame& frame) {
  const uint8_t bytes = register_bytes(take_word(text).substr(1));
  for (const std::string_view each : split_operands(text)) {
    const size_t bracket = each.find('<');
    if (bracket == std::string_view::npos) {
      frame.names.add(each, {.kind = Symbol::Kind::kRegister, .id = new_register(bytes), .bytes = bytes});
      continue;
    }
    const uint64_t count = parse_integer(each.substr(bracket + 1, each.find('>') - bracket - 1)).value_or(0);
    frame.names.add_range(each.substr(0, bracket), static_cast<uint32_t>(register_bytes_.size()),
                          static_cast<uint32_t>(count), bytes);
    register_bytes_.resize(register_bytes_.size() + count, bytes);
    pinned_.resize(register_bytes_.size(), false);
  }
}

void Decoder::call(std::vector<std::string_view> operands, const Frame& caller) {
  const auto inside = [](std::string_view list) {
    return list.starts_with("(") ? split_operands(list.substr(1, list.size() - 2)) : std::vector<std::string_view>{};
  };
  std::vector<std::string_view> given;
  if (!operands.empty() && operands.front().starts_with("(")) {
    given = inside(operands.front());
    operands.erase(operands.begin());
  }
  const auto function = operands.empty() ? parts_.functions.end() : parts_.functions.find(operands.front());
  if (function == parts_.functions.end() || depth_ > 8) {
    throw Fault(Fault::Kind::kUnsupported,
                fmt::format("PTX: a call of {}", operands.empty() ? "nothing" : operands.front()));
  }
  if (operands.size() > 1) {
    const std::vector<std::string_view> arguments = inside(operands[1]);
    given.insert(given.end(), arguments.begin(), arguments.end());
  }
  const std::string_view text = function->second;
  const size_t brace = text.find('{');
  std::string_view header = text.substr(0, brace);
  std::vector<std::string_view> formal;
  while (header.find('(') != std::string_view::npos) {
    const size_t open = header.find('(');
    const size_t close = header.find(')');
    const std::vector<std::string_view> list = split_operands(header.substr(open + 1, close - open - 1));
    formal.insert(formal.end(), list.begin(), list.end());
    header.remove_prefix(close + 1);
  }
  if (formal.size() != given.size()) {
    throw Fault(Fault::Kind::kUnsupported, fmt::format("PTX: a call of {} with other parameters", operands.front()));
  }
  Frame frame;
  frame.kernel = false;
  for (size_t k = 0; k < formal.size(); ++k) {
    std::string_view rest = formal[k];
    take_word(rest);
    frame.names.add(parse_declaration(rest).name, symbol(given[k], caller));
  }
  const Source source = source_;
  ++depth_;
  read_body(text.substr(brace + 1, text.rfind('}') - brace - 1), frame);
  --depth_;
  source_ = source;
  finish_jumps(frame);
}

void Decoder::finish_jumps(const Frame& frame) {
  for (const auto& [instruction, label] : frame.jumps) {
    const auto target = frame.labels.find(label);
    if (target == frame.labels.end()) {
      throw Fault(Fault::Kind::kUnsupported, fmt::format("PTX: a branch to {}, which is not there", label));
    }
    kernel_->code[instruction].immediate = target->second;
  }
  for (const uint32_t instruction : frame.returns) {
    kernel_->code[instruction].immediate = kernel_->code.size();
  }
}

void Decoder::place_dynamic_shared() {
  const uint64_t begin = kSharedBegin + align_up(kernel_->static_shared_bytes, dynamic_alignment_);
  if (!dynamic_constants_.empty()) {
    kernel_->static_shared_bytes = begin - kSharedBegin;
  }
  for (const auto& [operand, bytes] : dynamic_constants_) {
    std::byte* const lanes = kernel_->constants.data() + (operand & ~kConstant);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint64_t value = 0;
      std::memcpy(&value, lanes + lane * bytes, static_cast<size_t>(bytes));
      value += begin;
      std::memcpy(lanes + lane * bytes, &value, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace virtual_gpu
