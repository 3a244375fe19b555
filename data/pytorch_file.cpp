#include "data/tensor_file.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "core/copy.h"
#include "core/factory.h"
#include "data/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>

namespace norma::data {

static_assert(std::endian::native == std::endian::little, "the numbers in these files are little-endian");

namespace {

constexpr std::string_view kOp = "pytorch file";
constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr std::string_view kPickleMagic = "\x80";
constexpr uint64_t kMaxFile = uint64_t{64} << 30;
constexpr int kMostDeep = 32;
constexpr size_t kMostKey = 255;

/// Bounds for a small file that stands for very much: in its pickle, which may name a value or a part of a storage any
/// number of times. Both grow with the file.
size_t most_values(size_t file_bytes) {
  return 500'000 + file_bytes / 16;
}
size_t most_bytes(size_t file_bytes) {  // of names and texts, and of tensors whose strides are not those of the file
  return (size_t{1} << 20) + file_bytes;
}

struct StorageType {
  std::string_view global;
  size_t bytes;                // of an element
  std::optional<DType> dtype;  // that it becomes; none: its tensors are left out
};
constexpr std::array kStorageTypes{StorageType{"torch.FloatStorage", 4, DType::float32},
                                   StorageType{"torch.DoubleStorage", 8, DType::float64},
                                   StorageType{"torch.HalfStorage", 2, DType::float16},
                                   StorageType{"torch.BFloat16Storage", 2, DType::bfloat16},
                                   StorageType{"torch.LongStorage", 8, DType::int64},
                                   StorageType{"torch.IntStorage", 4, DType::int32},
                                   StorageType{"torch.ShortStorage", 2, DType::int32},
                                   StorageType{"torch.CharStorage", 1, DType::int32},
                                   StorageType{"torch.ByteStorage", 1, DType::uint8},
                                   StorageType{"torch.BoolStorage", 1, DType::boolean},
                                   StorageType{"torch.ComplexFloatStorage", 8, std::nullopt},
                                   StorageType{"torch.ComplexDoubleStorage", 16, std::nullopt},
                                   StorageType{"torch.QInt8Storage", 1, std::nullopt},
                                   StorageType{"torch.QUInt8Storage", 1, std::nullopt},
                                   StorageType{"torch.QInt32Storage", 4, std::nullopt},
                                   StorageType{"torch.storage.UntypedStorage", 1, std::nullopt}};
// Functions of torch._utils, by the arguments that they have in front.
constexpr std::string_view kOldTensor = "torch._utils._rebuild_tensor";       // storage, offset, sizes, strides
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";       // likewise, requires_grad, hooks, about
constexpr std::string_view kNewTensor = "torch._utils._rebuild_tensor_v3";    // likewise, with a dtype before `about`
constexpr std::string_view kParameters = "torch._utils._rebuild_parameter";   // the tensor; also …_with_state
constexpr std::string_view kSubclasses = "torch._tensor._rebuild_from_type";  // function, class, arguments; also …_v2

/// Numbers that lie outside the pickle.
struct Numbers {
  const StorageType* type = nullptr;
  std::string key;
  int64_t count = 0;
};
struct TensorRecord {
  size_t numbers = 0;
  int64_t offset = 0;
  Sizes sizes;
  Strides strides;
  Tensor made = {};  // once it has been asked for
};
using Object = std::variant<Numbers, TensorRecord>;

/// What the pickle of a file holds. Error texts begin with `op_`, which names the file.
class Content {
 public:
  Content(std::string op, size_t file_bytes) : op_(std::move(op)), file_bytes_(file_bytes) {}

  /// Takes a pickle off the beginning of `bytes`.
  const PickleValue& read(std::string_view& bytes) {
    const PickleHooks hooks{
        .call = [this](const std::string& global, const PickleValue::Tuple& arguments) -> PickleValue {
          return call(global, arguments.items);
        },
        .load = [this](const PickleValue& id) { return outside(id); }};
    return read_pickle(op_, bytes, most_values(file_bytes_), hooks, values_);
  }

  /// All storages by their keys.
  [[nodiscard]] std::unordered_map<std::string, Numbers> storages() const {
    std::unordered_map<std::string, Numbers> result;
    for (const Object& object : objects_) {
      if (const auto* const numbers = std::get_if<Numbers>(&object)) {
        result.emplace(numbers->key, *numbers);
      }
    }
    return result;
  }

  /// Reads the bytes of Numbers, once for each key.
  using Source = std::function<std::string(const Numbers&)>;
  Safetensors collect(const PickleValue& root, const Source& source) {
    if (const auto* const whole = root.as<PickleValue::Opaque>()) {
      fail(op_,
           "expected tensors by name, got a whole {}; with the program that made it, in Python: "
           "torch.save(torch.load(FILE, weights_only=False).state_dict(), 'weights.pth')",
           whole->name);
    }
    Safetensors result;
    walk("", root, 0, source, result);
    std::set<std::string_view> names;
    for (const auto& [name, x] : result.tensors) {
      check(names.insert(name).second, op_, "tensor '{}': the name appears twice", excerpt(name));
    }
    return result;
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const { fail(op_, "damaged: {}", what); }

  /// Values may be shared, so that a small file could stand for any number of them.
  void count(size_t values) {
    count_ += values;
    check(count_ <= most_values(file_bytes_), op_, "expected at most {} dicts and lists in each other, and {} values",
          kMostDeep, most_values(file_bytes_));
  }

  size_t add(Object object) {
    objects_.push_back(std::move(object));
    return objects_.size() - 1;
  }

  PickleValue call(const std::string& global, const std::vector<const PickleValue*>& items) {
    const bool is_tensor = global == kOldTensor || global == kTensor || global == kNewTensor;
    if (is_tensor && items.size() >= 4) {
      return tensor_of(items, global == kNewTensor ? 6 : 0);
    }
    if (global == "collections.OrderedDict") {
      return ordered_dict(items);
    }
    if (global == "collections.Counter" || global == "collections.defaultdict") {
      const auto* const dict = items.empty() ? nullptr : items.back()->as<PickleValue::Dict>();
      count(dict == nullptr ? 0 : dict->items.size());
      return {dict == nullptr ? PickleValue::Dict{} : *dict};
    }
    if (global == "torch.Size" && items.size() == 1 && sequence(*items[0]).size() <= static_cast<size_t>(kMaxRank)) {
      return *items[0];
    }
    if (global.starts_with(kParameters) && !items.empty() && items[0]->as<PickleValue::Object>() != nullptr) {
      return *items[0];
    }
    const auto* const first = items.empty() ? nullptr : items[0]->as<PickleValue::Global>();
    if (global.starts_with(kSubclasses) && items.size() >= 3 && first != nullptr &&
        !first->name.starts_with(kSubclasses) && items[2]->as<PickleValue::Tuple>() != nullptr) {
      return call(first->name, items[2]->as<PickleValue::Tuple>()->items);
    }
    const bool makes_first = global.starts_with("copyreg.") || global.starts_with("copy_reg.");
    return {PickleValue::Opaque{excerpt(makes_first && first != nullptr ? first->name : global)}};
  }

  PickleValue ordered_dict(const std::vector<const PickleValue*>& items) {
    PickleValue::Dict dict;
    if (!items.empty()) {
      const auto* const list = items[0]->as<PickleValue::List>();
      if (list == nullptr) {
        damaged("an ordered dict made of " + items[0]->describe());
      }
      for (const PickleValue* const pair : list->items) {
        count(1);
        const std::vector<const PickleValue*>& both = sequence(*pair);
        if (both.size() != 2) {
          damaged("a key without a value");
        }
        dict.items.emplace_back(both[0], both[1]);
      }
    }
    return {std::move(dict)};
  }

  [[nodiscard]] const std::vector<const PickleValue*>& sequence(const PickleValue& value) const {
    if (const auto* const tuple = value.as<PickleValue::Tuple>()) {
      return tuple->items;
    }
    if (const auto* const list = value.as<PickleValue::List>()) {
      return list->items;
    }
    damaged("expected a tuple, got " + value.describe());
  }
  [[nodiscard]] int64_t count_in(const PickleValue& value) const {
    const auto* const number = value.as<int64_t>();
    if (number == nullptr || *number < 0) {
      damaged("expected a number of at least 0, got " + value.describe());
    }
    return *number;
  }

  /// ("storage", torch.FloatStorage, "17", "cpu", 64), since when with None after it; ("module", torch.nn.Linear,
  /// file, source) in older files.
  PickleValue outside(const PickleValue& id) {
    const std::vector<const PickleValue*>& items = sequence(id);
    const auto* const kind = items.empty() ? nullptr : items[0]->as<std::string>();
    const auto* const type = items.size() < 5 ? nullptr : items[1]->as<PickleValue::Global>();
    if (kind != nullptr && *kind == "module" && items.size() > 1 && items[1]->as<PickleValue::Global>() != nullptr) {
      return *items[1];
    }
    const auto* const key = items.size() < 5 ? nullptr : items[2]->as<std::string>();
    const auto* const found =
        type == nullptr ? kStorageTypes.end() : std::ranges::find(kStorageTypes, type->name, &StorageType::global);
    if (kind == nullptr || *kind != "storage" || key == nullptr || found == kStorageTypes.end()) {
      fail(op_, "expected tensors, got an object outside the pickle that is no tensor's storage");
    }
    if (key->size() > kMostKey) {
      damaged("the storage " + items[2]->describe());
    }
    check(items.size() <= 5 || items[5]->as<PickleValue::None>() != nullptr, op_,
          "expected whole storages, got one that is a part of another one");
    return {PickleValue::Object{add(Numbers{.type = &*found, .key = *key, .count = count_in(*items[4])})}};
  }

  /// `dtype`: where it stands among the items, 0: the storage says it. A dict after them says {"neg": True} for
  /// numbers that stand for their negatives.
  PickleValue tensor_of(const std::vector<const PickleValue*>& items, size_t dtype) {
    const auto* const object = items[0]->as<PickleValue::Object>();
    const auto* const numbers = object == nullptr ? nullptr : std::get_if<Numbers>(&objects_[object->number]);
    if (numbers == nullptr) {
      damaged("a tensor without a storage");
    }
    if (!numbers->type->dtype) {
      return {PickleValue::Opaque{dtype > 0 && items.size() > dtype ? items[dtype]->describe()
                                                                    : std::string(numbers->type->global)}};
    }
    const auto* const about = items.size() < 7 ? nullptr : items.back()->as<PickleValue::Dict>();
    if (about != nullptr && !about->items.empty()) {
      return {PickleValue::Opaque{"a tensor with " + about->items[0].first->describe()}};
    }
    TensorRecord record{.numbers = object->number, .offset = count_in(*items[1])};
    const std::vector<const PickleValue*>& sizes = sequence(*items[2]);
    const std::vector<const PickleValue*>& strides = sequence(*items[3]);
    check(sizes.size() <= static_cast<size_t>(kMaxRank), op_, "expected tensors of at most {} axes, got {}", kMaxRank,
          sizes.size());
    if (sizes.size() != strides.size()) {
      damaged("a tensor with other numbers of sizes and strides");
    }
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      record.sizes.push_back(count_in(*sizes[axis]));
      record.strides.push_back(count_in(*strides[axis]));
    }
    const int64_t numel = checked_numel(op_, record.sizes);
    int64_t last = record.offset;
    for (int64_t axis = 0; numel > 0 && axis < record.sizes.size(); ++axis) {
      const int64_t steps = checked_mul(op_, "strides", record.sizes[axis] - 1, record.strides[axis]);
      if (__builtin_add_overflow(last, steps, &last)) {
        damaged("a tensor behind the end of its storage");
      }
    }
    if (numel > 0 && last >= numbers->count) {
      damaged("a tensor behind the end of its storage");
    }
    if (numel == 0) {  // there may be anything else
      record.offset = 0;
      record.strides = contiguous_strides(record.sizes);
    }
    return {PickleValue::Object{add(std::move(record))}};
  }

  void walk(const std::string& name, const PickleValue& value, int depth, const Source& source, Safetensors& result) {
    count(depth <= kMostDeep ? 1 : most_values(file_bytes_) + 1);
    count_text(name);
    const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
    const auto* const object = value.as<PickleValue::Object>();
    if (object != nullptr && std::holds_alternative<TensorRecord>(objects_[object->number])) {
      result.tensors.emplace_back(name, tensor(std::get<TensorRecord>(objects_[object->number]), source));
    } else if (const auto* const dict = value.as<PickleValue::Dict>()) {
      for (const auto& [key, item] : dict->items) {
        const auto* const text = key->as<std::string>();
        if (text == nullptr && key->as<int64_t>() == nullptr) {
          result.left_out.push_back(excerpt(below("…")) + " (of the key " + key->describe() + ")");
        } else {
          walk(below(text == nullptr ? key->describe() : *text), *item, depth + 1, source, result);
        }
      }
    } else if (value.as<PickleValue::List>() != nullptr || value.as<PickleValue::Tuple>() != nullptr) {
      const std::vector<const PickleValue*>& items = sequence(value);
      for (size_t i = 0; i < items.size(); ++i) {
        walk(below(std::to_string(i)), *items[i], depth + 1, source, result);
      }
    } else if (const auto* const text = value.as<std::string>()) {
      count_text(*text);
      result.metadata[name] = *text;
    } else if (value.as<bool>() != nullptr || value.as<int64_t>() != nullptr || value.as<double>() != nullptr) {
      result.metadata[name] = value.describe();
    } else if (value.as<PickleValue::None>() == nullptr) {
      result.left_out.push_back(excerpt(name) + " (" + value.describe() + ")");
    }
  }

  void count_text(const std::string& text) {
    text_ += text.size();
    check(text_ <= most_bytes(file_bytes_), op_, "expected names and texts of at most {}, got more",
          byte_text(most_bytes(file_bytes_)));
  }

  Tensor tensor(TensorRecord& record, const Source& source) {
    if (record.made.defined()) {
      return record.made;
    }
    const auto& numbers = std::get<Numbers>(objects_[record.numbers]);
    const DType dtype = *numbers.type->dtype;
    Tensor& all = loaded_[numbers.key];
    if (!all.defined()) {
      const std::string bytes = source(numbers);
      all = empty({numbers.count}, {.dtype = dtype, .device = kCpu});
      if (bytes.empty()) {
        // nothing to copy, and perhaps no memory
      } else if (numbers.type->bytes == size_of(dtype)) {
        std::memcpy(all.raw_data(), bytes.data(), bytes.size());
      } else {
        widen_integers(bytes, numbers.type->bytes, all.data<int32_t>());
      }
      const auto is_bool = [](char byte) { return byte == 0 || byte == 1; };
      check(dtype != DType::boolean || std::ranges::all_of(bytes, is_bool), op_,
            "damaged: storage '{}': expected 0 or 1 in every byte of a BoolStorage", excerpt(numbers.key));
    }
    check(all.dtype() == dtype && all.numel() == numbers.count, op_, "damaged: storage '{}' has two types or lengths",
          excerpt(numbers.key));
    record.made = Tensor(all.storage(), record.sizes, record.strides, record.offset, dtype);
    if (record.strides != contiguous_strides(record.sizes)) {
      copied_ = checked_add(op_, "tensors", copied_, checked_mul(op_, "tensors", record.sizes.numel(), size_of(dtype)));
      check(static_cast<size_t>(copied_) <= most_bytes(file_bytes_), op_,
            "expected tensors of hardly more bytes than the file's, got more than {}",
            byte_text(most_bytes(file_bytes_)));
      record.made = copy_of(record.made, MemoryFormat::contiguous);
    }
    return record.made;
  }

  std::string op_;
  PickleValues values_;
  std::deque<Object> objects_;
  std::unordered_map<std::string, Tensor> loaded_;
  size_t file_bytes_;
  int64_t copied_ = 0;  // bytes of tensors
  size_t count_ = 0;    // values
  size_t text_ = 0;     // bytes of names and texts
};

size_t bytes_of(std::string_view op, const Numbers& numbers) {
  return static_cast<size_t>(checked_mul(op, "storage", numbers.count, static_cast<int64_t>(numbers.type->bytes)));
}

/// Reads a zip archive, which has NAME/data.pkl, NAME/data/0, NAME/data/1, …
Safetensors load_archive(const std::string& op, const std::filesystem::path& path) {
  const ZipArchive archive(kOp, path, "a file of torch.save()");
  std::unordered_map<std::string, size_t> numbers;
  std::optional<std::string> folder;
  constexpr std::string_view kPickle = "data.pkl";
  for (size_t i = 0; i < archive.names().size(); ++i) {
    const std::string& name = archive.names()[i];
    check(numbers.emplace(name, i).second, op, "{}: the name appears twice", excerpt(name));
    if (name.ends_with(kPickle) && (name.size() == kPickle.size() || name[name.size() - kPickle.size() - 1] == '/')) {
      folder = name.substr(0, name.size() - kPickle.size());
    }
  }
  check(folder.has_value(), op, "expected data.pkl in the archive, as torch.save() writes, got none");
  if (const auto order = numbers.find(*folder + "byteorder"); order != numbers.end()) {
    const std::string text = archive.read(order->second, archive.size());
    check(text == "little", op, "byteorder: expected little, got {}", excerpt(text));
  }
  check(!numbers.contains(*folder + "constants.pkl"), op,
        "expected tensors by name, got a TorchScript program; in Python: "
        "torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth')");
  // PyTorch does not compress, so that what is in the archive is no larger than it.
  uint64_t left = archive.size();
  const auto read = [&](size_t number) {
    std::string bytes = archive.read(number, left);
    left -= bytes.size();
    return bytes;
  };
  const std::string pickle = read(numbers.at(*folder + std::string(kPickle)));
  std::string_view rest = pickle;
  Content content(op, archive.size());
  const PickleValue& root = content.read(rest);
  return content.collect(root, [&](const Numbers& wanted) {
    const auto found = numbers.find(*folder + "data/" + wanted.key);
    check(found != numbers.end(), op, "damaged: storage '{}' is missing", excerpt(wanted.key));
    std::string bytes = read(found->second);
    check(bytes.size() == bytes_of(op, wanted), op, "damaged: storage '{}': expected {} bytes, got {}",
          excerpt(wanted.key), bytes_of(op, wanted), bytes.size());
    return bytes;
  });
}

void check_little_endian(const std::string& op, const PickleValue& machine) {
  const auto* const dict = machine.as<PickleValue::Dict>();
  check(dict != nullptr, op, "damaged: the description of the machine is missing");
  for (const auto& [key, value] : dict->items) {
    const auto* const name = key->as<std::string>();
    const auto* const little = value->as<bool>();
    check(name == nullptr || *name != "little_endian" || (little != nullptr && *little), op,
          "expected little-endian numbers, got others");
  }
}

/// Five pickles, one after the other: a magic number, a version, sizes of the machine's types, the object, and the
/// keys of its storages. Then for each key the number of elements, in 8 bytes, and the elements.
Safetensors load_pickles(const std::string& op, const std::filesystem::path& path) {
  const std::string bytes = read_text_file(kOp, path, kMaxFile);
  constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
  std::string_view rest = bytes;
  Content content(op, bytes.size());
  const auto* const magic = content.read(rest).as<PickleValue::LongInteger>();
  check(magic != nullptr && magic->bytes == kMagic, op, "expected a file of torch.save(), got another pickle");
  const auto* const version = content.read(rest).as<int64_t>();
  check(version != nullptr && *version == 1001, op, "expected version 1001 of the format before PyTorch 1.6");
  check_little_endian(op, content.read(rest));
  const PickleValue& root = content.read(rest);
  const auto* const keys = content.read(rest).as<PickleValue::List>();
  check(keys != nullptr, op, "damaged: the list of storages is missing");
  std::unordered_map<std::string, std::string_view> behind;  // what follows, from each key's numbers on
  // The object says how many bytes an element of each has.
  const std::unordered_map<std::string, Numbers> storages = content.storages();
  for (const PickleValue* const item : keys->items) {
    const auto* const text = item->as<std::string>();
    check(text != nullptr, op, "damaged: the list of storages has {}", item->describe());
    const std::string& key = *text;
    const auto found = storages.find(key);
    check(found != storages.end(), op, "damaged: storage '{}' is of no tensor", excerpt(key));
    int64_t count = 0;
    const size_t expected = bytes_of(op, found->second);
    check(rest.size() >= sizeof(count) && rest.size() - sizeof(count) >= expected, op,
          "damaged: it ends within storage '{}'", excerpt(key));
    std::memcpy(&count, rest.data(), sizeof(count));
    check(count == found->second.count, op, "damaged: storage '{}': expected {} elements, got {}", excerpt(key),
          found->second.count, count);
    behind[key] = rest.substr(sizeof(count), expected);
    rest.remove_prefix(sizeof(count) + expected);
  }
  check(rest.empty(), op, "damaged: {} bytes behind the storages", rest.size());
  return content.collect(root, [&](const Numbers& wanted) {
    const auto found = behind.find(wanted.key);
    check(found != behind.end() && found->second.size() == bytes_of(op, wanted), op, "damaged: storage '{}' is missing",
          excerpt(wanted.key));
    return std::string(found->second);
  });
}

enum class Format { archive, pickles, other };

Format format_of(std::string_view op, const std::filesystem::path& file) {
  std::array<char, 9> beginning{};
  const size_t count = InputFile(op, file, kMaxFile).read(beginning.data(), beginning.size());
  const std::string_view first(beginning.data(), count);
  if (first.starts_with(kZipMagic)) {
    return Format::archive;
  }
  // A safetensors file may begin so, too: with the length of the header, in eight bytes. Then comes a brace.
  return first.starts_with(kPickleMagic) && first.size() == beginning.size() && first.back() != '{' ? Format::pickles
                                                                                                    : Format::other;
}

}  // namespace

bool is_pytorch_file(const std::filesystem::path& file) {
  return format_of("weights", file) != Format::other;
}

Safetensors load_pytorch_file(const std::filesystem::path& file) {
  const std::string op = fmt::format("{}: {}", kOp, file.string());
  const Format format = format_of(kOp, file);
  check(format != Format::other, op, "expected a file of torch.save(), got another");
  return format == Format::archive ? load_archive(op, file) : load_pickles(op, file);
}

}  // namespace norma::data
