#include "virtual_gpu/decoder.h"
#include "virtual_gpu/fault.h"

#include <fmt/format.h>

#include <algorithm>

namespace virtual_gpu {

namespace {

void nothing(Warp& /*warp*/, const Instruction& /*instruction*/, uint32_t /*mask*/) {}

Space space_of(const Opcode& opcode) {
  if (opcode.has("global") || opcode.has("const")) {
    return Space::kGlobal;
  }
  if (opcode.has("shared") || opcode.text.find(".shared::cta") != std::string_view::npos) {
    return Space::kShared;
  }
  if (opcode.has("local")) {
    return Space::kLocal;
  }
  return opcode.has("param") ? Space::kParameter : Space::kGeneric;
}

Follow follow_of(const Opcode& opcode) {
  const std::string_view name = opcode.name;
  const bool integers = opcode.types.size() == 2 && !is_float(opcode.types[0]) && !is_float(opcode.types[1]);
  if (name == "mov" || name == "cvta" || (name == "cvt" && integers && !is_signed(opcode.types[1]))) {
    return Follow::kMove;
  }
  if (name == "and" || name == "or" || name == "xor" || name == "not") {
    return opcode.type() == Type::kPred || name == "not" ? Follow::kAll : name == "and" ? Follow::kAnd : Follow::kBytes;
  }
  return name == "selp"                               ? Follow::kSelect
         : name == "shfl"                             ? Follow::kShuffle
         : name == "shl"                              ? Follow::kShiftLeft
         : name == "shr" && !is_signed(opcode.type()) ? Follow::kShiftRight
                                                      : Follow::kAll;
}

/// Modifiers of loads and stores that change where data are cached, or in which order others see it, but not what a
/// thread reads.
bool known_of_memory(std::string_view modifier) {
  constexpr std::array kKnown = {"global", "const", "shared", "local", "param", "nc",       "ca",
                                 "cg",     "cs",    "lu",     "cv",    "wb",    "wt",       "weak",
                                 "gpu",    "sys",   "cta",    "v2",    "v4",    "volatile", "relaxed"};
  return type_of(modifier) != Type::kNone || modifier.find("::") != std::string_view::npos ||
         std::find(kKnown.begin(), kKnown.end(), modifier) != kKnown.end();
}

std::vector<std::string_view> parts_of(std::string_view operand) {
  if (operand.starts_with("{")) {
    return split_operands(operand.substr(1, operand.size() - 2));
  }
  return {operand};
}

Fault unsupported(std::string_view text) {
  return {Fault::Kind::kUnsupported, fmt::format("the virtual GPU does not know the instruction {}", text)};
}

}  // namespace

void Decoder::add(const Instruction& instruction, std::string_view text) {
  kernel_->code.push_back(instruction);
  kernel_->code.back().index = static_cast<uint32_t>(kernel_->code.size() - 1);
  source_.text = text;
  kernel_->sources.push_back(source_);
}

void Decoder::read_instruction(const Statement& statement, Frame& frame) {
  std::string_view rest = statement.text;
  const Opcode opcode(take_word(rest));
  std::vector<std::string_view> operands;
  for (const std::string_view each : split_operands(rest)) {  // "%p1|%p2" are two
    const size_t bar = each.find('|');
    operands.push_back(trimmed(each.substr(0, bar)));
    if (bar != std::string_view::npos) {
      operands.push_back(trimmed(each.substr(bar + 1)));
    }
  }
  try {
    Instruction instruction;
    if (!statement.guard.empty()) {
      instruction.guard = operand(statement.guard, 0, frame);
      instruction.guard_negated = statement.guard_negated;
    }
    if (read_control(opcode, operands, instruction, frame) || read_memory(opcode, operands, instruction, frame) ||
        read_parts(opcode, operands, instruction, frame)) {
      return;
    }
    if (opcode.name == "shfl" && operands.size() == 5) {
      operands.insert(operands.begin() + 1, "_");
    }
    const Choice choice = choose(opcode, operands, frame);
    if (choice.run == nullptr) {
      throw unsupported(statement.text);
    }
    use(opcode, choice, operands, instruction, frame);
    add(instruction, opcode.text);
  } catch (const Fault& fault) {
    const std::string what = fault.what();
    throw what.find("does not know the instruction") != std::string::npos
        ? fault
        : Fault(fault.kind(), fmt::format("{} (in {})", unsupported(statement.text).what(), what));
  }
}

bool Decoder::read_control(const Opcode& opcode, const std::vector<std::string_view>& operands,
                           Instruction& instruction, Frame& frame) {
  instruction.outputs = 0;
  const uint32_t index = static_cast<uint32_t>(kernel_->code.size());
  if (opcode.text == "bra" || opcode.text == "bra.uni") {
    instruction.flow = Flow::kBranch;
    frame.jumps.emplace_back(index, operands.at(0));
  } else if (opcode.text == "exit" || (opcode.name == "ret" && frame.kernel)) {
    instruction.flow = Flow::kExit;
  } else if (opcode.name == "ret") {
    instruction.flow = Flow::kBranch;
    frame.returns.push_back(index);
  } else if (opcode.text == "bar.sync" || opcode.text == "barrier.sync.aligned" || opcode.text == "barrier.sync") {
    if (operands != std::vector<std::string_view>{"0"} || instruction.guard != kNoOperand) {
      throw unsupported(opcode.text);
    }
    instruction.flow = Flow::kBarrier;
    instruction.meets = true;
  } else if (opcode.name == "membar" || opcode.name == "fence" || opcode.name == "nanosleep") {
    instruction.run = nothing;
  } else if (opcode.text == "call.uni" || opcode.text == "call") {
    if (instruction.guard != kNoOperand) {
      throw unsupported(opcode.text);
    }
    call(operands, frame);
    return true;
  } else {
    instruction.outputs = 1;
    return false;
  }
  add(instruction, opcode.text);
  return true;
}

bool Decoder::read_memory(const Opcode& opcode, const std::vector<std::string_view>& operands, Instruction& instruction,
                          const Frame& frame) {
  const bool load = opcode.name == "ld" || opcode.name == "ldu";
  if (!load && opcode.name != "st") {
    return false;
  }
  const int vector = opcode.has("v2") ? 2 : opcode.has("v4") ? 4 : 1;
  if (operands.size() != 2 || opcode.types.size() != 1 ||
      !std::all_of(opcode.modifiers.begin(), opcode.modifiers.end(), known_of_memory)) {
    throw unsupported(opcode.text);
  }
  const std::vector<std::string_view> values = parts_of(operands[load ? 0 : 1]);
  int register_bytes = -1;
  for (const std::string_view each : values) {
    register_bytes = std::max(register_bytes, bytes_of_register(each, frame));
  }
  if (register_bytes < 0) {  // constants are stored
    register_bytes = std::max(2, bytes_of(opcode.type()));
  }
  instruction.space = space_of(opcode);
  instruction.registers_only = false;
  instruction.run =
      load ? load_handler(opcode.type(), register_bytes, vector) : store_handler(opcode.type(), register_bytes, vector);
  if (instruction.run == nullptr || values.size() != static_cast<size_t>(vector)) {
    throw unsupported(opcode.text);
  }
  instruction.access_bytes = static_cast<uint8_t>(bytes_of(opcode.type()) * vector);
  instruction.element_bytes = static_cast<uint8_t>(bytes_of(opcode.type()));
  instruction.outputs = static_cast<uint8_t>(load ? vector : 0);
  instruction.operand_count = static_cast<uint8_t>(vector + 1);
  const size_t first = load ? 0 : 1;
  instruction.operands[load ? values.size() : 0] = address(operands[load ? 1 : 0], instruction, frame);
  for (size_t k = 0; k < values.size(); ++k) {
    instruction.operands[first + k] = operand(values[k], register_bytes, frame);
  }
  add(instruction, opcode.text);
  return true;
}

/// "mov.b64 {%r1, %r2}, %rd1" and the other way round.
bool Decoder::read_parts(const Opcode& opcode, const std::vector<std::string_view>& operands, Instruction& instruction,
                         const Frame& frame) {
  if (opcode.name != "mov" || operands.size() != 2 ||
      (!operands[0].starts_with("{") && !operands[1].starts_with("{"))) {
    return false;
  }
  const bool splits = operands[0].starts_with("{");
  std::vector<std::string_view> all = parts_of(operands[splits ? 0 : 1]);
  const int parts = static_cast<int>(all.size());
  const int part_bytes = bytes_of(opcode.type()) / parts;
  all.insert(splits ? all.end() : all.begin(), operands[splits ? 1 : 0]);
  const Choice choice = splits ? split_choice(part_bytes, parts) : join_choice(part_bytes, parts);
  if (choice.run == nullptr) {
    throw unsupported(opcode.text);
  }
  use(opcode, choice, all, instruction, frame);
  instruction.undefined = splits ? Follow::kSplit : Follow::kJoin;
  instruction.element_bytes = static_cast<uint8_t>(part_bytes);
  add(instruction, opcode.text);
  return true;
}

Choice Decoder::choose(const Opcode& opcode, const std::vector<std::string_view>& operands, const Frame& frame) const {
  const auto bytes_at = [&](size_t k) {
    const int found = k < operands.size() ? bytes_of_register(operands[k], frame) : -1;
    return found >= 0 || opcode.types.empty() ? found : std::max(2, bytes_of(k == 0 ? opcode.types[0] : opcode.type()));
  };
  for (const Choice& choice :
       {integer_choice(opcode), bits_choice(opcode), float_choice(opcode), move_choice(opcode),
        compare_choice(opcode, static_cast<int>(operands.size())), convert_choice(opcode, bytes_at(0), bytes_at(1)),
        approximate_choice(opcode), carry_choice(opcode), warp_choice(opcode)}) {
    if (choice.run != nullptr) {
      return choice;
    }
  }
  return {};
}

void Decoder::use(const Opcode& opcode, const Choice& choice, const std::vector<std::string_view>& operands,
                  Instruction& instruction, const Frame& frame) {
  if (operands.size() != static_cast<size_t>(choice.count)) {
    throw Fault(Fault::Kind::kUnsupported,
                fmt::format("PTX: expected {} operands, got {}", choice.count, operands.size()));
  }
  instruction.run = choice.run;
  instruction.outputs = static_cast<uint8_t>(choice.outputs);
  instruction.registers_only = choice.registers_only;
  instruction.meets = choice.meets;
  instruction.undefined = follow_of(opcode);
  instruction.element_bytes = static_cast<uint8_t>(std::max<int>(choice.bytes[0], 0));
  instruction.operand_count = static_cast<uint8_t>(choice.count);
  instruction.immediate = choice.immediate;
  for (size_t k = 0; k < operands.size(); ++k) {
    instruction.operands[k] = operand(operands[k], choice.bytes[k], frame);
  }
}

}  // namespace virtual_gpu
