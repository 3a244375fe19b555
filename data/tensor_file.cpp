#include "data/tensor_file.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "core/copy.h"
#include "core/factory.h"
#include "data/atomic_file.h"
#include "data/json.h"

#include <fmt/format.h>
#include <zip.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

namespace norma::data {

namespace {

constexpr uint64_t kMaxFile = uint64_t{64} << 30;
constexpr std::string_view kOp = "npz";
constexpr std::string_view kExpected = "a zip archive of .npy files";

using Source = std::unique_ptr<zip_source_t, decltype(&zip_source_free)>;
using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;

/// The metadata that write_npz() has put into the archive's comment; anybody may have put another text there.
std::map<std::string, std::string> metadata_in(std::string_view comment) {
  std::map<std::string, std::string> metadata;
  try {
    const nlohmann::json json = parse_json(kOp, "comment", comment);
    for (const auto& [key, value] : json.items()) {
      if (json.is_object() && value.is_string()) {
        metadata[key] = value.get<std::string>();
      }
    }
  } catch (const Error&) {
  }
  return metadata;
}

Safetensors read_npz(const std::filesystem::path& path) {
  const std::string file = path.string();
  const ZipArchive archive(kOp, path, kExpected);
  Safetensors result;
  std::set<std::string> names;
  for (size_t i = 0; i < archive.names().size(); ++i) {
    std::string name = archive.names()[i];
    check(name.ends_with(".npy"), kOp, "{}: expected .npy files, got {}", file, excerpt(name));
    name.resize(name.size() - std::string_view(".npy").size());
    check(names.insert(name).second, kOp, "{}: tensor '{}': the name appears twice", file, excerpt(name));
    result.tensors.emplace_back(name, tensor_of_npy(file + ": " + excerpt(name), archive.read(i)));
  }
  result.metadata = metadata_in(archive.comment());
  return result;
}

void write_npz(const std::filesystem::path& path, const NamedTensors& tensors,
               const std::map<std::string, std::string>& metadata) {
  const std::string file = path.string();
  AtomicFile out(std::string(kOp), path);  // first, so that a folder that is not there is found before the work
  const Source target(zip_source_buffer_create(nullptr, 0, /* freep= */ 0, nullptr), &zip_source_free);
  check(target != nullptr, kOp, "{}: out of memory", file);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_keep(target.get());  // the archive takes one
  Archive archive(zip_open_from_source(target.get(), ZIP_TRUNCATE | ZIP_CREATE, &error), &zip_discard);
  check(archive != nullptr, kOp, "{}: out of memory", file);
  std::vector<std::string> contents;  // libzip reads them in zip_close()
  contents.reserve(tensors.size());
  for (const auto& [name, x] : tensors) {
    const std::string& bytes = contents.emplace_back(npy_bytes(x));
    zip_source_t* const source = zip_source_buffer(archive.get(), bytes.data(), bytes.size(), /* freep= */ 0);
    const zip_int64_t index =
        source == nullptr ? -1 : zip_file_add(archive.get(), (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      fail(kOp, "{}: tensor '{}': {}", file, excerpt(name), zip_strerror(archive.get()));
    }
    // Not compressed, as by numpy.savez(): the numbers of a network hardly become fewer.
    zip_set_file_compression(archive.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
  }
  if (!metadata.empty()) {
    const std::string comment = json_text(nlohmann::json(metadata));
    check(comment.size() <= 65535 &&
              zip_set_archive_comment(archive.get(), comment.c_str(), static_cast<zip_uint16_t>(comment.size())) == 0,
          kOp, "{}: metadata: expected at most 65535 bytes, got {}", file, comment.size());
  }
  check(zip_close(archive.get()) == 0, kOp, "{}: {}", file, zip_strerror(archive.get()));
  (void)archive.release();  // closed
  check(zip_source_open(target.get()) == 0, kOp, "{}: the archive cannot be read back", file);
  std::string piece(size_t{1} << 20, '\0');
  zip_int64_t count = 0;
  while ((count = zip_source_read(target.get(), piece.data(), piece.size())) > 0) {
    out.write(piece.data(), static_cast<size_t>(count));
  }
  check(count == 0, kOp, "{}: the archive cannot be read back", file);
  zip_source_close(target.get());
  out.commit();
}

}  // namespace

struct ZipArchive::Handles {
  std::unique_ptr<zip_source_t, decltype(&zip_source_free)> source{nullptr, &zip_source_free};
  std::unique_ptr<zip_t, decltype(&zip_discard)> archive{nullptr, &zip_discard};
};

ZipArchive::ZipArchive(std::string_view op, const std::filesystem::path& path, std::string_view expected)
    : op_(op),
      file_(path.string()),
      bytes_(read_text_file(op, path, kMostBytes)),
      handles_(std::make_unique<Handles>()) {
  check(!bytes_.empty(), op_, "{}: expected {}, got an empty file", file_, expected);
  zip_error_t error;
  zip_error_init(&error);
  handles_->source.reset(zip_source_buffer_create(bytes_.data(), bytes_.size(), /* freep= */ 0, &error));
  check(handles_->source != nullptr, op_, "{}: out of memory", file_);
  zip_source_keep(handles_->source.get());  // the archive takes one
  handles_->archive.reset(zip_open_from_source(handles_->source.get(), ZIP_RDONLY | ZIP_CHECKCONS, &error));
  if (handles_->archive == nullptr) {
    zip_source_free(handles_->source.get());
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail(op_, "{}: expected {}: {}", file_, expected, text);
  }
  const zip_int64_t count = zip_get_num_entries(handles_->archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* const name = zip_get_name(handles_->archive.get(), static_cast<zip_uint64_t>(i), 0);
    check(name != nullptr, op_, "{}: {}", file_, zip_strerror(handles_->archive.get()));
    names_.emplace_back(name);
  }
}

ZipArchive::~ZipArchive() = default;

std::string ZipArchive::read(size_t number, uint64_t most) const {
  zip_t* const archive = handles_->archive.get();
  const std::string name = excerpt(names_[number]);
  zip_stat_t about;
  zip_stat_init(&about);
  check(zip_stat_index(archive, number, 0, &about) == 0, op_, "{}: {}: {}", file_, name, zip_strerror(archive));
  check((about.valid & ZIP_STAT_SIZE) != 0 && about.size <= most, op_, "{}: {}: expected at most {} bytes, got {}",
        file_, name, most, about.size);
  const std::unique_ptr<zip_file_t, decltype(&zip_fclose)> from(zip_fopen_index(archive, number, 0), &zip_fclose);
  check(from != nullptr, op_, "{}: {}: {}", file_, name, zip_strerror(archive));
  std::string bytes;
  constexpr size_t kPiece = size_t{1} << 20;
  while (bytes.size() <= about.size) {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    const zip_int64_t count = zip_fread(from.get(), bytes.data() + before, kPiece);
    check(count >= 0, op_, "{}: {}: {}", file_, name, zip_file_strerror(from.get()));
    bytes.resize(before + static_cast<size_t>(count));
    if (count == 0) {
      break;
    }
  }
  check(bytes.size() == about.size, op_, "{}: {}: expected {} bytes, got {}", file_, name, about.size, bytes.size());
  return bytes;
}

std::string ZipArchive::comment() const {
  int length = 0;
  const char* const text = zip_get_archive_comment(handles_->archive.get(), &length, 0);
  return text == nullptr ? "" : std::string(text, static_cast<size_t>(length));
}

static_assert(std::endian::native == std::endian::little, "what is written here are little-endian numbers");

namespace {

constexpr std::string_view kNpy = "npy";
constexpr std::string_view kNpyMagic{"\x93NUMPY", 6};
constexpr size_t kAlignment = 64;  // of the first element

struct TypeName {
  const char* name;
  DType dtype;
};
constexpr std::array kTypes{TypeName{"<f4", DType::float32}, TypeName{"<f8", DType::float64},
                            TypeName{"<f2", DType::float16}, TypeName{"<i8", DType::int64},
                            TypeName{"<i4", DType::int32},   TypeName{"|u1", DType::uint8},
                            TypeName{"|b1", DType::boolean}};

struct NpyHeader {
  DType dtype{};
  Sizes sizes = {};
  Strides strides = {};
};

/// Reads the text of a dict of Python: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
NpyHeader read_npy_header(std::string_view file, std::string_view text) {
  const auto require = [&](bool condition, const std::string& expected) {
    check(condition, kNpy, "{}: header: expected {}, got {}", file, expected, excerpt(text));
  };
  std::string as_json;
  for (const char c : text) {
    if (c == ')' || c == '}') {  // where Python allows a comma
      as_json.resize(as_json.find_last_not_of(" \n") + 1);
      if (as_json.ends_with(',')) {
        as_json.pop_back();
      }
    }
    as_json += c == '\'' ? '"' : c == '(' ? '[' : c == ')' ? ']' : c == 'T' ? 't' : c == 'F' ? 'f' : c;
  }
  nlohmann::json json;
  try {
    json = parse_json(kNpy, file, as_json, /* most_deep= */ 2);
  } catch (const Error&) {  // which quotes JSON
  }
  require(json.is_object() && json.size() == 3 && json.contains("descr") && json.contains("fortran_order") &&
              json.contains("shape"),
          "descr, fortran_order and shape, and nothing else");
  const auto* const type = std::ranges::find_if(kTypes, [&](const TypeName& one) { return json["descr"] == one.name; });
  require(type != kTypes.end(), "descr '<f4', '<f8', '<f2', '<i8', '<i4', '|u1' or '|b1'");
  require(json["fortran_order"].is_boolean(), "fortran_order True or False");
  require(json["shape"].is_array() && json["shape"].size() <= static_cast<size_t>(kMaxRank),
          fmt::format("at most {} axes", kMaxRank));
  NpyHeader header{.dtype = type->dtype};
  for (const nlohmann::json& size : json["shape"]) {
    require(size.is_number_unsigned() && size.get<uint64_t>() <= uint64_t{INT64_MAX}, "a shape of whole numbers");
    header.sizes.push_back(size.get<int64_t>());
  }
  Sizes of_memory = header.sizes;
  if (json["fortran_order"]) {
    std::ranges::reverse(of_memory);
  }
  header.strides = contiguous_strides(of_memory);
  if (json["fortran_order"]) {
    std::ranges::reverse(header.strides);
  }
  return header;
}

}  // namespace

std::string npy_bytes(const Tensor& x) {
  const auto* const type = std::ranges::find(kTypes, x.dtype(), &TypeName::dtype);
  check(type != kTypes.end(), kNpy, "expected a dtype that NumPy has, got {}", to_string(x.dtype()));
  std::string shape;
  for (const int64_t size : x.sizes()) {
    shape += fmt::format("{},", size);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type->name, shape);
  const size_t before = kNpyMagic.size() + 4;  // the version and the length of the header, of two bytes each
  header.append(kAlignment - 1 - (before + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kNpyMagic);
  bytes += std::string_view("\x01\x00", 2);
  const auto length = static_cast<uint16_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  const Tensor values = to_device(copy_of(x.detach(), MemoryFormat::contiguous), kCpu);
  bytes.append(static_cast<const char*>(values.raw_data()), static_cast<size_t>(x.numel()) * size_of(x.dtype()));
  return bytes;
}

Tensor tensor_of_npy(std::string_view file, std::string_view bytes) {
  check(bytes.starts_with(kNpyMagic) && bytes.size() > kNpyMagic.size() + 4, kNpy,
        "{}: expected a file of NumPy, got another", file);
  const char major = bytes[kNpyMagic.size()];
  check(major >= 1 && major <= 3, kNpy, "{}: expected version 1, 2 or 3, got {}", file, static_cast<int>(major));
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t begin = kNpyMagic.size() + 2 + length_bytes;
  check(bytes.size() >= begin, kNpy, "{}: expected a header, got the end of the file", file);
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kNpyMagic.size() + 2, length_bytes);
  check(bytes.size() - begin >= length, kNpy, "{}: expected a header of {} bytes, got {}", file, length,
        bytes.size() - begin);
  const NpyHeader header = read_npy_header(file, bytes.substr(begin, length));
  const std::string_view data = bytes.substr(begin + length);
  const int64_t numel = checked_numel(kNpy, header.sizes);
  const auto element = static_cast<int64_t>(size_of(header.dtype));
  const int64_t expected = checked_mul(kNpy, "shape", numel, element);
  check(static_cast<int64_t>(data.size()) == expected, kNpy, "{}: expected {} bytes of elements, got {}", file,
        expected, data.size());
  const Tensor x = empty_strided(header.sizes, header.strides, {.dtype = header.dtype, .device = kCpu});
  if (expected > 0) {
    std::memcpy(x.raw_data(), data.data(), data.size());
  }
  check(x.dtype() != DType::boolean || std::ranges::all_of(data, [](char byte) { return byte == 0 || byte == 1; }),
        kNpy, "{}: expected 0 or 1 in every byte of a bool", file);
  return x;
}

Safetensors read_tensor_file(const std::filesystem::path& file) {
  if (file.extension() == ".npy") {
    return {.tensors = {{"input", tensor_of_npy(file.string(), read_text_file("npy", file, kMaxFile))}},
            .metadata = {}};
  }
  return file.extension() == ".npz" ? read_npz(file) : load_safetensors(file);
}

void write_tensor_file(const std::filesystem::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  if (file.extension() == ".npz") {
    write_npz(file, tensors, metadata);
  } else if (file.extension() == ".npy") {
    check(tensors.size() == 1, "npy", "{}: expected one tensor, got {}; a .npz file holds several", file.string(),
          tensors.size());
    const std::string bytes = npy_bytes(tensors.front().second);
    AtomicFile out("npy", file);
    out.write(bytes.data(), bytes.size());
    out.commit();
  } else {
    save_safetensors(file, tensors, metadata);
  }
}

}  // namespace norma::data
