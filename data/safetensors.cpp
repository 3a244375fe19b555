#include "data/safetensors.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "core/copy.h"
#include "core/factory.h"
#include "data/atomic_file.h"
#include "data/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <set>

namespace norma::data {

static_assert(std::endian::native == std::endian::little, "safetensors files hold little-endian numbers");

namespace {

constexpr const char* kOp = "safetensors";
constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kMaxFile = uint64_t{64} << 30;
constexpr size_t kHeaderAlignment = 8;

struct DTypeName {
  const char* name;
  size_t bits;                 // of an element
  std::optional<DType> dtype;  // that it becomes; none: Norma has no such numbers
};

/// All of the format. Each dtype is written under its first name.
constexpr std::array<DTypeName, 20> kDTypes = {{{"F64", 64, DType::float64},
                                                {"F32", 32, DType::float32},
                                                {"F16", 16, DType::float16},
                                                {"BF16", 16, DType::bfloat16},
                                                {"I64", 64, DType::int64},
                                                {"I32", 32, DType::int32},
                                                {"I16", 16, DType::int32},
                                                {"I8", 8, DType::int32},
                                                {"U8", 8, DType::uint8},
                                                {"BOOL", 8, DType::boolean},
                                                {"U64", 64, {}},
                                                {"U32", 32, {}},
                                                {"U16", 16, {}},
                                                {"C64", 64, {}},
                                                {"F8_E5M2", 8, {}},
                                                {"F8_E4M3", 8, {}},
                                                {"F8_E8M0", 8, {}},
                                                {"F6_E2M3", 6, {}},
                                                {"F6_E3M2", 6, {}},
                                                {"F4", 4, {}}}};

const char* name_of(DType dtype) {
  const auto* const found = std::ranges::find(kDTypes, std::optional(dtype), &DTypeName::dtype);
  check(found != kDTypes.end(), kOp, "unknown dtype {}", static_cast<int>(dtype));
  return found->name;
}

size_t bytes_of(const Tensor& x) {
  return static_cast<size_t>(x.numel()) * size_of(x.dtype());
}

/// One tensor, as the header describes it.
struct Entry {
  std::string name;
  const DTypeName* type = nullptr;
  Sizes sizes;
  uint64_t begin = 0;  // in bytes after the header
  uint64_t end = 0;
};

std::map<std::string, std::string> parse_metadata(const std::string& file, const nlohmann::json& value) {
  check(value.is_object(), kOp, "{}: expected {} to be an object, got {}", file, kMetadata, value.type_name());
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    check(text.is_string(), kOp, "{}: {}: expected a text for '{}', got {}", file, kMetadata, excerpt(key),
          text.type_name());
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

const DTypeName* parse_dtype(const std::string& file, const std::string& name, const nlohmann::json& value) {
  std::vector<std::string_view> names;
  for (const DTypeName& known : kDTypes) {
    if (value == known.name) {
      return &known;
    }
    names.emplace_back(known.name);
  }
  fail(kOp, "{}: tensor '{}': dtype: expected one of {}, got {}", file, name, fmt::join(names, ", "),
       json_excerpt(value));
}

Entry parse_entry(const std::string& file, const std::string& full_name, const nlohmann::json& value,
                  uint64_t data_bytes) {
  const std::string name = excerpt(full_name);
  check(value.is_object(), kOp, "{}: tensor '{}': expected an object, got {}", file, name, value.type_name());
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    check(value.contains(key), kOp, "{}: tensor '{}': {} is missing", file, name, key);
  }
  const auto is_size = [](const nlohmann::json& number) {
    return number.is_number_unsigned() && number.get<uint64_t>() <= uint64_t{INT64_MAX};
  };
  Entry entry;
  entry.name = full_name;
  entry.type = parse_dtype(file, name, value["dtype"]);

  const nlohmann::json& shape = value["shape"];
  check(shape.is_array() && std::ranges::all_of(shape, is_size), kOp,
        "{}: tensor '{}': shape: expected a list of sizes, got {}", file, name, json_excerpt(shape));
  check(shape.size() <= static_cast<size_t>(kMaxRank), kOp, "{}: tensor '{}': shape: expected at most {} axes, got {}",
        file, name, kMaxRank, shape.size());
  // A size of 0 counts as 1 here, as in a tensor: strides are products of the other sizes.
  int64_t most = 1;
  bool fits = true;
  for (const nlohmann::json& size : shape) {
    entry.sizes.push_back(size.get<int64_t>());
    fits = fits && !__builtin_mul_overflow(most, std::max<int64_t>(entry.sizes.back(), 1), &most);
  }
  fits = fits && !__builtin_mul_overflow(most, static_cast<int64_t>(entry.type->bits), &most);
  check(fits, kOp, "{}: tensor '{}': shape: {} is too large", file, name, json_excerpt(shape));
  const auto bytes = static_cast<uint64_t>(entry.sizes.contains(0) ? 0 : (most + 7) / 8);

  const nlohmann::json& offsets = value["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2 && std::ranges::all_of(offsets, is_size), kOp,
        "{}: tensor '{}': data_offsets: expected [begin, end], got {}", file, name, json_excerpt(offsets));
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  check(entry.begin <= entry.end && entry.end <= data_bytes, kOp,
        "{}: tensor '{}': data_offsets: expected a range within the {} bytes of data, got {}", file, name, data_bytes,
        json_excerpt(offsets));
  check(entry.end - entry.begin == bytes, kOp, "{}: tensor '{}': expected {} bytes for dtype {} and shape {}, got {}",
        file, name, bytes, entry.type->name, json_excerpt(shape), entry.end - entry.begin);
  return entry;
}

/// Throws Error unless the entries, sorted, cover the data without gaps or overlaps.
void check_coverage(const std::string& file, const std::vector<Entry>& entries, uint64_t data_bytes) {
  uint64_t covered = 0;
  const Entry* previous = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin < covered) {
      fail(kOp, "{}: tensor '{}': its bytes [{}, {}) overlap those of '{}'", file, excerpt(entry.name), entry.begin,
           entry.end, excerpt(previous->name));
    }
    check(entry.begin == covered, kOp, "{}: tensor '{}': expected its data to begin at byte {}, got {}: a gap", file,
          excerpt(entry.name), covered, entry.begin);
    covered = entry.end;
    previous = &entry;
  }
  check(covered == data_bytes, kOp, "{}: expected {} bytes of data, as the header says, got {}", file, covered,
        data_bytes);
}

struct Header {
  std::vector<Entry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

void read_bytes(InputFile& input, const std::string& file, void* bytes, uint64_t count) {
  const size_t got = input.read(bytes, count);
  check(got == count, kOp, "cannot read {}: expected {} more bytes, got {}", file, count, got);
}

Header read_header(InputFile& input, const std::string& file) {
  uint64_t length = 0;
  const uint64_t file_bytes = input.size();
  check(file_bytes >= sizeof(length), kOp, "{}: expected a header length of 8 bytes, got a file of {} bytes", file,
        file_bytes);
  read_bytes(input, file, &length, sizeof(length));
  check(length <= kMaxHeader, kOp, "{}: expected a safetensors file with a header of at most {} bytes, got one of {}",
        file, kMaxHeader, length);
  check(length <= file_bytes - sizeof(length), kOp, "{}: the header should have {} bytes, but only {} follow", file,
        length, file_bytes - sizeof(length));
  std::string text(length, '\0');
  read_bytes(input, file, text.data(), length);
  const uint64_t data_bytes = file_bytes - sizeof(length) - length;

  Header header;
  const nlohmann::json json = parse_json(kOp, file + ": the header", text, /* most_deep= */ 3);
  check(json.is_object(), kOp, "{}: expected the header to be a JSON object, got {}", file, json.type_name());
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(file, value);
    } else {
      header.entries.push_back(parse_entry(file, name, value, data_bytes));
    }
  }
  // Empty tensors come before others that begin at the same byte.
  std::ranges::sort(header.entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_coverage(file, header.entries, data_bytes);
  return header;
}

}  // namespace

Tensor tensor_named(const NamedTensors& tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  return found == tensors.end() ? Tensor() : found->second;
}

void save_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<const std::pair<std::string, Tensor>*> sorted;
  std::set<std::string_view> names;
  for (const auto& tensor : tensors) {
    check_defined(kOp, tensor.first, tensor.second);
    check(tensor.first != kMetadata, kOp, "{}: no tensor can have the name {}", file.string(), kMetadata);
    check(names.insert(tensor.first).second, kOp, "{}: tensor '{}': the name appears twice", file.string(),
          tensor.first);
    sorted.push_back(&tensor);
  }
  std::ranges::stable_sort(
      sorted, [](const auto* a, const auto* b) { return size_of(a->second.dtype()) > size_of(b->second.dtype()); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header[kMetadata] = metadata;
  }
  size_t offset = 0;
  for (const auto* tensor : sorted) {
    const Tensor& x = tensor->second;
    const size_t end = offset + bytes_of(x);
    header[tensor->first] = {{"dtype", name_of(x.dtype())},
                             {"shape", std::vector<int64_t>(x.sizes().begin(), x.sizes().end())},
                             {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = json_text(header);
  } catch (const nlohmann::json::exception&) {
    fail(kOp, "{}: names and metadata must be UTF-8", file.string());
  }
  // Spaces align the data, as the format asks for.
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  AtomicFile output(kOp, file);
  const uint64_t length = text.size();
  output.write(&length, sizeof(length));
  output.write(text.data(), text.size());
  for (const auto* tensor : sorted) {
    const Tensor x = to_device(contiguous_copy(tensor->second), kCpu);
    output.write(x.raw_data(), bytes_of(x));
  }
  output.commit();
}

void widen_integers(std::string_view bytes, size_t element, int32_t* to) {
  for (size_t at = 0; at + element <= bytes.size(); at += element) {
    const auto last = static_cast<int8_t>(bytes[at + element - 1]);
    *to++ = element == 1 ? last : last * 256 + static_cast<uint8_t>(bytes[at]);
  }
}

Safetensors load_safetensors(const std::filesystem::path& path) {
  const std::string file = path.string();
  InputFile input(kOp, path, kMaxFile);
  Header header = read_header(input, file);
  Safetensors result{.tensors = {}, .metadata = std::move(header.metadata)};
  for (const Entry& entry : header.entries) {
    const size_t bytes = entry.end - entry.begin;
    const DType dtype = entry.type->dtype.value_or(DType::uint8);
    const bool as_it_is = entry.type->dtype && entry.type->bits == 8 * size_of(dtype);
    std::string raw(as_it_is ? 0 : bytes, '\0');
    Tensor x = empty(entry.type->dtype ? entry.sizes : Sizes{0}, {.dtype = dtype, .device = kCpu});
    read_bytes(input, file, as_it_is ? x.raw_data() : raw.data(), bytes);
    if (!entry.type->dtype) {
      result.left_out.push_back(fmt::format("{} ({})", excerpt(entry.name), entry.type->name));
      continue;
    }
    if (!as_it_is) {
      widen_integers(raw, entry.type->bits / 8, x.data<int32_t>());
    }
    if (dtype == DType::boolean) {
      const auto* const values = static_cast<const uint8_t*>(x.raw_data());
      check(std::all_of(values, values + x.numel(), [](uint8_t byte) { return byte <= 1; }), kOp,
            "{}: tensor '{}': expected 0 or 1 in every byte of a BOOL", file, excerpt(entry.name));
    }
    result.tensors.emplace_back(entry.name, std::move(x));
  }
  return result;
}

std::map<std::string, std::string> load_safetensors_metadata(const std::filesystem::path& path) {
  InputFile input(kOp, path, kMaxFile);
  return read_header(input, path.string()).metadata;
}

}  // namespace norma::data
