#include "data/pickle.h"

#include "base/error.h"
#include "base/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <unordered_map>

namespace norma::data {

namespace {

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
    check(take<uint8_t>() == 0x80, "expected a pickle of protocol 2 or later, got another file");
    const int protocol = take<uint8_t>();
    check(protocol >= 2 && protocol <= 5, fmt::format("expected a pickle of protocol 2 to 5, got {}", protocol));
    for (size_t count = 0; count < most_; ++count) {
      at_ = size_ - rest_.size();
      const auto code = take<uint8_t>();
      if (code == '.') {
        return *pop();
      }
      step(code);
    }
    fail(op_, "expected a pickle of at most {} opcodes, got more", most_);
  }

 private:
  /// The opcodes of Python's pickletools that protocols 2 to 5 write.
  void step(uint8_t code) {
    switch (code) {
      case '(': marks_.push_back(stack_.size()); break;                       // MARK
      case '0': pop(); break;                                                 // POP
      case '1': above_mark(); break;                                          // POP_MARK
      case 'N': push({PickleValue::None{}}); break;                           // NONE
      case 0x88: push({true}); break;                                         // NEWTRUE
      case 0x89: push({false}); break;                                        // NEWFALSE
      case 'K': push({static_cast<int64_t>(take<uint8_t>())}); break;         // BININT1
      case 'M': push({static_cast<int64_t>(take<uint16_t>())}); break;        // BININT2
      case 'J': push({static_cast<int64_t>(take<int32_t>())}); break;         // BININT
      case 0x8A: push(long_integer(take_bytes(take<uint8_t>()))); break;      // LONG1
      case 0x8B: push(long_integer(take_bytes(take<uint32_t>()))); break;     // LONG4
      case 'G': push({big_endian_double()}); break;                           // BINFLOAT
      case 0x8C:                                                              // SHORT_BINUNICODE
      case 'U': push({std::string(take_bytes(take<uint8_t>()))}); break;      // SHORT_BINSTRING
      case 'X':                                                               // BINUNICODE
      case 'T': push({std::string(take_bytes(take<uint32_t>()))}); break;     // BINSTRING
      case 0x8D: push({std::string(take_bytes(take<uint64_t>()))}); break;    // BINUNICODE8
      case 'C': push_opaque("bytes", take_bytes(take<uint8_t>())); break;     // SHORT_BINBYTES
      case 'B': push_opaque("bytes", take_bytes(take<uint32_t>())); break;    // BINBYTES
      case 0x8E:                                                              // BINBYTES8
      case 0x96: push_opaque("bytes", take_bytes(take<uint64_t>())); break;   // BYTEARRAY8
      case ')': push({PickleValue::Tuple{}}); break;                          // EMPTY_TUPLE
      case 't': push({PickleValue::Tuple{above_mark()}}); break;              // TUPLE
      case 0x85: push({PickleValue::Tuple{top(1)}}); break;                   // TUPLE1
      case 0x86: push({PickleValue::Tuple{top(2)}}); break;                   // TUPLE2
      case 0x87: push({PickleValue::Tuple{top(3)}}); break;                   // TUPLE3
      case ']': push({PickleValue::List{}}); break;                           // EMPTY_LIST
      case 'a': append({pop()}); break;                                       // APPEND
      case 'e':                                                               // APPENDS
      case 0x90: append(above_mark()); break;                                 // ADDITEMS
      case '}': push({PickleValue::Dict{}}); break;                           // EMPTY_DICT
      case 's': set_items(top(2)); break;                                     // SETITEM
      case 'u': set_items(above_mark()); break;                               // SETITEMS
      case 0x8F: push_opaque("set"); break;                                   // EMPTY_SET
      case 0x91: push_opaque("frozenset", above_mark()); break;               // FROZENSET
      case 'q': memo_[take<uint8_t>()] = peek(); break;                       // BINPUT
      case 'r': memo_[take<uint32_t>()] = peek(); break;                      // LONG_BINPUT
      case 0x94: memo_[static_cast<uint32_t>(memo_.size())] = peek(); break;  // MEMOIZE
      case 'h': recall(take<uint8_t>()); break;                               // BINGET
      case 'j': recall(take<uint32_t>()); break;                              // LONG_BINGET
      case 'c': push_global({take_line(), take_line()}); break;               // GLOBAL
      case 0x93: {                                                            // STACK_GLOBAL
        const auto names = top(2);
        push_global({text_of(*names[0]), text_of(*names[1])});
        break;
      }
      case 'R':                                    // REDUCE
      case 0x81: call(top(2)); break;              // NEWOBJ
      case 0x92: call(top(3)); break;              // NEWOBJ_EX
      case 'b': build(); break;                    // BUILD
      case 'Q': push(hooks_.load(*pop())); break;  // BINPERSID
      case 0x95: take<uint64_t>(); break;          // FRAME: how much to read ahead
      default: fail(op_, "expected a pickle of protocol 2 to 5, got opcode {:#04x} at byte {}", code, at_);
    }
  }

  void check(bool condition, std::string_view text) const { norma::check(condition, op_, "{}", text); }
  [[noreturn]] void damaged(std::string_view text) const { fail(op_, "damaged pickle: {} at byte {}", text, at_); }
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

  /// Pushes a value that is not made, in the place of others.
  template <class... Others>
  void push_opaque(const char* name, const Others&... /*others*/) {
    push({PickleValue::Opaque{name}});
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
  void push_global(const std::array<std::string, 2>& module_and_name) {
    const auto& [module, name] = module_and_name;
    if (module.size() + name.size() > kMostName) {  // two long texts could make any number of longer ones
      damaged("a name that is too long");
    }
    push({PickleValue::Global{module + "." + name}});
  }
  void call(const std::vector<const PickleValue*>& operands) {
    const auto* const global = operands[0]->as<PickleValue::Global>();
    const auto* const arguments = operands[1]->as<PickleValue::Tuple>();
    if (global == nullptr || arguments == nullptr) {
      opaque(*operands[0], "a call");
    }
    push(global == nullptr || arguments == nullptr ? *operands[0] : hooks_.call(global->name, *arguments));
  }
  void build() {  // no state matters for tensors, dicts and what is not made
    pop();
    peek();
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
        } else if constexpr (std::is_same_v<T, Global> || std::is_same_v<T, Opaque>) {
          return excerpt(value.name);
        } else {
          return std::is_same_v<T, List>          ? "a list"
                 : std::is_same_v<T, Dict>        ? "a dict"
                 : std::is_same_v<T, LongInteger> ? "a long integer"
                                                  : "an object";
        }
      },
      content);
}

const PickleValue& read_pickle(std::string_view op, std::string_view& bytes, size_t most, const PickleHooks& hooks,
                               PickleValues& values) {
  return Machine(op, bytes, most, hooks, values).run();
}

}  // namespace norma::data
