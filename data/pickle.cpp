#include "data/pickle.h"

#include "core/error.h"
#include "core/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>
#include <unordered_map>

namespace norma::data {

namespace {

enum class Op : uint8_t {
  mark = '(',
  stop = '.',
  pop = '0',
  pop_mark = '1',
  none = 'N',
  true_value = 0x88,
  false_value = 0x89,
  int4 = 'J',
  int1 = 'K',
  int2 = 'M',
  long1 = 0x8A,
  long4 = 0x8B,
  float8 = 'G',
  text4 = 'X',
  text1 = 0x8C,
  text8 = 0x8D,
  string4 = 'T',
  string1 = 'U',
  bytes1 = 'C',
  bytes4 = 'B',
  bytes8 = 0x8E,
  bytearray8 = 0x96,
  empty_tuple = ')',
  tuple = 't',
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  empty_list = ']',
  append = 'a',
  appends = 'e',
  empty_dict = '}',
  set_item = 's',
  set_items = 'u',
  empty_set = 0x8F,
  add_items = 0x90,
  frozen_set = 0x91,
  put1 = 'q',
  put4 = 'r',
  memoize = 0x94,
  get1 = 'h',
  get4 = 'j',
  global = 'c',
  stack_global = 0x93,
  call = 'R',
  new_object = 0x81,
  new_object_ex = 0x92,
  build = 'b',
  persistent = 'Q',
  protocol = 0x80,
  frame = 0x95,
};

/// Names of the opcodes that are refused, as Python's pickletools has them.
struct Refused {
  uint8_t code;
  std::string_view name;
};
constexpr std::array kRefused{Refused{'I', "INT"},    Refused{'L', "LONG"},         Refused{'F', "FLOAT"},
                              Refused{'S', "STRING"}, Refused{'V', "UNICODE"},      Refused{'P', "PERSID"},
                              Refused{'p', "PUT"},    Refused{'g', "GET"},          Refused{'l', "LIST"},
                              Refused{'d', "DICT"},   Refused{'i', "INST"},         Refused{'o', "OBJ"},
                              Refused{'2', "DUP"},    Refused{0x82, "EXT1"},        Refused{0x83, "EXT2"},
                              Refused{0x84, "EXT4"},  Refused{0x97, "NEXT_BUFFER"}, Refused{0x98, "READONLY_BUFFER"}};

constexpr size_t kMostName = 500;

/// Little-endian, as opcodes have their numbers.
template <class T>
T number_in(std::string_view bytes) {
  std::array<char, sizeof(T)> raw{};
  std::copy_n(bytes.begin(), sizeof(T), raw.begin());
  if constexpr (std::endian::native == std::endian::big) {
    std::ranges::reverse(raw);
  }
  return std::bit_cast<T>(raw);
}

/// The stack machine that a pickle is a program for.
class Machine {
 public:
  Machine(std::string_view op, std::string_view& bytes, size_t most, const PickleHooks& hooks, PickleValues& values)
      : op_(op), rest_(bytes), size_(bytes.size()), most_(most), hooks_(hooks), values_(values) {}

  const PickleValue& run() {
    check(static_cast<Op>(take<uint8_t>()) == Op::protocol,
          "expected a pickle of protocol 2 or later, got another file");
    const int protocol = take<uint8_t>();
    check(protocol >= 2 && protocol <= 5, fmt::format("expected a pickle of protocol 2 to 5, got {}", protocol));
    for (size_t count = 0; count < most_; ++count) {
      at_ = size_ - rest_.size();
      const auto code = take<uint8_t>();
      if (static_cast<Op>(code) == Op::stop) {
        return *pop();
      }
      step(code);
    }
    fail(op_, "expected a pickle of at most {} opcodes, got more", most_);
  }

 private:
  void step(uint8_t code) {
    switch (static_cast<Op>(code)) {
      case Op::mark: marks_.push_back(stack_.size()); break;
      case Op::pop: pop(); break;
      case Op::pop_mark: above_mark(); break;
      case Op::none: push({PickleValue::None{}}); break;
      case Op::true_value: push({true}); break;
      case Op::false_value: push({false}); break;
      case Op::int1: push({static_cast<int64_t>(take<uint8_t>())}); break;
      case Op::int2: push({static_cast<int64_t>(take<uint16_t>())}); break;
      case Op::int4: push({static_cast<int64_t>(take<int32_t>())}); break;
      case Op::long1: push(long_integer(take_bytes(take<uint8_t>()))); break;
      case Op::long4: push(long_integer(take_bytes(take<uint32_t>()))); break;
      case Op::float8: push({big_endian_double()}); break;
      case Op::text1:
      case Op::string1: push({std::string(take_bytes(take<uint8_t>()))}); break;
      case Op::text4:
      case Op::string4: push({std::string(take_bytes(take<uint32_t>()))}); break;
      case Op::text8: push({std::string(take_bytes(take<uint64_t>()))}); break;
      case Op::bytes1: push_bytes(take<uint8_t>()); break;
      case Op::bytes4: push_bytes(take<uint32_t>()); break;
      case Op::bytes8:
      case Op::bytearray8: push_bytes(take<uint64_t>()); break;
      case Op::empty_tuple: push({PickleValue::Tuple{}}); break;
      case Op::tuple: push({PickleValue::Tuple{above_mark()}}); break;
      case Op::tuple1: push({PickleValue::Tuple{top(1)}}); break;
      case Op::tuple2: push({PickleValue::Tuple{top(2)}}); break;
      case Op::tuple3: push({PickleValue::Tuple{top(3)}}); break;
      case Op::empty_list: push({PickleValue::List{}}); break;
      case Op::append: append({pop()}); break;
      case Op::appends: append(above_mark()); break;
      case Op::empty_dict: push({PickleValue::Dict{}}); break;
      case Op::set_item: set_items(top(2)); break;
      case Op::set_items: set_items(above_mark()); break;
      case Op::empty_set: push({PickleValue::Opaque{"set"}}); break;
      case Op::add_items: {
        above_mark();
        opaque(*peek(), "items");
        break;
      }
      case Op::frozen_set: {
        above_mark();
        push({PickleValue::Opaque{"frozenset"}});
        break;
      }
      case Op::put1: memo_[take<uint8_t>()] = peek(); break;
      case Op::put4: memo_[take<uint32_t>()] = peek(); break;
      case Op::memoize: memo_[static_cast<uint32_t>(memo_.size())] = peek(); break;
      case Op::get1: recall(take<uint8_t>()); break;
      case Op::get4: recall(take<uint32_t>()); break;
      case Op::global: {
        const std::string module = take_line();
        push_global(module, take_line());
        break;
      }
      case Op::stack_global: {
        const auto names = top(2);
        push_global(text_of(*names[0]), text_of(*names[1]));
        break;
      }
      case Op::call:
      case Op::new_object: {
        const auto operands = top(2);
        call(*operands[0], *operands[1]);
        break;
      }
      case Op::new_object_ex: {
        const auto operands = top(3);
        call(*operands[0], *operands[1]);
        break;
      }
      case Op::build: {  // no state matters for tensors, dicts and what is not made
        pop();
        peek();
        break;
      }
      case Op::persistent: push(hooks_.load(*pop())); break;
      case Op::frame: take<uint64_t>(); break;  // how much to read ahead
      default: refuse(code);
    }
  }

  void check(bool condition, std::string_view text) const { norma::check(condition, op_, "{}", text); }
  [[noreturn]] void damaged(std::string_view text) const { fail(op_, "damaged pickle: {} at byte {}", text, at_); }
  [[noreturn]] void refuse(uint8_t code) const {
    const auto* const found = std::ranges::find(kRefused, code, &Refused::code);
    fail(op_, "expected a pickle of protocol 2 to 5, got opcode {} at byte {}",
         found == kRefused.end() ? fmt::format("{:#04x}", code) : std::string(found->name), at_);
  }

  std::string_view take_bytes(size_t count) {
    if (rest_.size() < count) {
      damaged("it ends within an opcode");
    }
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  template <class T>
  T take() {
    return number_in<T>(take_bytes(sizeof(T)));
  }
  std::string take_line() {
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) {
      damaged("a name without an end");
    }
    const std::string line(take_bytes(end));
    take_bytes(1);
    return line;
  }
  double big_endian_double() {
    std::string bytes(take_bytes(sizeof(double)));
    std::ranges::reverse(bytes);
    return number_in<double>(bytes);
  }
  static PickleValue long_integer(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) {
      return {PickleValue::LongInteger{std::string(bytes)}};
    }
    std::array<char, sizeof(int64_t)> raw;
    raw.fill(!bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80U) != 0 ? '\xFF' : '\0');
    std::ranges::copy(bytes, raw.begin());
    return {number_in<int64_t>({raw.data(), raw.size()})};
  }

  void push(PickleValue value) { stack_.push_back(&values_.emplace_back(std::move(value))); }
  [[nodiscard]] size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue* peek() const {
    if (stack_.size() <= bottom()) {
      damaged("an operand is missing");
    }
    return stack_.back();
  }
  PickleValue* pop() {
    PickleValue* const value = peek();
    stack_.pop_back();
    return value;
  }
  std::vector<const PickleValue*> top(size_t count) {
    if (stack_.size() < bottom() + count) {
      damaged("an operand is missing");
    }
    std::vector<const PickleValue*> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }
  std::vector<const PickleValue*> above_mark() {
    if (marks_.empty()) {
      damaged("a mark is missing");
    }
    std::vector<const PickleValue*> values = top(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  void push_bytes(uint64_t count) {
    take_bytes(count);
    push({PickleValue::Opaque{"bytes"}});
  }
  /// What is not made takes anything; another value that gets here is damaged.
  void opaque(const PickleValue& value, const char* got) const {
    if (value.as<PickleValue::Opaque>() == nullptr) {
      damaged(fmt::format("{} for {}", got, value.describe()));
    }
  }
  void append(const std::vector<const PickleValue*>& items) {
    auto* const list = std::get_if<PickleValue::List>(&peek()->content);
    if (list == nullptr) {
      return opaque(*peek(), "items");
    }
    list->items.insert(list->items.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<const PickleValue*>& items) {
    auto* const dict = std::get_if<PickleValue::Dict>(&peek()->content);
    if (dict == nullptr || items.size() % 2 != 0) {
      return opaque(*peek(), "keys and values");
    }
    for (size_t i = 0; i < items.size(); i += 2) {
      dict->items.emplace_back(items[i], items[i + 1]);
    }
  }
  void recall(uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) {
      damaged("a value that was not kept");
    }
    stack_.push_back(found->second);
  }
  std::string text_of(const PickleValue& value) const {
    const auto* const text = value.as<std::string>();
    if (text == nullptr) {
      damaged("a name that is " + value.describe());
    }
    return *text;
  }
  void push_global(const std::string& module, const std::string& name) {
    if (module.size() + name.size() > kMostName) {  // two long texts could make any number of longer ones
      damaged("a name that is too long");
    }
    push({PickleValue::Global{module + "." + name}});
  }
  void call(const PickleValue& function, const PickleValue& arguments) {
    const auto* const global = function.as<PickleValue::Global>();
    const auto* const tuple = arguments.as<PickleValue::Tuple>();
    if (global == nullptr || tuple == nullptr) {
      opaque(function, "a call");
    }
    push(global == nullptr || tuple == nullptr ? function : hooks_.call(global->name, *tuple));
  }

  std::string op_;
  std::string_view& rest_;
  size_t size_;
  size_t most_;    // opcodes
  size_t at_ = 0;  // of the opcode
  const PickleHooks& hooks_;
  PickleValues& values_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PickleValue*> memo_;
};

}  // namespace

std::string PickleValue::describe() const {
  return std::visit(
      []<class T>(const T& value) -> std::string {
        if constexpr (std::is_same_v<T, None>) {
          return "None";
        } else if constexpr (std::is_same_v<T, bool>) {
          return value ? "True" : "False";
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
          return fmt::format("{}", value);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return fmt::format("'{}'", excerpt(value));
        } else if constexpr (std::is_same_v<T, Tuple>) {
          return fmt::format("a tuple of {}", value.items.size());
        } else if constexpr (std::is_same_v<T, List>) {
          return "a list";
        } else if constexpr (std::is_same_v<T, Dict>) {
          return "a dict";
        } else if constexpr (std::is_same_v<T, Global> || std::is_same_v<T, Opaque>) {
          return excerpt(value.name);
        } else if constexpr (std::is_same_v<T, LongInteger>) {
          return "a long integer";
        } else {
          return "an object";
        }
      },
      content);
}

const PickleValue& read_pickle(std::string_view op, std::string_view& bytes, size_t most, const PickleHooks& hooks,
                               PickleValues& values) {
  return Machine(op, bytes, most, hooks, values).run();
}

}  // namespace norma::data
